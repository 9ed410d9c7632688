//! From a request to its answer: which call it is, who may make it, how it fails.

use crate::call_places::{Place, stream_of};
use crate::envelope::{self, ResponseType};
use crate::node_questions::NodeAsks;
use crate::other_nodes::{HandedOn, Purpose, Tries, is_not_whole, usage_answer};
use crate::outcome::{Answer, Work, described};
use crate::registry::DEFAULT_LOG;
use crate::replication::OwnApi;
use crate::request::{Call, empty_fields};
use crate::service::JetStream;
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::is_level_met;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::jetstream_port::{BoxFuture, Requester};
use nuthatch_server::operations::Operation;
use nuthatch_server::served::Scope;
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use std::time::{Duration, Instant, SystemTime};

/// How often a stream is looked for while the tables of other nodes change.
const LOOKS_MAX: usize = 16;

/// An attempt that took so long waited for a node that did not answer: further ones have their time beside it, so often.
const SLOW_ATTEMPT: Duration = Duration::from_millis(500);
const RENEWALS_MAX: usize = 2;

/// When a request came.
struct Began {
    instant: Instant,
    time: SystemTime,
}

impl Began {
    fn now() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
}

/// What comes with the answer to a request.
#[derive(Default)]
struct Beside {
    /// Header block of the answer.
    headers: Vec<u8>,
    /// Work that goes on once it is answered.
    work: Option<Work>,
}

/// A request as it came.
#[derive(Clone, Copy)]
struct Asked<'a> {
    from: &'a Requester,
    /// The subject behind the API prefix.
    rest: &'a str,
    headers: &'a [u8],
    body: &'a [u8],
    /// Who else may be asked.
    scope: &'a Scope,
    /// Another node hands it on.
    is_handed_on: bool,
    /// When it came; it may have waited for its turn since.
    arrived: Instant,
}

impl JetStream {
    /// Handles one request whose subject behind the API prefix is `rest`, and answers it.
    /// Subjects that are no call get silence, as upstream. Returns the answer. One that nobody takes is
    /// tried again until some seconds after it `arrived`.
    pub async fn handle(
        &self,
        (from, arrived): (&Requester, Instant),
        rest: &str,
        reply: &[u8],
        headers: &[u8],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let (scope, is_handed_on) = (&Scope::Cluster, false);
        let request = Asked { from, rest, headers, body, scope, is_handed_on, arrived };
        let answer = |headers: &[u8], body: &[u8]| {
            if !reply.is_empty() {
                self.core.answer(from.account, reply, headers, body);
            }
        };
        self.handle_as(&request, answer).await
    }

    /// Handles a call that another node of the cluster hands on; `None`: it has no answer.
    pub(super) async fn handle_question(
        &self,
        from: &Requester,
        (rest, headers, body): (&str, &[u8], &[u8]),
        scope: &Scope,
    ) -> Option<Vec<u8>> {
        if let Some(answer) = self.answer_node(from.account, rest, body).await {
            return Some(answer);
        }
        let (is_handed_on, arrived) = (true, Instant::now());
        let request = Asked { from, rest, headers, body, scope, is_handed_on, arrived };
        self.handle_as(&request, |_, _| ()).await
    }

    /// Answers what only nodes ask each other; `None`: it is no such question.
    async fn answer_node(
        &self,
        account: AccountId,
        question: &str,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        match NodeAsks::read(question, body)? {
            NodeAsks::Infos(names) => {
                serde_json::to_vec(&self.lists.own_infos(account, names).await).ok()
            }
            NodeAsks::Usage => usage_answer(self.calls.usage(Some(account)).await.ok()?),
            NodeAsks::Copy(question) => self.moves.apart.answer_copy(account, &question).await,
            NodeAsks::Handover(question) => {
                let handed = self.core.step_down(&question.log, Some(question.to))?;
                handed.await.ok().filter(|is_done| *is_done).map(|_| Vec::new())
            }
            NodeAsks::Load => serde_json::to_vec(&self.loads.of_node()).ok(),
            NodeAsks::Source(question) => self.moves.apart.answer_source(&question).await,
        }
    }

    async fn handle_as(
        &self,
        request: &Asked<'_>,
        deliver: impl FnOnce(&[u8], &[u8]),
    ) -> Option<Vec<u8>> {
        let began = Began::now();
        let Asked { from, rest, headers, .. } = *request;
        let api_call = Call::parse(rest)?;
        let is_of_system = matches!(api_call, Call::AccountPurge(_))
            || (matches!(api_call, Call::MetaStepDown | Call::ServerRemove)
                && self.core.cluster().is_some());
        if is_of_system && from.account != SYSTEM_ACCOUNT_ID {
            return None;
        }
        let (kind, account) = (response_type(&api_call), from.account);
        let mut then = Beside::default();
        let mut share = self.answer_bytes.take(account, 0).expect("there is room for nothing");
        let required = find_header(headers, b"Nats-Required-Api-Level").unwrap_or_default();
        let answer = if is_level_met(required) {
            self.answer(request, &api_call, &mut then, &mut share).await?
        } else {
            Err(JsError::REQUIRED_API_LEVEL)
        };
        self.stats.count(account, answer.is_err());
        self.note_answered(account, (kind, rest, headers), &began, answer.as_ref().err());
        let bytes = answer.unwrap_or_else(|error| {
            then.headers.clear();
            failed(kind, &error, &api_call)
        });
        deliver(&then.headers, &bytes);
        if let Some(work) = then.work {
            tokio::spawn(work);
        }
        Some(bytes)
    }

    /// The answer of whoever serves what the call is about; `None`, to a node only: nothing was done here. A call whose
    /// log is just going to another node is handed on again, and so is one that only reads if its node is lost; one that
    /// nobody decides about waits.
    async fn answer(
        &self,
        request: &Asked<'_>,
        api_call: &Call<'_>,
        then: &mut Beside,
        share: &mut Share,
    ) -> Option<Answer> {
        let (mut tries, mut renewals) = (Tries::since(request.arrived), RENEWALS_MAX);
        loop {
            let began = Instant::now();
            let answer = self.answer_once(request, api_call, then, share).await;
            // The node that the client is at tries again; one hop further that would add up.
            if answer.is_some() || request.is_handed_on {
                return answer;
            }
            // What is said beside an answer is said by who gives one.
            *then = Beside::default();
            if began.elapsed() >= SLOW_ATTEMPT && renewals > 0 {
                renewals -= 1;
                tries.renew();
            }
            if !tries.again().await {
                let text = "no node takes the call: nothing was done; try again later";
                return Some(Err(described(JsError::CLUSTER_NOT_AVAIL, text.to_owned())));
            }
        }
    }

    async fn answer_once(
        &self,
        request: &Asked<'_>,
        api_call: &Call<'_>,
        then: &mut Beside,
        share: &mut Share,
    ) -> Option<Answer> {
        let Asked { from, rest, headers, body, scope, is_handed_on, .. } = *request;
        let account = from.account;
        let was_own = self.places.is_own(account, api_call);
        let place = tokio::select! {
            place = self.place(account, api_call, scope) => place,
            // Nothing was done: the node that hands it on asks somebody else.
            () = self.requests.ending(), if is_handed_on => return None,
        };
        let place = match place {
            Ok(place) => place,
            Err(error) => return Some(Err(error)),
        };
        match place {
            Place::Here | Place::HereOnceWhole => {
                let was_own = was_own || self.places.is_own(account, api_call);
                let answer = self.dispatch(request, api_call, then, share).await;
                // They were known when the place was looked for: an owner is just changing.
                let is_not_whole = answer.as_ref().is_err_and(is_not_whole);
                if is_not_whole || self.places.has_left(account, (api_call, was_own), &answer) {
                    return None;
                }
                let answer = answer.map_err(|error| self.offline_or(account, api_call, error));
                if answer.is_ok() && api_call.changes_streams() {
                    self.nodes.until_known(account).await;
                }
                Some(answer)
            }
            // Two nodes that take each other for the leader must not go on for ever.
            Place::At(_, Scope::Cluster) if is_handed_on => None,
            Place::At(node, scope) => {
                let name = stream_of(api_call);
                let log = match scope {
                    // Who decides about streams has the first log.
                    Scope::Cluster => Some(DEFAULT_LOG.to_owned()),
                    _ => name.and_then(|name| self.nodes.log_at(account, &node, name)),
                };
                let to = (&*node, &scope, log.as_deref());
                let answer = self.nodes.hand_on(account, to, (rest, headers, body)).await;
                let may_repeat = match answer {
                    HandedOn::Answered(_) => false,
                    HandedOn::NotTaken => true,
                    HandedOn::Lost => api_call.only_reads(),
                };
                if may_repeat {
                    return None;
                }
                Some(answer.or_unknown(&node).and_then(|answer| {
                    let charged = share.grow(answer.len());
                    charged.map(|()| answer).map_err(|_| JsError::STREAM_TOO_MANY_REQUESTS)
                }))
            }
            Place::Nowhere => None,
        }
    }

    /// What is said of a stream that was not found: it may be offline.
    fn offline_or(&self, account: AccountId, api_call: &Call<'_>, error: JsError) -> JsError {
        if error.err_code != JsError::STREAM_NOT_FOUND.err_code {
            return error;
        }
        let name = stream_of(api_call);
        name.and_then(|name| self.nodes.offline(account, name)).unwrap_or(error)
    }

    /// Where a call is handled. What nobody serves is here only if the streams of all logs were known before and after it
    /// was looked for: the owner of its log may change meanwhile.
    ///
    /// # Errors
    /// They are not known in time.
    async fn place(
        &self,
        account: AccountId,
        api_call: &Call<'_>,
        scope: &Scope,
    ) -> Result<Place, JsError> {
        let mut place = self.places.of(account, api_call, scope);
        for _ in 0..LOOKS_MAX {
            if place != Place::HereOnceWhole {
                return Ok(place);
            }
            self.nodes.until_whole(account, Purpose::Change).await?;
            let version = self.nodes.version(account);
            place = self.places.of(account, api_call, scope);
            let is_same = self.nodes.version(account) == version;
            if is_same && self.nodes.check_whole(account).is_ok() {
                return Ok(place);
            }
        }
        Err(JsError::CLUSTER_NOT_AVAIL)
    }

    /// Counts the time of a request, and tells who listens.
    fn note_answered(
        &self,
        account: AccountId,
        (kind, rest, headers): (ResponseType, &str, &[u8]),
        began: &Began,
        error: Option<&JsError>,
    ) {
        let took = began.instant.elapsed();
        self.stats.latency.record(took);
        let Some(listener) = self.core.operations() else { return };
        let traceparent = find_header(headers, b"traceparent");
        listener.ended(&Operation {
            name: kind.0,
            account: &self.accounts.name_of(account),
            subject: rest,
            traceparent: traceparent.and_then(|text| std::str::from_utf8(text).ok()),
            started: began.time,
            took,
            error: error.map(|error| (error.err_code, &*error.description)),
        });
    }

    /// Answers a request for which there is no room.
    pub fn refuse(&self, account: AccountId, rest: &str, reply: &[u8]) {
        let Some(api_call) = Call::parse(rest) else { return };
        let error = JsError::STREAM_TOO_MANY_REQUESTS;
        self.stats.count(account, true);
        let bytes = failed(response_type(&api_call), &error, &api_call);
        if !reply.is_empty() {
            self.core.answer(account, reply, b"", &bytes);
        }
    }

    /// Calls of the system account, which needs no JetStream of its own.
    async fn dispatch_of_system(&self, request: &Asked<'_>, api_call: &Call<'_>) -> Option<Answer> {
        let Asked { body, scope, .. } = *request;
        Some(match *api_call {
            Call::AccountPurge(name) => self.stream_calls.purge_everywhere(name, scope).await,
            Call::MetaStepDown => self.step_downs.of_leader(body).await,
            Call::ServerRemove => self.step_downs.remove_server(body).await,
            _ => return None,
        })
    }

    async fn dispatch(
        &self,
        request: &Asked<'_>,
        api_call: &Call<'_>,
        then: &mut Beside,
        share: &mut Share,
    ) -> Answer {
        let Asked { from, headers, body, scope, .. } = *request;
        let account = from.account;
        if let Some(answer) = self.dispatch_of_system(request, api_call).await {
            return answer;
        }
        if !self.accounts.serves(account) {
            return Err(JsError::NOT_ENABLED_FOR_ACCOUNT);
        }
        let streams = &self.stream_calls;
        match *api_call {
            Call::AccountInfo => self.account_infos.info(account).await,
            Call::StreamCreate(name) => streams.create(account, (name, scope), body).await,
            Call::StreamUpdate(name) => streams.update_anywhere(account, name, body).await,
            Call::StreamDelete(name) => streams.delete(account, name, body).await,
            Call::StreamInfo(name) => streams.info(account, name, body, share).await,
            Call::StreamMove(name) => self.moves.call(account, name, body).await,
            Call::StreamImport(name) => self.imports.call(account, name, body).await,
            Call::StreamImportMessages(name) => {
                self.imports.messages(account, name, headers, body).await
            }
            Call::StreamImportRead(name) => self.imports.read(account, name, body).await,
            Call::StreamFence(name) => streams.fence(account, name, body).await,
            Call::StreamStepDown(name) => self.step_downs.of_stream(account, name, body).await,
            Call::StreamPeerRemove(name) => self.step_downs.remove_peer(account, name, body),
            Call::ConsumerStepDown(stream, name) => {
                self.step_downs.of_consumer(account, (stream, name), body).await
            }
            Call::StreamPurge(name) => streams.purge(account, name, body).await,
            Call::StreamSnapshot(name) => {
                self.snapshots.begin(from, name, body, &mut then.work).await
            }
            Call::StreamRestore(name) => {
                self.restores.begin(from, name, body, &mut then.work).await
            }
            Call::StreamNames => self.lists.names(account, body).await,
            Call::StreamList => self.lists.list(account, body, share).await,
            Call::MsgGet(name) => streams.msg_get(account, name, body).await,
            Call::MsgDelete(name) => streams.msg_delete(account, name, body).await,
            Call::ConsumerCreateEphemeral(_)
            | Call::ConsumerCreate { .. }
            | Call::ConsumerCreateDurable { .. } => {
                let told = (headers, &mut then.headers, &mut then.work);
                self.consumers.create(account, *api_call, body, told).await
            }
            Call::ConsumerInfo(stream, name) => {
                self.consumers.info(account, stream, name, body).await
            }
            Call::ConsumerDelete(stream, name) => {
                self.consumers.delete(account, stream, name, body).await
            }
            Call::ConsumerPause(stream, name) => {
                self.consumers.pause(account, stream, name, body).await
            }
            Call::ConsumerUnpin(stream, name) => {
                self.consumers.unpin(account, stream, name, body).await
            }
            Call::ConsumerReset(stream, name) => {
                let told = (headers, &mut then.headers);
                self.consumers.reset(account, (stream, name), body, told).await
            }
            Call::ConsumerNames(stream) | Call::ConsumerList(stream) => {
                let names_only = matches!(api_call, Call::ConsumerNames(_));
                self.consumers.page(account, stream, body, names_only, share).await
            }
            Call::AccountPurge(_) | Call::MetaStepDown | Call::ServerRemove => {
                Err(JsError::CLUSTER_REQUIRED)
            }
        }
    }
}

impl OwnApi for JetStream {
    fn ask<'a>(
        &'a self,
        account: AccountId,
        call: &'a str,
        body: &'a [u8],
    ) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let from = Requester { account, client: None };
            self.handle((&from, Instant::now()), call, b"", b"", body).await
        })
    }
}

fn failed(kind: ResponseType, error: &JsError, api_call: &Call<'_>) -> Vec<u8> {
    envelope::failed(kind, error, empty_fields(api_call))
}

const fn response_type(api_call: &Call<'_>) -> ResponseType {
    ResponseType(match api_call {
        Call::AccountInfo => "account_info",
        Call::StreamCreate(_) => "stream_create",
        Call::StreamUpdate(_) => "stream_update",
        Call::StreamDelete(_) => "stream_delete",
        Call::StreamInfo(_) => "stream_info",
        Call::StreamMove(_) => "stream_move",
        Call::StreamImport(_) => "stream_import",
        Call::StreamImportMessages(_) => "stream_import_messages",
        Call::StreamImportRead(_) => "stream_import_read",
        Call::StreamFence(_) => "stream_fence",
        Call::StreamPurge(_) => "stream_purge",
        Call::StreamSnapshot(_) => "stream_snapshot",
        Call::StreamRestore(_) => "stream_restore",
        Call::StreamNames => "stream_names",
        Call::StreamList => "stream_list",
        Call::MsgGet(_) => "stream_msg_get",
        Call::MsgDelete(_) => "stream_msg_delete",
        Call::ConsumerCreateEphemeral(_)
        | Call::ConsumerCreate { .. }
        | Call::ConsumerCreateDurable { .. } => "consumer_create",
        Call::ConsumerInfo(..) => "consumer_info",
        Call::ConsumerDelete(..) => "consumer_delete",
        Call::ConsumerPause(..) => "consumer_pause",
        Call::ConsumerUnpin(..) => "consumer_unpin",
        Call::ConsumerReset(..) => "consumer_reset",
        Call::ConsumerNames(_) => "consumer_names",
        Call::ConsumerList(_) => "consumer_list",
        Call::AccountPurge(_) => "account_purge",
        Call::StreamStepDown(_) => "stream_leader_stepdown",
        Call::ConsumerStepDown(..) => "consumer_leader_stepdown",
        Call::MetaStepDown => "meta_leader_stepdown",
        Call::ServerRemove => "meta_server_remove",
        Call::StreamPeerRemove(_) => "stream_remove_peer",
    })
}
