//! Streams that other nodes of the cluster serve, and what is for them beside their own subjects: acknowledgements, flow
//! control, pulls and direct gets. The name of the stream stands in all of these, so a node tells its streams
//! ([`Served`](crate::served::Served)) and no subjects of that kind.

use super::{ALL_OF_JETSTREAM, Matched, SubRef};
use crate::outlet::Outlet;
use crate::served::TableChange;
use crate::stream_requests::stream_of;
use crate::subscription::Subscription;
use nuthatch_protocol::subject;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Names of streams and how many more nodes serve each than before.
pub(super) type NameDeltas = Vec<(Arc<str>, i64)>;

/// The streams of one account at other nodes.
#[derive(Default)]
pub(super) struct ServedStreams {
    nodes: Vec<AtNode>,
}

struct AtNode {
    /// Stands for what that node takes.
    sub: SubRef,
    names: FxHashSet<Arc<str>>,
    /// It has told all of its streams. Until then a stream that nobody is known to serve may be one of its.
    is_complete: bool,
}

impl AtNode {
    fn new(outlet: &Arc<Outlet>, is_complete: bool) -> Self {
        let subject = ALL_OF_JETSTREAM;
        let sub = Subscription::of_leaf(outlet.clone(), subject, None, subject);
        Self { sub: SubRef(Arc::new(sub)), names: FxHashSet::default(), is_complete }
    }

    fn is_at(&self, outlet: &Arc<Outlet>) -> bool {
        Arc::ptr_eq(&self.sub.outlet, outlet)
    }
}

impl ServedStreams {
    /// How many nodes serve any, or may.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_complete || !node.names.is_empty()).count()
    }

    /// The names of all of them; once for each node that serves it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().flat_map(|node| node.names.iter().map(|name| &**name))
    }

    /// The node behind an outlet is connected, and is about to tell its streams.
    pub(super) fn join(&mut self, outlet: &Arc<Outlet>) {
        self.nodes.push(AtNode::new(outlet, false));
    }

    /// Takes in what the node behind an outlet has told. Gives what that changes.
    pub(super) fn change(&mut self, outlet: &Arc<Outlet>, change: TableChange) -> NameDeltas {
        let TableChange { is_first, come, gone, is_complete } = change;
        let at = self.nodes.iter().position(|node| node.is_at(outlet));
        let at = at.unwrap_or_else(|| {
            self.nodes.push(AtNode::new(outlet, true));
            self.nodes.len() - 1
        });
        let node = &mut self.nodes[at];
        node.is_complete |= is_complete;
        let former = if is_first { std::mem::take(&mut node.names) } else { FxHashSet::default() };
        let mut deltas: NameDeltas = former.into_iter().map(|name| (name, -1)).collect();
        let gone = gone.into_iter().filter_map(|name| node.names.take(&*name));
        deltas.extend(gone.map(|name| (name, -1)));
        for name in come {
            if node.names.insert(name.clone()) {
                deltas.push((name, 1));
            }
        }
        deltas
    }

    /// Forgets what the node behind an outlet serves. Gives what that changes.
    pub(super) fn leave(&mut self, outlet: &Arc<Outlet>) -> NameDeltas {
        let Some(at) = self.nodes.iter().position(|node| node.is_at(outlet)) else {
            return NameDeltas::new();
        };
        let node = self.nodes.swap_remove(at);
        node.sub.close();
        node.names.into_iter().map(|name| (name, -1)).collect()
    }

    /// Adds the nodes that serve the stream for which a subject is.
    pub(super) fn match_into(&self, subject: &[u8], matched: &mut Matched) {
        matched.extend_plain(self.serving(subject).map(|node| node.sub.clone()));
    }

    /// True if any node serves the stream for which a subject is.
    pub(super) fn any(&self, subject: &[u8]) -> bool {
        self.serving(subject).next().is_some()
    }

    /// The nodes that serve the stream for which a subject is; where that is none, those that may.
    fn serving(&self, subject: &[u8]) -> impl Iterator<Item = &AtNode> {
        let name = stream_of(subject);
        let serves = move |node: &&AtNode| name.is_some_and(|name| node.names.contains(name));
        let is_known = self.nodes.iter().any(|node| serves(&node));
        let may = move |node: &&AtNode| name.is_some() && !is_known && !node.is_complete;
        self.nodes.iter().filter(move |node| serves(node) || may(node))
    }
}

/// True if anything that a pattern selects may be for a stream of another node beside its own subjects.
pub(super) fn may_be_request(pattern: &[u8]) -> bool {
    let all: [&[u8]; 4] =
        [b"$JS.ACK.>", b"$JS.FC.>", b"$JS.API.CONSUMER.MSG.NEXT.*.*", b"$JS.API.DIRECT.GET.>"];
    all.iter().any(|request| subject::overlap(pattern, request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advertised::all_requests_of;

    const SUBJECTS: [&str; 17] = [
        "$JS.ACK.S.c.1.2.3.4.5",
        "$JS.ACK.S",
        "$JS.ACK.S.",
        "$JS.ACK.S..x",
        "$JS.ACK.T.c",
        "$JS.FC.S.c.1",
        "$JS.FC.S",
        "$JS.API.CONSUMER.MSG.NEXT.S.c",
        "$JS.API.CONSUMER.MSG.NEXT.S.c.d",
        "$JS.API.CONSUMER.MSG.NEXT.S",
        "$JS.API.DIRECT.GET.S",
        "$JS.API.DIRECT.GET.S.a.b",
        "$JS.API.DIRECT.GET.S.",
        "$JS.API.DIRECT.GET.S.a..b",
        "$JS.API.STREAM.INFO.S",
        "$JS.S",
        "S.c",
    ];

    /// The same as if each pattern was told.
    #[test]
    fn a_subject_is_for_the_stream_whose_patterns_it_matches() {
        for literal in SUBJECTS {
            for name in ["S", "T"] {
                let matches = |pattern: &[u8]| subject::matches(pattern, literal.as_bytes());
                let is_valid = subject::is_valid_subject(literal.as_bytes());
                let expected = is_valid && all_requests_of(name).any(|of| matches(&of));
                assert_eq!(
                    stream_of(literal.as_bytes()) == Some(name),
                    expected,
                    "{literal} {name}"
                );
            }
        }
    }

    #[test]
    fn patterns_of_other_subjects_are_clear() {
        for pattern in all_requests_of("S") {
            assert!(may_be_request(&pattern));
        }
        for (pattern, expected) in [
            (">", true),
            ("*.ACK.>", true),
            ("$JS.>", true),
            ("$KV.b.>", false),
            ("$JS.EVENT.ADVISORY.>", false),
            ("$JS.API.STREAM.*", false),
            ("_INBOX.a.*", false),
        ] {
            assert_eq!(may_be_request(pattern.as_bytes()), expected, "{pattern}");
        }
    }

    fn change(is_first: bool, come: &[&str], gone: &[&str]) -> TableChange {
        let come = come.iter().map(|name| Arc::from(*name)).collect();
        let gone = gone.iter().map(|name| (*name).to_owned()).collect();
        TableChange { is_first, come, gone, is_complete: true }
    }

    fn sorted(mut deltas: NameDeltas) -> Vec<(Arc<str>, i64)> {
        deltas.sort();
        deltas
    }

    #[test]
    fn streams_come_and_go_with_what_nodes_tell() {
        let (one, two) = (Outlet::nowhere(), Outlet::nowhere());
        let mut streams = ServedStreams::default();
        let at = |streams: &ServedStreams| {
            let mut matched = Matched::default();
            streams.match_into(b"$JS.ACK.S.c", &mut matched);
            assert_eq!(streams.any(b"$JS.ACK.S.c"), !matched.is_empty());
            matched.plain().iter().map(|sub| Arc::ptr_eq(&sub.outlet, &one)).collect::<Vec<_>>()
        };
        let delta = |name: &str, delta: i64| (Arc::from(name), delta);
        assert_eq!(
            sorted(streams.change(&one, change(true, &["S", "T"], &[]))),
            [delta("S", 1), delta("T", 1)]
        );
        assert_eq!(streams.change(&one, change(false, &["S"], &[])), []);
        assert_eq!(at(&streams), [true]);
        streams.change(&two, change(false, &["S"], &["X"]));
        assert_eq!(at(&streams), [true, false], "a stream that moves is at both for a moment");
        assert_eq!(streams.change(&one, change(false, &[], &["S"])), [delta("S", -1)]);
        assert_eq!(at(&streams), [false]);
        assert_eq!(
            sorted(streams.change(&one, change(true, &["S"], &[]))),
            [delta("S", 1), delta("T", -1)]
        );
        let sub = streams.nodes[0].sub.clone();
        assert_eq!(streams.leave(&one), [delta("S", -1)]);
        assert!(sub.is_closed() && streams.nodes() == 1 && at(&streams) == [false]);
        assert_eq!(streams.names().collect::<Vec<_>>(), ["S"]);
    }

    /// What is for a stream that nobody is known to serve goes to nodes that have not told all of theirs, and to no others.
    #[test]
    fn a_node_that_has_not_told_all_may_serve_any() {
        let (one, two) = (Outlet::nowhere(), Outlet::nowhere());
        let mut streams = ServedStreams::default();
        streams.join(&one);
        streams.change(&two, change(true, &["T"], &[]));
        let any = |streams: &ServedStreams, subject: &str| streams.any(subject.as_bytes());
        assert!(any(&streams, "$JS.ACK.S.c") && !any(&streams, "$JS.API.STREAM.INFO.S"));
        let mut matched = Matched::default();
        streams.match_into(b"$JS.ACK.T.c", &mut matched);
        assert_eq!(matched.plain().len(), 1, "it is known where that is");
        streams.change(&one, TableChange { is_complete: false, ..change(true, &["U"], &[]) });
        assert!(any(&streams, "$JS.ACK.S.c"));
        streams.change(&one, change(false, &[], &[]));
        assert!(!any(&streams, "$JS.ACK.S.c") && any(&streams, "$JS.ACK.U.c"));
        streams.change(&one, change(false, &[], &["U"]));
        assert_eq!(streams.nodes(), 1, "it serves none");
    }
}
