//! `STREAM.NAMES` and `STREAM.LIST`: the streams of an account, at whatever node.

use crate::core_port::CorePort;
use crate::envelope::{self, Paged, ResponseType};
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::other_nodes::{OtherNodes, Purpose};
use crate::outcome::Answer;
use crate::registry::Entry;
use crate::request::parse_optional;
use crate::sizes::{ASSET_BYTES, LIST_PAGE, NAMES_PAGE, config_bytes, offset_of};
use crate::stream_subjects::Looks;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::served::{Served, ServedStream};
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::yield_now;

/// Bytes of subjects and metadata in one page of `STREAM.LIST`, about; one stream may have more.
const LIST_BYTES: usize = 4 << 20;

/// Streams of each node that a list goes through between two turns of others.
const STREAMS_PART: usize = 1024;

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListRequest {
    offset: i64,
    subject: String,
}

#[derive(Serialize)]
struct NamesBody {
    #[serde(flatten)]
    page: Paged,
    /// `null` when there are none, as upstream.
    streams: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ListBody {
    #[serde(flatten)]
    page: Paged,
    streams: Vec<StreamInfo>,
    /// Those whose node does not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Those that are offline, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    offline: BTreeMap<String, String>,
}

/// A stream of the account, and who serves it.
enum Listed {
    /// This node.
    Here(Arc<Entry>),
    /// The node of this name.
    At(String, Arc<ServedStream>),
}

impl Listed {
    fn name(&self) -> &str {
        match self {
            Self::Here(entry) => &entry.config.name,
            Self::At(_, stream) => &stream.name,
        }
    }

    fn subjects(&self) -> &[String] {
        match self {
            Self::Here(entry) => &entry.config.subjects,
            Self::At(_, stream) => &stream.subjects,
        }
    }

    /// What it adds to a list, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Here(entry) => config_bytes(&entry.config),
            Self::At(_, stream) => {
                ASSET_BYTES + stream.subjects.iter().map(String::len).sum::<usize>()
            }
        }
    }
}

/// Gathers lists of streams.
pub(super) struct Lists {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) infos: Arc<Infos>,
}

impl Lists {
    /// `STREAM.NAMES`.
    pub(super) async fn names(&self, account: AccountId, body: &[u8]) -> Answer {
        let request: ListRequest = parse_optional(body, self.strict)?;
        let Found { page, offset, total } = self.find(account, &request, NAMES_PAGE).await?;
        let streams: Vec<String> = page.iter().map(|listed| listed.name().to_owned()).collect();
        let streams = (!streams.is_empty()).then_some(streams);
        let page = Paged { total, offset, limit: NAMES_PAGE };
        Ok(envelope::ok(ResponseType("stream_names"), &NamesBody { page, streams }))
    }

    /// `STREAM.LIST`.
    pub(super) async fn list(&self, account: AccountId, body: &[u8], share: &mut Share) -> Answer {
        let request: ListRequest = parse_optional(body, self.strict)?;
        let found = self.find(account, &request, LIST_PAGE).await?;
        let Found { offset, total, .. } = found;
        let mut bytes = 0;
        let mut page = Vec::new();
        for listed in &found.page {
            // The rest comes with the next page.
            bytes += listed.bytes();
            if bytes > LIST_BYTES && !page.is_empty() {
                break;
            }
            page.push(listed);
        }
        let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut offline = BTreeMap::new();
        for listed in &page {
            if let Listed::At(node, stream) = listed {
                if let Some(why) = self.nodes.offline(account, &stream.name) {
                    offline.insert(stream.name.clone(), why.description.into_owned());
                    continue;
                }
                names.entry(node.clone()).or_default().push(&stream.name);
            }
        }
        let mut elsewhere = self.nodes.infos(account, names, share).await?;
        let (mut streams, mut missing) = (Vec::new(), Vec::new());
        for listed in page {
            let entry = match listed {
                Listed::Here(entry) => entry,
                Listed::At(_, stream) => {
                    match elsewhere.remove(&stream.name) {
                        Some(info) => streams.push(info),
                        None => missing.push(stream.name.clone()),
                    }
                    continue;
                }
            };
            match self.info(account, entry).await {
                Ok(info) => streams.push(info),
                // Deleted since the registry was read.
                Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => {}
                Err(error) => return Err(error),
            }
        }
        let page = Paged { total, offset, limit: LIST_PAGE };
        let body = ListBody { page, streams, missing, offline };
        envelope::charged(ResponseType("stream_list"), &body, share)
    }

    /// The infos of these streams here, as another node asks for them.
    pub(super) async fn own_infos(
        &self,
        account: AccountId,
        names: Vec<String>,
    ) -> Vec<StreamInfo> {
        let mut infos = Vec::new();
        for name in names {
            let Ok(entry) = self.streams.entry(account, &name) else { continue };
            if let Ok(info) = self.info(account, &entry).await {
                infos.push(info);
            }
        }
        infos
    }

    async fn info(&self, account: AccountId, entry: &Entry) -> Result<StreamInfo, JsError> {
        let mut info = self.calls.current_info(entry).await?;
        self.infos.complete_listed(account, &mut info);
        Ok(info)
    }

    /// At most `max` of the account's streams at all nodes, from the request's offset on by name, those with a subject
    /// that overlaps with its filter if it has one.
    ///
    /// # Errors
    /// There is none, and not all streams are known: an empty list would pass for all there is. Clients look for the stream of a
    /// subject by such a list, so one that has found something is answered.
    async fn find(
        &self,
        account: AccountId,
        request: &ListRequest,
        max: usize,
    ) -> Result<Found, JsError> {
        let (mut page, mut total) = (Vec::new(), 0);
        let (offset, mut looks) = (offset_of(request.offset), Looks::default());
        let mut walk = Walk::new(self, account);
        while let Some(part) = walk.next().await {
            for listed in part {
                if !looks.is_about(listed.subjects(), &request.subject).await {
                    continue;
                }
                if total >= offset && page.len() < max {
                    page.push(listed);
                }
                total += 1;
            }
        }
        match walk.lacking {
            Some(error) if total == 0 => Err(error),
            _ => Ok(Found { page, offset: offset.min(total), total }),
        }
    }
}

/// A page of a list.
struct Found {
    page: Vec<Listed>,
    offset: usize,
    /// How many streams the list has.
    total: usize,
}

/// Goes through an account's streams at all nodes, by name, each once. A stream that comes or goes meanwhile may be among
/// them or not.
struct Walk<'a> {
    lists: &'a Lists,
    account: AccountId,
    served: Option<Arc<Served>>,
    /// Why the streams of all nodes were not known the last time.
    lacking: Option<JsError>,
    /// Up to this name all were gone through.
    after: Option<String>,
    is_done: bool,
}

impl<'a> Walk<'a> {
    fn new(lists: &'a Lists, account: AccountId) -> Self {
        let served = lists.core.served(account);
        Self { lists, account, served, lacking: None, after: None, is_done: false }
    }

    /// The next part; others have their turn before each but the first. `None`: that was all.
    async fn next(&mut self) -> Option<Vec<Listed>> {
        if self.is_done {
            return None;
        }
        if self.after.is_some() {
            yield_now().await;
        }
        if self.lacking.is_none() {
            // Those that cannot be had are told of as far as others know.
            self.lacking = self.lists.nodes.until_whole(self.account, Purpose::List).await.err();
        }
        let after = self.after.as_deref();
        let own = self.lists.streams.part(self.account, after, STREAMS_PART);
        let others = self.served.as_ref().map(|served| served.part(after, STREAMS_PART));
        let (mut part, after) = merged(own, others.unwrap_or_default(), STREAMS_PART);
        part.iter_mut().for_each(|listed| self.follow(listed));
        self.is_done = after.is_none();
        self.after = after;
        Some(part)
    }
}

impl Walk<'_> {
    /// A stream is at the node that has told of it last: its former owner may hang.
    fn follow(&self, listed: &mut Listed) {
        let Listed::At(node, stream) = listed else { return };
        let found = self.served.as_ref().and_then(|served| served.find(&stream.name));
        if let Some((newest, told)) = found {
            (*node, *stream) = (newest, told);
        }
    }
}

/// Parts of at most `max` streams of this node and of others, each by name, as one: up to the name that is returned, behind
/// which one of them may go on. `None`: all are at their ends.
fn merged(
    own: Vec<Arc<Entry>>,
    others: Vec<(String, Vec<Arc<ServedStream>>)>,
    max: usize,
) -> (Vec<Listed>, Option<String>) {
    let mut all: Vec<Vec<Listed>> = vec![own.into_iter().map(Listed::Here).collect()];
    for (node, streams) in others {
        let at_node = |stream| Listed::At(node.clone(), stream);
        all.push(streams.into_iter().map(at_node).collect());
    }
    let full = all.iter().filter(|part| part.len() >= max);
    let last = full.filter_map(|part| part.last()).map(Listed::name).min().map(str::to_owned);
    let mut merged: Vec<Listed> = all.into_iter().flatten().collect();
    if let Some(last) = &last {
        merged.retain(|listed| listed.name() <= last.as_str());
    }
    // Of several of one name the first counts: this node's.
    merged.sort_by(|one, other| one.name().cmp(other.name()));
    merged.dedup_by(|one, other| one.name() == other.name());
    (merged, last)
}

#[cfg(test)]
mod tests;
