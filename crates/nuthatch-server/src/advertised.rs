//! What an account takes here without a subscription, as leaf nodes and other nodes of the cluster are told of it: subjects of
//! streams, the API of its JetStream, sources of subject mappings.
//!
//! A change costs as much as there is to it, however many streams there are: each account remembers what it told last
//! ([`Told`]), asks JetStream for what has changed since, and tells how the two differ. Only where logs come or go, or too much
//! has changed since the last look, all of it is gathered again.

use crate::log_id::LogId;
use crate::served::{NodeState, OwnStream};
use nuthatch_protocol::js::StreamConfig;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

type Subjects = Vec<Box<[u8]>>;

/// Subjects with how many more there are of each than before.
pub(crate) type Deltas = BTreeMap<Box<[u8]>, i64>;

/// A stream of this server.
#[derive(Clone, Debug)]
pub struct AdvertisedStream {
    /// Its configuration.
    pub config: Arc<StreamConfig>,
    /// JetStream takes its subjects here.
    pub is_taken: bool,
    /// Name of the log that it lives in, if other nodes are told of the stream.
    pub log: Option<Arc<str>>,
}

impl AdvertisedStream {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
            && self.is_taken == other.is_taken
            && self.log == other.log
    }

    /// As other nodes are told of it, if they are.
    fn own(&self) -> Option<OwnStream> {
        Some(OwnStream { config: self.config.clone(), log: self.log.clone()? })
    }
}

/// When JetStream was asked: what it takes then is this until one of these changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AskedAt {
    /// Of its table of streams.
    pub version: u64,
    /// The logs that it serves as a whole, and their names.
    pub logs: Vec<(LogId, String)>,
    /// Logs that it serves, but others are told of no more.
    pub withdrawn: Vec<LogId>,
    /// The account has JetStream.
    pub is_on: bool,
}

impl AskedAt {
    /// True if what JetStream takes of streams that have not changed is the same at both times.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let same = |this: &Self| (this.logs.clone(), this.withdrawn.clone(), this.is_on);
        same(self) == same(other)
    }
}

/// Streams of an account.
#[derive(Clone, Debug)]
pub enum Streams {
    /// All of them.
    All(Vec<AdvertisedStream>),
    /// Those that have changed, by name; `None`: it is there no more. A name may come more than once.
    Changed(Vec<(String, Option<AdvertisedStream>)>),
}

/// What JetStream takes of an account.
#[derive(Clone, Debug)]
pub struct Taken {
    /// When that was so.
    pub at: AskedAt,
    /// What this node says of itself.
    pub state: NodeState,
    /// Subjects that belong to no stream.
    pub subjects: Vec<Box<[u8]>>,
    /// Its streams.
    pub streams: Streams,
}

impl Default for Taken {
    fn default() -> Self {
        let (at, state) = (AskedAt::default(), NodeState::default());
        Self { at, state, subjects: Vec::new(), streams: Streams::All(Vec::new()) }
    }
}

/// Subjects that JetStream takes for a stream, as patterns: its own, acknowledgements, and flow control.
pub fn subjects_of(config: &StreamConfig) -> impl Iterator<Item = Box<[u8]>> {
    own_subjects_of(config).chain(answers_of(&config.name))
}

fn own_subjects_of(config: &StreamConfig) -> impl Iterator<Item = Box<[u8]>> {
    config.subjects.iter().map(|subject| subject.as_bytes().into())
}

/// Subjects of what consumers of a stream answer: acknowledgements, and flow control.
fn answers_of(name: &str) -> [Box<[u8]>; 2] {
    [format!("$JS.ACK.{name}.>"), format!("$JS.FC.{name}.>")].map(|text| text.into_bytes().into())
}

/// Subjects of pulls and direct gets of a stream: at other nodes they go to its node without a look at what they ask for.
/// Other calls are handed on by whoever takes them.
fn requests_of(name: &str) -> [Box<[u8]>; 3] {
    let all = [
        format!("$JS.API.CONSUMER.MSG.NEXT.{name}.*"),
        format!("$JS.API.DIRECT.GET.{name}"),
        format!("$JS.API.DIRECT.GET.{name}.>"),
    ];
    all.map(|text| text.into_bytes().into())
}

/// All that is for a stream of another node beside its own subjects.
pub(crate) fn all_requests_of(name: &str) -> impl Iterator<Item = Box<[u8]>> + use<> {
    answers_of(name).into_iter().chain(requests_of(name))
}

/// How what is told differs from what was told last.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// For other servers.
    pub(crate) others: Deltas,
    /// For other nodes of the cluster.
    pub(crate) nodes: Deltas,
    /// Streams that other nodes are told of, new or changed.
    pub(crate) come: Vec<OwnStream>,
    /// Names of those that they are told of no more.
    pub(crate) gone: Vec<String>,
}

impl Difference {
    /// Other nodes know by the table of streams what is for a stream beside its own subjects, if they are told of it.
    fn count(&mut self, stream: &AdvertisedStream, delta: i64) {
        if !stream.is_taken {
            return;
        }
        for subject in own_subjects_of(&stream.config) {
            *self.nodes.entry(subject).or_default() += delta;
        }
        if stream.log.is_none() {
            for subject in answers_of(&stream.config.name) {
                *self.nodes.entry(subject).or_default() += delta;
            }
        }
    }

    /// What other servers are told, where there is any.
    fn count_for_servers(&mut self, stream: &AdvertisedStream, delta: i64) {
        if stream.is_taken {
            for subject in subjects_of(&stream.config) {
                *self.others.entry(subject).or_default() += delta;
            }
        }
    }

    /// What nodes do not know by the table that speak the first protocol of links.
    fn count_for_older(&mut self, stream: &AdvertisedStream, delta: i64) {
        if stream.log.is_none() {
            return;
        }
        let name = &stream.config.name;
        let answers = answers_of(name).into_iter().filter(|_| stream.is_taken);
        for subject in answers.chain(requests_of(name)) {
            *self.nodes.entry(subject).or_default() += delta;
        }
    }
}

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    at: Option<AskedAt>,
    streams: FxHashMap<Box<str>, AdvertisedStream>,
    /// What belongs to no stream of the account: for other servers, and for other nodes.
    others: Subjects,
    nodes: Subjects,
    /// How many nodes are connected that speak the first protocol of links, and whether all nodes know what those need.
    older: usize,
    is_told_older: bool,
    /// How many other servers are connected that are none of the cluster, and whether what they need is told.
    servers: usize,
    is_told_servers: bool,
}

impl Told {
    /// A node is connected that speaks the first protocol of links: from the next look on all nodes are told what it needs.
    pub(crate) fn older_came(&mut self) {
        self.older += 1;
    }

    /// Such a node is connected no more; with the last one what it needed is taken back at the next look.
    ///
    /// # Panics
    /// No such node is connected.
    pub(crate) fn older_went(&mut self) {
        self.older = self.older.checked_sub(1).expect("it came");
    }

    /// Another server is connected that is no node of the cluster: what such ones need is told from the next look on.
    pub(crate) fn server_came(&mut self) {
        self.servers += 1;
    }

    /// Such a server is connected no more; with the last one what they needed is taken back at the next look.
    ///
    /// # Panics
    /// No such server is connected.
    pub(crate) fn server_went(&mut self) {
        self.servers = self.servers.checked_sub(1).expect("it came");
    }

    /// When that was.
    pub(crate) fn at(&self) -> Option<&AskedAt> {
        self.at.as_ref()
    }

    /// All streams that other nodes are told of.
    pub(crate) fn own_streams(&self) -> Vec<OwnStream> {
        self.streams.values().filter_map(AdvertisedStream::own).collect()
    }

    /// Takes in what is taken now, and what belongs to no stream, for other servers and for other nodes.
    pub(crate) fn follow(
        &mut self,
        at: AskedAt,
        streams: Streams,
        (others, nodes): (Subjects, Subjects),
    ) -> Difference {
        let mut difference = Difference::default();
        let has_older = self.older > 0;
        if has_older != std::mem::replace(&mut self.is_told_older, has_older) {
            let delta = if has_older { 1 } else { -1 };
            self.streams.values().for_each(|stream| difference.count_for_older(stream, delta));
        }
        self.follow_servers(others, &mut difference);
        replace(&mut self.nodes, nodes, &mut difference.nodes);
        match streams {
            Streams::All(all) => {
                let mut before = std::mem::take(&mut self.streams);
                for stream in all {
                    let name: Box<str> = stream.config.name.as_str().into();
                    let old = before.remove(&name);
                    self.change(name, old, Some(stream), &mut difference);
                }
                for (name, old) in before {
                    self.change(name, Some(old), None, &mut difference);
                }
            }
            Streams::Changed(changed) => {
                for (name, stream) in changed {
                    let old = self.streams.remove(&*name);
                    self.change(name.into(), old, stream, &mut difference);
                }
            }
        }
        self.at = Some(at);
        difference.others.retain(|_, delta| *delta != 0);
        difference.nodes.retain(|_, delta| *delta != 0);
        difference
    }

    /// Whether there are other servers by now, and what belongs to no stream for them.
    fn follow_servers(&mut self, others: Subjects, difference: &mut Difference) {
        let has_servers = self.servers > 0;
        if has_servers != std::mem::replace(&mut self.is_told_servers, has_servers) {
            let delta = if has_servers { 1 } else { -1 };
            self.streams.values().for_each(|stream| difference.count_for_servers(stream, delta));
            for subject in &self.others {
                *difference.others.entry(subject.clone()).or_default() += delta;
            }
        }
        match has_servers {
            true => replace(&mut self.others, others, &mut difference.others),
            false => self.others = others,
        }
    }

    fn change(
        &mut self,
        name: Box<str>,
        old: Option<AdvertisedStream>,
        new: Option<AdvertisedStream>,
        difference: &mut Difference,
    ) {
        let is_same = old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| old.is_same(new));
        if !is_same {
            let of_old = old.iter().map(|old| (old, -1));
            for (stream, delta) in of_old.chain(new.iter().map(|new| (new, 1))) {
                difference.count(stream, delta);
                if self.is_told_servers {
                    difference.count_for_servers(stream, delta);
                }
                if self.is_told_older {
                    difference.count_for_older(stream, delta);
                }
            }
            match new.as_ref().and_then(AdvertisedStream::own) {
                Some(own) => difference.come.push(own),
                None if old.is_some_and(|old| old.log.is_some()) => {
                    difference.gone.push(name.to_string());
                }
                None => {}
            }
        }
        if let Some(new) = new {
            self.streams.insert(name, new);
        }
    }
}

/// Replaces a list, and counts how it differs from the one before.
fn replace(list: &mut Subjects, new: Subjects, deltas: &mut Deltas) {
    if *list == new {
        return;
    }
    for subject in &new {
        *deltas.entry(subject.clone()).or_default() += 1;
    }
    for subject in std::mem::replace(list, new) {
        *deltas.entry(subject).or_default() -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str, subject: &str) -> AdvertisedStream {
        let (name, subjects) = (name.to_owned(), vec![subject.to_owned()]);
        let config = StreamConfig { name, subjects, ..StreamConfig::default() };
        AdvertisedStream { config: Arc::new(config), is_taken: true, log: Some("default".into()) }
    }

    fn at(version: u64) -> AskedAt {
        AskedAt { version, ..AskedAt::default() }
    }

    fn texts(deltas: &Deltas) -> Vec<String> {
        let mut texts = Vec::new();
        for (subject, delta) in deltas {
            texts.push(format!("{delta:+} {}", String::from_utf8_lossy(subject)));
        }
        texts
    }

    fn names(streams: &[OwnStream]) -> Vec<&str> {
        streams.iter().map(|stream| &*stream.config.name).collect()
    }

    #[test]
    fn what_is_told_is_what_has_changed() {
        let (a, b) = (stream("A", "a.>"), stream("B", "b"));
        let mut told = Told::default();
        told.server_came();
        let api: Vec<Box<[u8]>> = vec![b"$JS.hub.API.>".as_slice().into()];
        let all = Streams::All(vec![a.clone(), b.clone()]);
        let first = told.follow(at(1), all, (api.clone(), api.clone()));
        assert_eq!((first.others.len(), first.nodes.len()), (7, 3));
        assert_eq!((names(&first.come), first.gone.len()), (vec!["A", "B"], 0));
        assert_eq!(told.at(), Some(&at(1)));
        // What is the same is told no more, whichever way it is looked at.
        let again = told.follow(
            at(2),
            Streams::All(vec![b.clone(), a.clone()]),
            (api.clone(), api.clone()),
        );
        let none = told.follow(
            at(3),
            Streams::Changed(vec![("A".to_owned(), Some(a.clone())), ("X".to_owned(), None)]),
            (api.clone(), api.clone()),
        );
        for difference in [again, none] {
            assert_eq!((difference.others.len(), difference.nodes.len()), (0, 0));
            assert_eq!((difference.come.len(), difference.gone.len()), (0, 0));
        }
        let new = stream("A", "a.new");
        let changed = Streams::Changed(vec![("A".to_owned(), Some(new)), ("B".to_owned(), None)]);
        let difference = told.follow(at(4), changed, (vec![], api));
        let gone = ["$JS.ACK.B.>", "$JS.FC.B.>"].map(|subject| format!("-1 {subject}"));
        let expected =
            [&gone[..], &["-1 $JS.hub.API.>", "-1 a.>", "+1 a.new", "-1 b"].map(str::to_owned)];
        assert_eq!(texts(&difference.others), expected.concat());
        assert_eq!((names(&difference.come), difference.gone), (vec!["A"], vec!["B".to_owned()]));
        assert_eq!(names(&told.own_streams()), ["A"]);
        assert_eq!(texts(&difference.nodes), ["-1 a.>", "+1 a.new", "-1 b"], "the API stays");
        // One that does not know the rest by the table is told of all that is there, once, and of what changes.
        told.older_came();
        let api: Subjects = vec![b"$JS.hub.API.>".as_slice().into()];
        let follow = |told: &mut Told, version: u64, changed: Vec<(String, Option<_>)>| {
            let changed = Streams::Changed(changed);
            texts(&told.follow(at(version), changed, (vec![], api.clone())).nodes)
        };
        let rest = |delta: &str| -> Vec<String> {
            let all =
                all_requests_of("A").map(|subject| String::from_utf8_lossy(&subject).into_owned());
            let mut all: Vec<String> = all.collect();
            all.sort();
            all.into_iter().map(|subject| format!("{delta} {subject}")).collect()
        };
        assert_eq!(follow(&mut told, 5, vec![]), rest("+1"));
        assert_eq!(follow(&mut told, 6, vec![]), [""; 0]);
        told.older_went();
        assert_eq!(follow(&mut told, 6, vec![]), rest("-1"), "nobody needs it any more");
        told.older_came();
        assert_eq!(follow(&mut told, 6, vec![]), rest("+1"));
        let gone = [rest("-1"), vec!["-1 a.new".to_owned()]].concat();
        assert_eq!(follow(&mut told, 7, vec![("A".to_owned(), None)]), gone);
    }

    /// What other servers need is told when there is one, all that is there, and taken back when there is none.
    #[test]
    fn other_servers_are_told_what_is_there_when_they_come() {
        let mut told = Told::default();
        let api: Subjects = vec![b"$JS.hub.API.>".as_slice().into()];
        let follow = |told: &mut Told, version: u64, changed: Vec<(String, Option<_>)>| {
            let changed = Streams::Changed(changed);
            texts(&told.follow(at(version), changed, (api.clone(), vec![])).others)
        };
        let new = vec![("A".to_owned(), Some(stream("A", "a")))];
        assert_eq!(follow(&mut told, 1, new), [""; 0], "nobody hears it");
        told.server_came();
        let all = |delta: &str| {
            let all = ["$JS.ACK.A.>", "$JS.FC.A.>", "$JS.hub.API.>", "a"];
            all.map(|subject| format!("{delta} {subject}"))
        };
        assert_eq!(follow(&mut told, 1, vec![]), all("+1"));
        told.server_came();
        told.server_went();
        assert_eq!(follow(&mut told, 1, vec![]), [""; 0], "one is there still");
        told.server_went();
        assert_eq!(follow(&mut told, 1, vec![]), all("-1"));
        assert_eq!(follow(&mut told, 2, vec![("A".to_owned(), None)]), [""; 0]);
    }

    /// A log that is not there as a whole, or is withdrawn, and an account without JetStream.
    #[test]
    fn a_stream_is_taken_here_and_told_of_separately() {
        let mut told = Told::default();
        told.server_came();
        let mut follow = |version: u64, is_taken: bool, is_told: bool| {
            let log = is_told.then(|| "default".into());
            let one = AdvertisedStream { is_taken, log, ..stream("A", "a") };
            let changed = Streams::Changed(vec![("A".to_owned(), Some(one))]);
            let found = told.follow(at(version), changed, (vec![], vec![]));
            (found.others.len(), found.nodes.len(), found.come.len(), found.gone.len())
        };
        assert_eq!(follow(1, true, false), (3, 3, 0, 0));
        assert_eq!(follow(2, true, true), (0, 2, 1, 0), "what the table tells is told no more");
        assert_eq!(follow(3, false, true), (3, 1, 1, 0));
        assert_eq!(follow(4, false, false), (0, 0, 0, 1));
    }
}
