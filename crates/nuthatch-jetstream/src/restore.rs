//! `STREAM.RESTORE`: an archive becomes a stream, all of it or nothing.
//!
//! The chunks of the upload go through a bounded queue to a thread that reads the archive and hands
//! what it holds to the engine, a batch at a time. There the stream has another name and cannot be
//! asked for until its last record; what a failure, a lost client or a crash leaves behind is
//! deleted, at once or by the next start.

mod fill;
mod upload;

use crate::envelope::{self, ResponseType};
use crate::pending_changes::PendingChange;
use crate::registry::Entry;
use crate::request::{is_empty, parse};
use crate::service::{
    Answer, JetStream, Work, set_consumer_metadata, set_stream_metadata, unexpected,
};
use crate::snapshot::times;
use fill::{Filler, RestoreError};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{
    ConsumerSnapshot, CreateConsumerRequest, DiscardPolicy, StreamConfig, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::jetstream_port::Requester;
use nuthatch_server::random::random_id;
use nuthatch_server::shares::{Full, Share};
use nuthatch_streams::consumer::{ConsumerLimits, validate_consumer};
use nuthatch_streams::stream::staged_config;
use nuthatch_streams::validate;
use nuthatch_streams::{Op, OpOutcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use upload::Upload;

/// Restores under way at once, over all accounts. Each has a thread and a few MiB.
pub const RESTORES_MAX: usize = 16;
/// Restores of one account under way at once: one that begins many and sends nothing leaves room for
/// others.
pub const RESTORES_OF_ACCOUNT_MAX: usize = 4;
/// Characters of the random part of a subject.
const SUBJECT_ID_CHARS: usize = 22;
/// How often the removal of what a failed restore left is tried when the log is busy.
const CLEAN_UP_TRIES: u32 = 20;
/// Between two of them.
const CLEAN_UP_PAUSE: Duration = Duration::from_millis(250);

#[derive(Deserialize, Default)]
#[serde(default)]
struct RestoreRequest {
    config: StreamConfig,
    /// State of the backup when it was made; the archive holds it too.
    state: Value,
}

#[derive(Serialize)]
struct RestoreBody<'a> {
    deliver_subject: &'a str,
}

fn too_many(full: Full) -> String {
    match full {
        Full::All => format!("{RESTORES_MAX} restores are under way: try again"),
        Full::Account => {
            format!("{RESTORES_OF_ACCOUNT_MAX} restores of this account are under way: try again")
        }
    }
}

/// A restore on its way.
struct Restore {
    service: Arc<JetStream>,
    from: Requester,
    /// Checked, but not against what may come until the end.
    config: StreamConfig,
    engine: LogId,
    upload: Upload,
    /// What the consumers that have come take.
    consumer_bytes: Share,
    _place: Share,
}

impl JetStream {
    pub(super) async fn stream_restore(
        self: &Arc<Self>,
        from: &Requester,
        name: &str,
        body: &[u8],
        then: &mut Option<Work>,
    ) -> Answer {
        let answer = self.begin_restore(from, name, body, then).await;
        if answer.is_err() {
            self.stats.refused_restores.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn begin_restore(
        self: &Arc<Self>,
        from: &Requester,
        name: &str,
        body: &[u8],
        then: &mut Option<Work>,
    ) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let mut config = parse::<RestoreRequest>(body, self.settings.strict)?.config;
        if config.name.is_empty() {
            name.clone_into(&mut config.name);
        }
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        if name.contains(['/', '\\']) {
            return Err(JsError::STREAM_NAME_CONTAINS_PATH_SEPARATORS);
        }
        let config = self.restored_config(config)?;
        let config = self.check_restored(from, config).await?;
        let engine = self.engine_for(&config)?;
        let place = self.restores.take(from.account, 1);
        let place = place.map_err(|full| JsError::STREAM_RESTORE.with_err(too_many(full)))?;
        let subject = format!("$JS.SNAPSHOT.RESTORE.{name}.{}", random_id(SUBJECT_ID_CHARS));
        let Some(upload) = Upload::open(self.clone(), from.account, &subject, Handle::current())
        else {
            let error = JsError::RESTORE_SUBSCRIBE_FAILED.with("subject", &subject);
            return Err(error.with_err("the account is gone"));
        };
        let body = RestoreBody { deliver_subject: &subject };
        let answer = envelope::ok(ResponseType("stream_restore"), &body);
        let (service, from) = (self.clone(), from.clone());
        let consumer_bytes = self.transfer_bytes.take(from.account, 0);
        let consumer_bytes = consumer_bytes.expect("there is always room for nothing");
        let restore =
            Restore { service, from, config, engine, upload, consumer_bytes, _place: place };
        *then = Some(Box::pin(restore.run()));
        Ok(answer)
    }

    /// A configuration of a backup, checked by itself. Unlike one of a new stream it may be sealed.
    pub(super) fn restored_config(
        &self,
        mut config: StreamConfig,
    ) -> Result<StreamConfig, JsError> {
        set_stream_metadata(&mut config);
        let is_sealed = std::mem::take(&mut config.sealed);
        let mut config = validate::stream_config(config, &self.limits(false))?;
        if is_sealed {
            config.sealed = true;
            config.max_age = 0;
            config.discard = DiscardPolicy::New;
            (config.deny_delete, config.deny_purge) = (true, true);
            config.allow_rollup_hdrs = false;
        }
        Ok(config)
    }

    /// Whether there is room for the stream beside the others, now.
    async fn check_restored(
        &self,
        from: &Requester,
        mut config: StreamConfig,
    ) -> Result<StreamConfig, JsError> {
        self.check_copies(from.account, &mut config)?;
        if self.registry.read().get(from.account, &config.name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST_RESTORE_FAILED);
        }
        self.check_new(from.account, &config).await?;
        Ok(config)
    }
}

impl Restore {
    async fn run(self) {
        let (service, name) = (self.service.clone(), self.config.name.clone());
        let handle = Handle::current();
        // Reading an archive waits for chunks and for the log: that takes a thread of its own.
        let done = tokio::task::spawn_blocking(move || self.on_thread(&handle)).await;
        if let Err(why) = done {
            // What it left goes with the next start; that it happened must be seen.
            service.core.say(&format!("the restore of stream {name} ended by a mistake: {why}"));
        }
    }

    fn on_thread(mut self, handle: &Handle) {
        let start = self.service.core.now();
        let name = self.config.name.clone();
        self.service.tell_transfer(&self.from, "restore_create", &name, serde_json::Map::new());
        let result = self.restore(handle);
        self.answer(result, start);
    }

    fn answer(mut self, result: Result<StreamInfo, RestoreError>, start: Time) {
        let name = self.config.name.clone();
        let answer = match result {
            Ok(info) => {
                self.service.stream_answer(self.from.account, "stream_create", info, None, false)
            }
            Err(error) => {
                self.service.stats.refused_restores.fetch_add(1, Ordering::Relaxed);
                let error = match error {
                    RestoreError::Api(error) => error,
                    RestoreError::Archive(error) => JsError::STREAM_RESTORE.with_err(error),
                };
                envelope::failed(ResponseType("stream_create"), &error, json!({}))
            }
        };
        self.upload.answer(&answer);
        let mut fields = times(start, self.service.core.now());
        fields.insert("bytes".to_owned(), json!(self.upload.received()));
        self.service.tell_transfer(&self.from, "restore_complete", &name, fields);
    }

    fn restore(&mut self, handle: &Handle) -> Result<StreamInfo, RestoreError> {
        let id = handle.block_on(self.begin())?;
        let result = self.fill(id, handle).and_then(|consumers| {
            handle.block_on(self.finish(id, consumers)).map_err(RestoreError::Api)
        });
        if result.is_err() {
            handle.block_on(self.clean_up(id));
        }
        result
    }

    /// Begins the stream under its other name.
    async fn begin(&self) -> Result<StreamId, JsError> {
        let account = self.from.account;
        let changing = self.service.lock_for(account, &self.config.name).await?;
        let config = Box::new(staged_config(&self.config));
        let (id, work) =
            self.service.begin_new(self.engine, |id| Op::CreateStream { id, account, config });
        let pending = PendingChange::new(account, self.engine, self.config.clone());
        let (outcome, _changing) = self.service.settle(changing, pending, work).await;
        outcome.map(|_| id)
    }

    async fn run_op(&self, op: Op) -> Result<OpOutcome, JsError> {
        self.service.run(self.engine, op).await
    }

    /// Reads the whole upload into the stream; returns the consumers, which come at the end.
    fn fill(
        &mut self,
        id: StreamId,
        handle: &Handle,
    ) -> Result<Vec<ConsumerSnapshot>, RestoreError> {
        let mut filler =
            Filler::new(&self.service, self.engine, id, handle, &mut self.consumer_bytes);
        nuthatch_archive::read(&mut self.upload, &self.config.name, &mut |item| filler.take(item))?;
        let consumers = filler.end()?;
        self.upload.drain()?;
        Ok(consumers)
    }

    /// Makes the stream what it is to be, if that can still be.
    async fn finish(
        &self,
        id: StreamId,
        consumers: Vec<ConsumerSnapshot>,
    ) -> Result<StreamInfo, JsError> {
        let account = self.from.account;
        let changing = self.service.lock_for(account, &self.config.name).await?;
        let config = self.service.check_restored(&self.from, self.config.clone()).await?;
        let limits = self.service.consumer_limits(account);
        let consumers = checked_consumers(consumers, &config, &limits)?;
        let pending = PendingChange::new(account, self.engine, config.clone());
        let config = Box::new(config);
        let work = self.run_op(Op::FinishRestore { id, config, consumers });
        let (outcome, _changing) = self.service.settle(changing, pending, work).await;
        let info = match outcome? {
            OpOutcome::Stream { info, .. } => *info,
            other => return Err(unexpected(&other)),
        };
        let entry = Entry {
            id,
            engine: self.engine,
            account,
            config: info.config.clone(),
            created: info.created,
        };
        self.service.enter(entry).await;
        Ok(info)
    }

    /// Removes what was restored so far. What cannot be removed now goes with the next start.
    async fn clean_up(&self, id: StreamId) {
        for _ in 0..CLEAN_UP_TRIES {
            if *self.service.stopping.borrow() {
                return;
            }
            let busy = JsError::STREAM_TOO_MANY_REQUESTS.err_code;
            match self.run_op(Op::DeleteStream { id }).await {
                Err(error) if error.err_code == busy => tokio::time::sleep(CLEAN_UP_PAUSE).await,
                _ => return,
            }
        }
    }
}

/// Consumers of a backup as new ones are checked.
pub(super) fn checked_consumers(
    consumers: Vec<ConsumerSnapshot>,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<Vec<ConsumerSnapshot>, JsError> {
    let max = if stream.max_consumers > 0 { stream.max_consumers } else { limits.max_consumers };
    if usize::try_from(max).is_ok_and(|max| max > 0 && consumers.len() > max) {
        return Err(JsError::MAXIMUM_CONSUMERS_LIMIT);
    }
    let check = |snapshot: ConsumerSnapshot| {
        let ConsumerSnapshot { config, state } = snapshot;
        let name = config.name.clone();
        let mut request = CreateConsumerRequest {
            stream_name: stream.name.clone(),
            config,
            ..CreateConsumerRequest::default()
        };
        set_consumer_metadata(&mut request.config);
        let config = validate_consumer(&request, stream, limits)
            .map_err(|why| JsError::STREAM_RESTORE.with_err(format!("consumer {name}: {why}")))?;
        Ok(ConsumerSnapshot { config, state })
    };
    consumers.into_iter().map(check).collect()
}
