//! The server-wide registry of streams: names, subjects, identities.
//!
//! One place serialises creation, update and deletion over all logs, so that names are unique and
//! subjects never overlap, whichever log a stream lives in. Connections ask it for routes only when
//! their own cache misses or [`Registry::version`] has moved on.
//!
//! A stream's subjects stand in the tree under a key that stays the same whatever else of the stream
//! changes. They can be put there in parts before the stream is, and taken out in parts after it is
//! gone: a subject whose key belongs to no stream has no route.

use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StorageType, StreamConfig, Time};
use nuthatch_protocol::subject;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome, SubjectTree};
use nuthatch_server::change_log::ChangeLog;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_server::logs::QUORUM_MEMORY_LOG;
use nuthatch_server::route::is_region;
use nuthatch_streams::AccountId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Moves between logs that are remembered, for what was sent by routes from before them.
const MOVED_MAX: usize = 64 * 1024;

/// A change of more subjects counts as one of all subjects of the account.
const NOTED_SUBJECTS_MAX: usize = 64;

/// Patterns of a stream that are looked at for the one that selects a subject.
const PATTERNS_LOOKED_AT: usize = 64;
/// Steps of a search that a publisher waits for; beyond them a route is known for its subject only.
const PUBLISHER_STEPS_MAX: usize = 1024;

/// Name of the log that streams of storage `file` live in unless they choose another.
pub use nuthatch_server::logs::DEFAULT_LOG;
pub(super) use nuthatch_server::logs::{is_quorum_log, quorum_log_number};

/// Name of the memory log.
pub const MEMORY_LOG: &str = "memory";

/// True if the log of this name is in memory: this server's own, or the cluster's.
pub(super) fn is_memory_log(name: &str) -> bool {
    name == MEMORY_LOG || name == QUORUM_MEMORY_LOG
}

/// What a node of a cluster calls the log that it had as a server that was alone, since the default log of a cluster is
/// another one.
pub const LOCAL_LOG: &str = "local";

/// A stream as the registry knows it.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Identity.
    pub id: StreamId,
    /// The log it lives in.
    pub engine: LogId,
    /// Whose it is.
    pub account: AccountId,
    /// Configuration in force.
    pub config: Arc<StreamConfig>,
    /// When it was created.
    pub created: Time,
}

impl Entry {
    /// Location of the stream.
    #[must_use]
    pub const fn route(&self) -> StreamRoute {
        StreamRoute { log: self.engine, stream: self.id }
    }
}

/// The name under which a stream's subjects stand in the tree of its account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubjectsKey(u64);

/// Streams of one account.
#[derive(Default)]
struct AccountStreams {
    by_name: BTreeMap<String, Arc<Entry>>,
    by_route: FxHashMap<StreamRoute, (SubjectsKey, Arc<Entry>)>,
    by_key: FxHashMap<SubjectsKey, Arc<Entry>>,
    subjects: SubjectTree<SubjectsKey>,
    /// Mirrors that serve direct gets for their origin (`mirror_direct`), by its name.
    direct_mirrors: FxHashMap<String, BTreeSet<StreamRoute>>,
    /// Bytes that streams have reserved by `max_bytes`: in files, in memory. Wide enough for any
    /// number of streams that reserve all there can be.
    reserved_bytes: [u128; 2],
    /// Mirrors and sources of all streams.
    sources: usize,
    /// How many streams there are in each log. Asked for with each new stream, so not counted then.
    in_logs: FxHashMap<LogId, usize>,
}

impl AccountStreams {
    /// The sum that a stream's reservation belongs to, and the reservation.
    fn reservation(&mut self, config: &StreamConfig) -> (&mut u128, u128) {
        let bytes = u128::try_from(config.max_bytes).unwrap_or(0);
        (&mut self.reserved_bytes[storage_index(config.storage)], bytes)
    }
}

const fn storage_index(storage: StorageType) -> usize {
    match storage {
        StorageType::File => 0,
        StorageType::Memory => 1,
    }
}

/// Origins that a stream copies.
pub fn source_count(config: &StreamConfig) -> usize {
    usize::from(config.mirror.is_some()) + config.sources.len()
}

/// The origin whose direct gets a stream serves.
fn serves_for(config: &StreamConfig) -> Option<&str> {
    let mirror = config.mirror.as_ref().filter(|_| config.mirror_direct)?;
    Some(&mirror.name)
}

/// True if two states of a stream get the same messages to the same place.
fn has_same_routes(old: &Entry, new: &Entry) -> bool {
    old.route() == new.route() && old.config.subjects == new.config.subjects
}

/// All streams of the server. Interior state only; callers hold the lock.
#[derive(Default)]
pub struct Registry {
    accounts: FxHashMap<AccountId, AccountStreams>,
    /// Streams with a mirror or sources.
    copying: FxHashMap<StreamRoute, Arc<Entry>>,
    /// Those of them that came, went or changed since somebody has asked for these.
    changed_copies: FxHashSet<StreamRoute>,
    /// New locations of streams that have changed their log, for events still sent to the old one.
    moved: FxHashMap<StreamRoute, StreamRoute>,
    /// Keys of `moved`, oldest first.
    moved_order: VecDeque<StreamRoute>,
    next_id: u32,
    next_key: u64,
    version: u64,
    /// What has changed lately of the subjects of which account.
    changes: ChangeLog<AccountId>,
    /// Names of streams that came, changed or went lately.
    names: ChangeLog<AccountId>,
}

impl Registry {
    /// Changes with every change of names or subjects.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Takes in a stream with all its subjects, in one go: for a start.
    pub fn insert(&mut self, entry: Entry) {
        let account = entry.account;
        let known = self.get(account, &entry.config.name).cloned();
        let key = self.key_for(account, &entry.config.name);
        if let Some(known) = known {
            self.drop_subjects(account, key, &known.config.subjects);
        }
        self.add_subjects(account, key, &entry.config.subjects);
        self.put(key, entry);
    }

    /// The key of a stream's subjects: that of the stream of this name, or a fresh one.
    pub fn key_for(&mut self, account: AccountId, name: &str) -> SubjectsKey {
        self.key_of(account, name).unwrap_or_else(|| {
            self.next_key += 1;
            SubjectsKey(self.next_key)
        })
    }

    /// The key of a stream's subjects.
    #[must_use]
    pub fn key_of(&self, account: AccountId, name: &str) -> Option<SubjectsKey> {
        let streams = self.accounts.get(&account)?;
        let entry = streams.by_name.get(name)?;
        streams.by_route.get(&entry.route()).map(|(key, _)| *key)
    }

    /// Puts subjects into the tree; they have a route as soon as a stream has the key.
    pub fn add_subjects<'a>(
        &mut self,
        account: AccountId,
        key: SubjectsKey,
        subjects: impl IntoIterator<Item = &'a String>,
    ) {
        let tree = &mut self.accounts.entry(account).or_default().subjects;
        subjects.into_iter().for_each(|own| tree.insert(own.as_bytes(), None, key));
    }

    /// Takes subjects out of the tree.
    pub fn drop_subjects<'a>(
        &mut self,
        account: AccountId,
        key: SubjectsKey,
        subjects: impl IntoIterator<Item = &'a String>,
    ) {
        let Some(streams) = self.accounts.get_mut(&account) else { return };
        subjects.into_iter().for_each(|own| {
            streams.subjects.remove(own.as_bytes(), None, &key);
        });
    }

    /// Routes of these subjects of an account have changed.
    pub fn note_change<'a>(
        &mut self,
        account: AccountId,
        subjects: impl ExactSizeIterator<Item = &'a String>,
    ) {
        self.version += 1;
        if subjects.len() > NOTED_SUBJECTS_MAX {
            self.changes.note(self.version, account, None);
            return;
        }
        for subject in subjects {
            self.changes.note(self.version, account, Some(subject.as_bytes()));
        }
    }

    /// Appends the subjects of an account whose routes have changed since a version. `false`: any
    /// may have.
    pub fn changes_since(
        &self,
        version: u64,
        account: AccountId,
        changed: &mut Vec<Box<[u8]>>,
    ) -> bool {
        self.changes.since(version, account, changed)
    }

    /// Names of streams of an account that came, changed or went since a version; some may come more than once. `None`: any
    /// may have.
    pub fn names_since(&self, version: u64, account: AccountId) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let text = |name: Box<[u8]>| String::from_utf8(name.into_vec()).expect("it was a name");
        self.names
            .since(version, account, &mut names)
            .then(|| names.into_iter().map(text).collect())
    }

    /// Takes in a new or changed stream, whose subjects have this key.
    pub fn put(&mut self, key: SubjectsKey, entry: Entry) {
        let old = self.remove(entry.account, &entry.config.name).map(|(_, old)| old);
        if let Some(old) = old.as_ref().filter(|old| !has_same_routes(old, &entry)) {
            self.note_change(old.account, old.config.subjects.iter());
        }
        if old.is_none_or(|old| !has_same_routes(&old, &entry)) {
            self.note_change(entry.account, entry.config.subjects.iter());
        }
        let route = entry.route();
        self.next_id = self.next_id.max(entry.id.0 + 1);
        let account = self.accounts.entry(entry.account).or_default();
        let (sum, bytes) = account.reservation(&entry.config);
        *sum += bytes;
        if let Some(origin) = serves_for(&entry.config) {
            account.direct_mirrors.entry(origin.to_owned()).or_default().insert(route);
        }
        let entry = Arc::new(entry);
        account.sources += source_count(&entry.config);
        *account.in_logs.entry(entry.engine).or_default() += 1;
        if source_count(&entry.config) > 0 {
            self.copying.insert(route, entry.clone());
            self.changed_copies.insert(route);
        }
        account.by_route.insert(route, (key, entry.clone()));
        account.by_key.insert(key, entry.clone());
        account.by_name.insert(entry.config.name.clone(), entry.clone());
        // Names may have changed without subjects.
        self.version += 1;
        self.names.note(self.version, entry.account, Some(entry.config.name.as_bytes()));
    }

    /// Forgets a stream. Its subjects have no route any more, but stand in the tree until they are
    /// [dropped](Registry::drop_subjects).
    pub fn take(&mut self, account: AccountId, name: &str) -> Option<(SubjectsKey, Arc<Entry>)> {
        let (key, entry) = self.remove(account, name)?;
        self.note_change(account, entry.config.subjects.iter());
        self.names.note(self.version, account, Some(name.as_bytes()));
        Some((key, entry))
    }

    fn remove(&mut self, account: AccountId, name: &str) -> Option<(SubjectsKey, Arc<Entry>)> {
        let streams = self.accounts.get_mut(&account)?;
        let entry = streams.by_name.remove(name)?;
        let route = entry.route();
        let (key, _) = streams.by_route.remove(&route).expect("a stream with a name has a route");
        streams.by_key.remove(&key);
        let (sum, bytes) = streams.reservation(&entry.config);
        *sum -= bytes;
        if let Some(origin) = serves_for(&entry.config)
            && let Some(mirrors) = streams.direct_mirrors.get_mut(origin)
        {
            mirrors.remove(&route);
            if mirrors.is_empty() {
                streams.direct_mirrors.remove(origin);
            }
        }
        streams.sources -= source_count(&entry.config);
        let in_log = streams.in_logs.get_mut(&entry.engine).expect("it was counted");
        *in_log -= 1;
        if *in_log == 0 {
            streams.in_logs.remove(&entry.engine);
        }
        if self.copying.remove(&route).is_some() {
            self.changed_copies.insert(route);
        }
        Some((key, entry))
    }

    /// The streams of a log.
    pub fn in_log(&self, log: LogId) -> impl Iterator<Item = &Arc<Entry>> {
        let all = self.accounts.values().flat_map(|streams| streams.by_name.values());
        all.filter(move |entry| entry.engine == log)
    }

    /// Forgets all streams of a log that is detached; returns them with the keys of their subjects.
    pub fn take_log(&mut self, log: LogId) -> Vec<(SubjectsKey, Arc<Entry>)> {
        let of_log = |streams: &AccountStreams| {
            let entries = streams.by_name.values().filter(|entry| entry.engine == log);
            entries.map(|entry| (entry.account, entry.config.name.clone())).collect::<Vec<_>>()
        };
        let names: Vec<_> = self.accounts.values().flat_map(of_log).collect();
        names.iter().filter_map(|(account, name)| self.take(*account, name)).collect()
    }

    /// A mirror that serves direct gets for a stream of this name, which may be elsewhere or gone.
    #[must_use]
    pub fn direct_mirror(&self, account: AccountId, origin: &str) -> Option<StreamRoute> {
        self.accounts.get(&account)?.direct_mirrors.get(origin)?.first().copied()
    }

    /// A stream lives in another log from now on. Its subjects are the same.
    pub fn rehome(&mut self, old: &Entry, new: Entry) {
        let from = old.route();
        let to = new.route();
        let key = self.key_of(old.account, &old.config.name);
        self.put(key.expect("who moves a stream keeps it from being deleted"), new);
        while self.moved_order.len() >= MOVED_MAX {
            if let Some(oldest) = self.moved_order.pop_front() {
                self.moved.remove(&oldest);
            }
        }
        self.moved.insert(from, to);
        self.moved_order.push_back(from);
    }

    /// New location of a stream that was at `route`; `None` if it did not move away from there.
    #[must_use]
    pub fn moved(&self, route: StreamRoute) -> Option<StreamRoute> {
        let mut at = *self.moved.get(&route)?;
        // Identities are never used twice, so this ends.
        while let Some(next) = self.moved.get(&at) {
            at = *next;
        }
        Some(at)
    }

    /// True if any stream has changed its log.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// A stream by where it lives.
    #[must_use]
    pub fn by_route(&self, route: StreamRoute) -> Option<&Arc<Entry>> {
        let mut found = self.accounts.values().filter_map(|streams| streams.by_route.get(&route));
        found.next().map(|(_, entry)| entry)
    }

    /// Streams with a mirror or sources.
    pub fn copying(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.copying.values()
    }

    /// A stream with a mirror or sources.
    #[must_use]
    pub fn copying_at(&self, route: StreamRoute) -> Option<&Arc<Entry>> {
        self.copying.get(&route)
    }

    /// True if [`Registry::take_changed_copies`] tells of any.
    #[must_use]
    pub fn has_changed_copies(&self) -> bool {
        !self.changed_copies.is_empty()
    }

    /// Where streams with a mirror or sources came, went or changed since the last call. At most as
    /// many as there are streams, and those that went meanwhile.
    pub fn take_changed_copies(&mut self) -> FxHashSet<StreamRoute> {
        std::mem::take(&mut self.changed_copies)
    }

    /// Mirrors and sources of all streams of an account.
    #[must_use]
    pub fn source_count(&self, account: AccountId) -> usize {
        self.accounts.get(&account).map_or(0, |streams| streams.sources)
    }

    /// Streams of an account, by name.
    pub fn of_account(&self, account: AccountId) -> impl Iterator<Item = &Arc<Entry>> {
        self.accounts.get(&account).into_iter().flat_map(|streams| streams.by_name.values())
    }

    /// Those whose names come behind `after`, by name.
    pub fn of_account_after(
        &self,
        account: AccountId,
        after: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Entry>> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let streams = self.accounts.get(&account).into_iter();
        let entries = streams
            .flat_map(move |streams| streams.by_name.range::<str, _>((behind, Bound::Unbounded)));
        entries.map(|(_, entry)| entry)
    }

    /// A stream by name.
    #[must_use]
    pub fn get(&self, account: AccountId, name: &str) -> Option<&Arc<Entry>> {
        self.accounts.get(&account)?.by_name.get(name)
    }

    /// The stream that owns a literal subject. Subjects never overlap, so there is at most one.
    #[must_use]
    pub fn route(&self, account: AccountId, literal: &[u8]) -> Option<StreamRoute> {
        let streams = self.accounts.get(&account)?;
        let entry = streams.by_key.get(streams.subjects.first_match(literal)?)?;
        Some(entry.route())
    }

    /// The pattern by which a stream owns a literal subject, if that is literal tokens and then one
    /// wildcard, and no other stream has any of its subjects. `None` for streams with very many
    /// patterns.
    #[must_use]
    pub fn pattern_of(
        &self,
        account: AccountId,
        route: StreamRoute,
        literal: &[u8],
    ) -> Option<&str> {
        let streams = self.accounts.get(&account)?;
        let (key, entry) = streams.by_route.get(&route)?;
        let mut patterns = entry.config.subjects.iter().take(PATTERNS_LOOKED_AT);
        let pattern = patterns.find(|pattern| subject::matches(pattern.as_bytes(), literal))?;
        is_region(pattern.as_bytes()).then_some(())?;
        let is_other = |other: &SubjectsKey| other != key;
        let others = &streams.subjects;
        let taken = others.any_overlapping(pattern.as_bytes(), PUBLISHER_STEPS_MAX, is_other);
        (taken == Some(false)).then_some(pattern)
    }

    /// Looks for another stream of the account than that of `except` with subjects that the search is
    /// for, in at most so many `steps`.
    pub fn overlaps(
        &self,
        account: AccountId,
        search: &mut OverlapSearch<'_>,
        steps: &mut usize,
        except: Option<SubjectsKey>,
    ) -> SearchOutcome {
        let Some(streams) = self.accounts.get(&account) else { return SearchOutcome::Nothing };
        search.search(&streams.subjects, steps, |_, key| Some(*key) != except)
    }

    /// A fresh identity, never used before on this server.
    pub fn fresh_id(&mut self) -> StreamId {
        self.next_id = self.next_id.max(1);
        let id = StreamId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Makes sure that identities below `next` are never handed out.
    pub fn reserve_ids(&mut self, next: StreamId) {
        self.next_id = self.next_id.max(next.0);
    }

    /// How many streams an account has.
    #[must_use]
    pub fn count(&self, account: AccountId) -> usize {
        self.accounts.get(&account).map_or(0, |s| s.by_name.len())
    }

    /// How many streams of an account are in a log.
    #[must_use]
    pub fn count_in(&self, account: AccountId, log: LogId) -> usize {
        let in_log = self.accounts.get(&account).and_then(|streams| streams.in_logs.get(&log));
        in_log.copied().unwrap_or_default()
    }

    /// Accounts that have streams.
    pub fn accounts(&self) -> impl Iterator<Item = AccountId> + '_ {
        self.accounts.iter().filter(|(_, s)| !s.by_name.is_empty()).map(|(id, _)| *id)
    }

    /// Bytes that streams of a storage type have reserved by `max_bytes`.
    #[must_use]
    pub fn reserved_bytes(&self, account: AccountId, storage: StorageType) -> u64 {
        let streams = self.accounts.get(&account);
        let bytes = streams.map_or(0, |streams| streams.reserved_bytes[storage_index(storage)]);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: AccountId = AccountId(3);

    fn entry(id: u32, name: &str, log: u64) -> Entry {
        let config = StreamConfig { name: name.to_owned(), ..StreamConfig::default() };
        let (engine, config) = (LogId(log), Arc::new(config));
        Entry { id: StreamId(id), engine, account: ACCOUNT, config, created: Time(1) }
    }

    #[test]
    fn sums_and_names_follow_what_comes_changes_and_goes() {
        let mut registry = Registry::default();
        let counts = |registry: &Registry| [1, 2].map(|log| registry.count_in(ACCOUNT, LogId(log)));
        for (id, name, log) in [(1, "A", 1), (2, "B", 1), (3, "C", 2)] {
            registry.insert(entry(id, name, log));
        }
        assert_eq!(counts(&registry), [2, 1]);
        let version = registry.version();
        assert_eq!(registry.names_since(version, ACCOUNT), Some(vec![]));
        registry.insert(entry(2, "B", 1));
        assert_eq!(counts(&registry), [2, 1], "a change is no stream more");
        let old = registry.get(ACCOUNT, "A").expect("it is there").clone();
        registry.rehome(&old, entry(4, "A", 2));
        assert_eq!(counts(&registry), [1, 2]);
        registry.take(ACCOUNT, "C").expect("it is there");
        assert_eq!(counts(&registry), [1, 1]);
        let mut names = registry.names_since(version, ACCOUNT).expect("few have changed");
        names.sort();
        names.dedup();
        assert_eq!(names, ["A", "B", "C"]);
        assert_eq!(registry.names_since(version, AccountId(4)), Some(vec![]));
        registry.take_log(LogId(1));
        assert_eq!(counts(&registry), [0, 1]);
    }
}
