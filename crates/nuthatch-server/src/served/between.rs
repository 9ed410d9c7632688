//! Streams of quorum logs that no node serves just now, since their owner has gone or hands them over: what clients ask of them
//! waits at their own node until another one serves them, instead of finding nobody.

use super::known::Known;
use super::stream_set::StreamSet;
use super::{OwnStream, Served, ServedStream};
use crate::logs::is_quorum_log;
use crate::stream_requests::stream_of;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

/// For how long an owner may lack: a takeover takes less, and clients wait longer for an answer than this and the answer.
pub(crate) const BETWEEN_MAX: Duration = Duration::from_millis(1500);

/// Bytes of one account that wait for owners; beyond that nobody is found, and connections with something that waits are not
/// read.
const HELD_BYTES_MAX: usize = 64 << 20;

/// How soon it is tried after a log has an owner: what is for its streams goes there when that has told of their subjects, a
/// moment behind their names.
const TRIED_FIRST: Duration = Duration::from_millis(2);
/// How soon again.
const TRIED_AGAIN: Duration = Duration::from_millis(30);

/// Streams of an account that are remembered one by one where a log is handed over; requests of others find nobody. Those of a
/// node that has gone are all there already.
const BETWEEN_STREAMS_MAX: usize = 16 * 1024;

/// Streams that no node serves.
#[derive(Default)]
pub(super) struct Between {
    gone: Vec<Gone>,
    /// Whether there are any, for who must not wait for a lock.
    pub(super) any: Arc<AtomicBool>,
    /// Changes when a log has an owner again.
    owned: watch::Sender<u64>,
}

/// What one node has served.
struct Gone {
    /// Its quorum logs that no other node has said it has since.
    logs: BTreeSet<String>,
    streams: StreamSet,
    until: Instant,
}

impl Gone {
    /// Whether the log of the stream for which a subject is has an owner again; `None`: it lacked none, or there is no such
    /// stream.
    fn is_owned(&self, subject: &[u8]) -> Option<bool> {
        let stream = match stream_of(subject) {
            Some(name) => self.streams.get(name).map(|(_, stream)| stream),
            None => self.streams.of_subject(subject),
        };
        let stream = stream.filter(|stream| is_quorum_log(&stream.log))?;
        Some(!self.logs.contains(&stream.log))
    }
}

impl Between {
    /// Streams that a node does not serve any more, in these logs that nobody else has.
    fn lack(&mut self, logs: BTreeSet<String>, streams: StreamSet) {
        self.forget_old();
        if !logs.is_empty() && !streams.is_empty() {
            self.gone.push(Gone { logs, streams, until: Instant::now() + BETWEEN_MAX });
            self.any.store(true, Ordering::Release);
        }
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        self.gone.retain(|gone| gone.until > now);
        self.any.store(!self.gone.is_empty(), Ordering::Release);
    }

    /// A node has these logs, and has told of their streams.
    pub(super) fn are_owned(&mut self, logs: &[String]) {
        if self.gone.is_empty() {
            return;
        }
        self.forget_old();
        let mut is_news = false;
        for gone in &mut self.gone {
            let before = gone.logs.len();
            gone.logs.retain(|log| !logs.contains(log));
            is_news |= gone.logs.len() < before;
        }
        if is_news {
            self.owned.send_modify(|version| *version += 1);
        }
    }

    /// Until when a stream may lack its owner for which a subject is, and whether its log has one again; `None`: it does not.
    fn until(&self, subject: &[u8]) -> Option<(Instant, bool)> {
        let now = Instant::now();
        let gone = self.gone.iter().filter(|gone| gone.until > now);
        gone.filter_map(|gone| Some((gone.until, gone.is_owned(subject)?))).max()
    }
}

/// Room of an account for what waits for an owner; free again when this is dropped.
pub(crate) struct Held {
    served: Arc<Served>,
    bytes: usize,
}

impl Held {
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.served.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if the account has no more of it.
    pub(crate) fn is_too_much(&self) -> bool {
        self.served.held_bytes.load(Ordering::Relaxed) > HELD_BYTES_MAX
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.served.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Known {
    /// A node with this table has gone, or begins to tell anew.
    pub(super) fn lacks_all_of(&mut self, node: &str) {
        let Some(table) = self.nodes.get_mut(node) else { return };
        let logs = table.state.logs.clone();
        let streams = std::mem::take(&mut table.streams);
        let logs = self.lacking(node, logs);
        self.between.lack(logs, streams);
    }

    /// A node is about to withdraw these streams, with those of its logs that are not in `logs`.
    pub(super) fn lacks_of(&mut self, node: &str, logs: &[String], streams: &[String]) {
        let Some(table) = self.nodes.get(node) else { return };
        let withdrawn = table.state.logs.iter().filter(|log| !logs.contains(log));
        let withdrawn = withdrawn.cloned().collect();
        let withdrawn = self.lacking(node, withdrawn);
        if withdrawn.is_empty() || streams.is_empty() {
            return;
        }
        let table = &self.nodes[node].streams;
        let of_logs = streams.iter().filter_map(|name| table.get(name)).map(|(_, stream)| stream);
        let of_logs = of_logs.filter(|stream| withdrawn.contains(&stream.log));
        let set = set_of(of_logs.take(BETWEEN_STREAMS_MAX).map(|stream| (**stream).clone()));
        self.between.lack(withdrawn, set);
    }

    /// Those of these logs that are quorum logs, and neither this node's nor another one's.
    fn lacking(&self, node: &str, logs: Vec<String>) -> BTreeSet<String> {
        let is_elsewhere = |log: &String| {
            let mut others = self.nodes.iter().filter(|(name, table)| {
                name.as_str() != node && table.is_complete && table.state.logs.contains(log)
            });
            self.state.logs.contains(log) || others.next().is_some()
        };
        logs.into_iter().filter(|log| is_quorum_log(log) && !is_elsewhere(log)).collect()
    }
}

fn set_of(streams: impl Iterator<Item = ServedStream>) -> StreamSet {
    let mut set = StreamSet::default();
    for (key, stream) in (1..).zip(streams) {
        // A node may say twice that one has gone.
        if !set.has(&stream.name) {
            set.insert(stream, key);
        }
    }
    set
}

impl Served {
    /// This node is about to serve the streams of a quorum log no more, which are these, as far as they are remembered.
    pub fn leaves(&self, log: &str, streams: impl Iterator<Item = OwnStream>) {
        let set = set_of(streams.take(BETWEEN_STREAMS_MAX).map(|stream| stream.told()));
        let mut inner = self.inner.lock();
        let is_at_another = inner
            .nodes
            .values()
            .any(|table| table.is_complete && table.state.logs.iter().any(|other| other == log));
        if is_quorum_log(log) && !is_at_another && !inner.nodes.is_empty() {
            inner.between.lack(BTreeSet::from([log.to_owned()]), set);
        }
    }

    /// Room for what waits for an owner; `None`: there is no more.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<Held> {
        let held = Held { served: Arc::clone(self), bytes: 0 };
        (!held.is_too_much()).then_some(held)
    }

    /// What ends when it is to be tried again whether anybody takes what is for this subject; `None`: nobody does, and no
    /// stream that would lacks its owner just now.
    pub(crate) fn until_owned(self: &Arc<Self>, subject: &[u8]) -> Option<oneshot::Receiver<()>> {
        if !self.lacks_any.load(Ordering::Acquire) {
            return None;
        }
        let is_owned = {
            let mut inner = self.inner.lock();
            let until = inner.between.until(subject);
            if until.is_none() {
                inner.between.forget_old();
            }
            until?.1
        };
        let (mut waits, hears) = oneshot::channel();
        let (served, subject) = (Arc::clone(self), Box::<[u8]>::from(subject));
        tokio::spawn(async move {
            tokio::select! {
                () = served.is_owned_or_not(&subject, is_owned) => {}
                () = waits.closed() => {}
            }
        });
        Some(hears)
    }

    async fn is_owned_or_not(&self, subject: &[u8], is_owned: bool) {
        if is_owned {
            return tokio::time::sleep(TRIED_AGAIN).await;
        }
        let mut owned = self.inner.lock().between.owned.subscribe();
        loop {
            let until = self.inner.lock().between.until(subject);
            let Some((until, is_owned)) = until else { return };
            if is_owned {
                return tokio::time::sleep(TRIED_FIRST).await;
            }
            let changed = timeout_at(until.into(), owned.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeState;
    use super::super::table::Told;
    use super::*;
    use crate::outlet::Outlet;
    use nuthatch_protocol::js::StreamConfig;

    fn own(name: &str, log: &str) -> OwnStream {
        let (name, subjects) = (name.to_owned(), vec![format!("{name}.>")]);
        let config = StreamConfig { name, subjects, ..StreamConfig::default() };
        OwnStream { config: Arc::new(config), log: log.into() }
    }

    fn told(logs: &[&str], come: &[OwnStream], gone: &[&str], is_last: bool) -> Vec<u8> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let told = Told {
            state: NodeState { logs: owned(logs), ..NodeState::default() },
            is_last,
            come: come.iter().map(OwnStream::told).collect(),
            gone: owned(gone),
            ..Told::default()
        };
        serde_json::to_vec(&told).expect("JSON")
    }

    /// A node that serves a stream of a quorum log and one of its own log, and another node.
    fn with_owner() -> (Served, [Arc<Outlet>; 2]) {
        let (served, links) = (Served::default(), [Outlet::nowhere(), Outlet::nowhere()]);
        served.met(("n1", false), &links[0], "one");
        served.met(("n2", false), &links[1], "two");
        let streams = [own("Q", "default"), own("R", "default"), own("L", "local")];
        served.receive("n1", b"T", &told(&["default", "local"], &streams, &[], true));
        served.receive("n2", b"T", &told(&[], &[], &[], true));
        (served, links)
    }

    /// Whether what is for a subject waits, and whether its log has an owner again.
    fn waits(served: &Served, subject: &str) -> Option<bool> {
        let until = served.inner.lock().between.until(subject.as_bytes());
        until.map(|(_, is_owned)| is_owned)
    }

    const OF_Q: [&str; 4] = [
        "Q.a",
        "$JS.API.DIRECT.GET.Q.Q.a",
        "$JS.API.CONSUMER.MSG.NEXT.Q.c",
        "$JS.ACK.Q.c.1.1.1.1.1",
    ];

    #[test]
    fn what_is_for_the_streams_of_an_owner_that_has_gone_waits_for_the_next_one() {
        let (served, links) = with_owner();
        assert!(OF_Q.iter().all(|subject| waits(&served, subject).is_none()), "it is served");
        served.left("n1", &links[0]);
        assert!(OF_Q.iter().all(|subject| waits(&served, subject) == Some(false)));
        let others =
            ["X.a", "$JS.API.DIRECT.GET.X", "$JS.API.DIRECT.GET.L", "$JS.API.STREAM.INFO.Q"];
        assert!(others.iter().all(|subject| waits(&served, subject).is_none()));
        served.receive("n2", b"T", &told(&["default"], &[own("Q", "default")], &[], false));
        assert_eq!(waits(&served, "R.a"), Some(false), "it has not told all");
        served.receive("n2", b"T", &told(&["default"], &[own("R", "default")], &[], true));
        assert_eq!(waits(&served, "Q.a"), Some(true));
    }

    /// Each stream waits for the owner of its own log.
    #[test]
    fn a_log_of_a_node_that_has_gone_may_have_an_owner_sooner_than_another_one() {
        let (served, links) = with_owner();
        let both = &["default", "default-1", "local"];
        served.receive("n1", b"T", &told(both, &[own("S", "default-1")], &[], true));
        served.left("n1", &links[0]);
        served.receive("n2", b"T", &told(&["default-1"], &[own("S", "default-1")], &[], true));
        assert_eq!((waits(&served, "S.a"), waits(&served, "Q.a")), (Some(true), Some(false)));
    }

    #[test]
    fn a_log_that_is_handed_over_leaves_streams_that_wait_and_a_stream_that_is_deleted_does_not() {
        let (served, _links) = with_owner();
        served.receive("n1", b"T", &told(&["default", "local"], &[], &["R"], true));
        assert_eq!(waits(&served, "R.a"), None, "it was deleted");
        served.receive("n1", b"T", &told(&["local"], &[], &["Q", "Q"], true));
        assert_eq!((waits(&served, "Q.a"), waits(&served, "R.a")), (Some(false), None));
        served.receive("n1", b"T", &told(&["default", "local"], &[own("Q", "default")], &[], true));
        assert_eq!(waits(&served, "Q.a"), Some(true), "it was not handed over");
    }

    #[test]
    fn a_log_that_another_node_has_already_lacks_no_owner() {
        let (served, links) = with_owner();
        served.receive("n2", b"T", &told(&["default"], &[own("Q", "default")], &[], true));
        served.left("n1", &links[0]);
        assert_eq!(waits(&served, "Q.a"), None);
        served.leaves("default", [own("Q", "default")].into_iter());
        assert_eq!(waits(&served, "Q.a"), None);
    }

    #[test]
    fn a_log_of_this_node_leaves_streams_too_and_they_wait_for_a_time_only() {
        let (served, _links) = with_owner();
        served.leaves("default-1", [own("S", "default-1")].into_iter());
        served.leaves("local", [own("T", "local")].into_iter());
        assert_eq!((waits(&served, "S.a"), waits(&served, "T.a")), (Some(false), None));
        let far = Instant::now() + BETWEEN_MAX;
        assert!(served.inner.lock().between.until(b"S.a").is_some_and(|(until, _)| until <= far));
        assert!(served.lacks_any.load(Ordering::Acquire));
        served.inner.lock().between.gone[0].until = Instant::now();
        assert_eq!(waits(&served, "S.a"), None);
        served.receive("n2", b"T", &told(&[], &[own("X", "default")], &[], true));
        assert!(!served.lacks_any.load(Ordering::Acquire), "nothing is kept of it");
        let alone = Served::default();
        alone.leaves("default", [own("Q", "default")].into_iter());
        assert_eq!(waits(&alone, "Q.a"), None, "there is nobody who could have it next");
    }
}
