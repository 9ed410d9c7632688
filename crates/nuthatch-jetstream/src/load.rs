//! The streams that logs hold come into the registry, at a start or with a log that is attached, and
//! leave it with a log that is detached.

use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::import_table::ImportTable;
use crate::log_names::LogNames;
use crate::logs_port::{LogsPort, call};
use crate::moves::StreamMoves;
use crate::pending_changes::{Changing, ELSEWHERE};
use crate::registry::{DEFAULT_LOG, Entry, Registry};
use crate::stream_table::StreamTable;
use nuthatch_log::StreamId;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::control::import::{Key, Target};
use nuthatch_streams::migration::{self, OtherLogs, Resolution};
use nuthatch_streams::op::CatalogEntry;
use nuthatch_streams::stream::{Provenance, StreamLocation, importing_name};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::sleep;

/// How long a log that comes waits for changes under way that claim a name or subjects of its streams.
const FREE_WITHIN: Duration = Duration::from_secs(2);
const FREE_PAUSE: Duration = Duration::from_millis(20);

/// So many streams are looked at, or taken in, between two turns of others.
const STREAMS_PART: usize = 256;

/// Takes the streams of logs in, and out.
pub(super) struct Loading {
    pub(super) core: Arc<dyn CorePort>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) imports: Arc<ImportTable>,
    pub(super) moves: Arc<StreamMoves>,
}

/// Whether no stream of the registry has any subject of this one.
fn check_subjects(registry: &Registry, entry: &CatalogEntry) -> Result<(), String> {
    let is_taken = entry.config.subjects.iter().any(|subject| {
        let (mut search, mut steps) = (OverlapSearch::new(subject.as_bytes()), usize::MAX);
        let found = registry.overlaps(entry.account, &mut search, &mut steps, None);
        found != SearchOutcome::Nothing
    });
    if is_taken {
        let name = &entry.config.name;
        return Err(format!("stream {name:?} has subjects that a stream in another log has"));
    }
    Ok(())
}

fn each(
    (log, catalog): (usize, &mut Vec<CatalogEntry>),
) -> impl Iterator<Item = (usize, &mut CatalogEntry)> {
    catalog.iter_mut().map(move |entry| (log, entry))
}

impl Loading {
    /// Asks every engine for its streams. Two streams of one name cannot be (the registry
    /// serialises creates); if damage ever made it so, the error says which.
    ///
    /// # Errors
    /// A sentence for the log and the exit.
    pub(super) async fn load(&self) -> Result<usize, String> {
        let mut catalogs = Vec::new();
        let attached = self.names.all();
        for (name, engine) in &attached {
            let outcome = call(&*self.logs, *engine, Op::Catalog).await;
            let Ok(Ok(OpOutcome::Catalog { streams, next_id, unreadable_records })) = outcome
            else {
                return Err(format!("cannot list the streams of log {name}: {outcome:?}"));
            };
            if unreadable_records > 0 {
                return Err(format!(
                    "log {name} holds {unreadable_records} records that this version does not \
                     understand; was it written by a newer one? Nothing was changed"
                ));
            }
            self.streams.reserve_ids(next_id);
            catalogs.push(streams);
        }
        let names: Vec<&str> = attached.iter().map(|(name, _)| name.as_str()).collect();
        let ids: Vec<LogId> = attached.iter().map(|(_, id)| *id).collect();
        let places: Vec<String> = ids.iter().map(|id| self.names.place_of(*id)).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        self.name_places(&ids, &mut catalogs);
        let found = migration::resolve(&places, &catalogs, self.others());
        let found = found.map_err(|why| why.to_string())?;
        let count = found.serve.len() + found.undecided.len();
        self.hold(&ids, &found.undecided).await?;
        self.adopt(&ids, found.serve).await?;
        self.adopt(&ids, found.undecided.clone()).await?;
        if self.names.node().is_none() {
            self.say_waiting(&names, &found.waiting);
        }
        self.moves.forget_left(&ids, &found.forget, &catalogs).await;
        self.moves.resume(&ids, &found.resume);
        self.find_out(&ids, &found.undecided, &found.waiting);
        Ok(count)
    }

    fn say_waiting(&self, names: &[&str], waiting: &[(usize, CatalogEntry)]) {
        for (log, copy) in waiting {
            let from = copy.provenance.from.as_ref().map_or("", |place| place.log.as_str());
            self.core.say(&format!(
                "log {} has part of stream {:?}, which was moving there from log {from}: without \
                 that log it is not served",
                names[*log], copy.config.name
            ));
        }
    }

    /// Adopts the streams of a log that is attached while others are served. What a move left behind whose
    /// other log is elsewhere is decided with the owner of that.
    ///
    /// Nobody else changes streams of these accounts meanwhile.
    ///
    /// # Errors
    /// A sentence: its streams cannot be listed, or one of them exists in another log, or is about to.
    pub(super) async fn load_log(&self, name: &str, log: LogId) -> Result<usize, String> {
        let outcome = call(&*self.logs, log, Op::Catalog).await;
        let Ok(Ok(OpOutcome::Catalog { streams, next_id, unreadable_records: 0 })) = outcome else {
            return Err(format!("cannot list the streams of log {name}: {outcome:?}"));
        };
        self.streams.reserve_ids(next_id);
        let (mut serve, found) = self.resolve_one(log, streams)?;
        serve.extend(found.undecided.iter().map(|(_, entry)| entry.clone()));
        self.drop_superseded(&serve);
        serve.retain(|entry| !self.has_left(entry));
        let _rights = self.rights_until_free(&mut serve).await?;
        let serve = self.without_conflicts(serve).await?;
        let count = serve.len();
        self.hold(&[log], &found.undecided).await?;
        self.adopt(&[log], serve.into_iter().map(|entry| (0, entry)).collect()).await?;
        self.find_out(&[log], &found.undecided, &found.waiting);
        Ok(count)
    }

    /// The rights to change the streams of these accounts, once no change under way is about to take a name or subjects of
    /// them. At a node of a cluster, streams for which that takes too long are left out, which its log says.
    async fn rights_until_free(
        &self,
        streams: &mut Vec<CatalogEntry>,
    ) -> Result<Vec<Changing>, String> {
        let late = Instant::now() + FREE_WITHIN;
        loop {
            let rights = self.rights_of(streams.iter().map(|entry| entry.account)).await?;
            let why = match streams.iter().try_for_each(|entry| self.check_pending(entry)) {
                Ok(()) => return Ok(rights),
                Err(why) => why,
            };
            if Instant::now() >= late {
                if self.names.node().is_none() {
                    return Err(why);
                }
                streams.retain(|entry| match self.check_pending(entry) {
                    Ok(()) => true,
                    Err(why) => {
                        self.say_left_out(&why);
                        false
                    }
                });
                return Ok(rights);
            }
            drop(rights);
            sleep(FREE_PAUSE).await;
        }
    }

    fn say_left_out(&self, why: &str) {
        self.core.warn(&format!(
            "{why}: the one of the log that has come to this node is NOT SERVED while it is here. Give one of both another name \
             or other subjects, or delete it"
        ));
    }

    /// Those whose name and subjects no stream of another log here has. At a node of a cluster the others are left out, which
    /// its log says: a log of which one stream cannot be served is served all the same.
    async fn without_conflicts(
        &self,
        streams: Vec<CatalogEntry>,
    ) -> Result<Vec<CatalogEntry>, String> {
        let mut served = Vec::with_capacity(streams.len());
        for (at, entry) in streams.into_iter().enumerate() {
            if at > 0 && at % STREAMS_PART == 0 {
                yield_now().await;
            }
            match self.conflict(&entry) {
                None => served.push(entry),
                Some(why) if self.names.node().is_none() => return Err(why),
                Some(why) => self.say_left_out(&why),
            }
        }
        Ok(served)
    }

    /// Which other log here has a stream of this name, or with any of its subjects.
    fn conflict(&self, entry: &CatalogEntry) -> Option<String> {
        let registry = self.streams.read();
        match registry.get(entry.account, &entry.config.name) {
            Some(other) => Some(format!(
                "stream {:?} is in log {}, too",
                entry.config.name,
                self.names.name_of(other.engine)
            )),
            None => check_subjects(&registry, entry).err(),
        }
    }

    /// True if a stream that was about to leave is known to live in another log of this node: it is not served anew.
    fn has_left(&self, entry: &CatalogEntry) -> bool {
        let Some(to) = entry.provenance.to.as_ref().filter(|_| self.names.node().is_some()) else {
            return false;
        };
        let registry = self.streams.read();
        let known = registry.get(entry.account, &entry.config.name);
        known.is_some_and(|known| {
            known.id == to.stream && self.names.place_of(known.engine) == to.log
        })
    }

    /// What other logs here have of streams that have arrived in the log which comes is not routed to any more: it is held
    /// there, and whoever finds out about it forgets it.
    fn drop_superseded(&self, arrived: &[CatalogEntry]) {
        for entry in arrived {
            let (account, name) = (entry.account, entry.config.name.as_str());
            let Some(from) = &entry.provenance.from else { continue };
            let known = self.streams.read().get(account, name).cloned();
            let is_left = known.is_some_and(|left| {
                left.id == from.stream
                    && self.names.place_of(left.engine) == from.log
                    && self.moves.apart.is_undecided(account, name, left.route())
            });
            if is_left {
                self.streams.change(|registry| {
                    if let Some((key, left)) = registry.take(account, name) {
                        registry.drop_subjects(account, key, &left.config.subjects);
                    }
                });
            }
        }
    }

    fn others(&self) -> OtherLogs {
        if self.names.node().is_some() { OtherLogs::AtNodes } else { OtherLogs::Nowhere }
    }

    /// What becomes of the streams of one log: those that no move is about, and what is to be decided of the others. A server
    /// that is alone has none that comes and goes.
    fn resolve_one(
        &self,
        log: LogId,
        streams: Vec<CatalogEntry>,
    ) -> Result<(Vec<CatalogEntry>, Resolution), String> {
        let mut catalogs = vec![streams];
        self.name_places(&[log], &mut catalogs);
        let moves =
            |entry: &CatalogEntry| entry.provenance.arriving || entry.provenance.to.is_some();
        let (moving, mut serve): (Vec<_>, Vec<_>) =
            catalogs.pop().expect("of one log").into_iter().partition(moves);
        let place = self.names.place_of(log);
        let found = migration::resolve(&[&place], &[moving], OtherLogs::AtNodes);
        let mut found = found.map_err(|why| why.to_string())?;
        if self.names.node().is_none() {
            found.serve.append(&mut found.undecided);
            found.waiting.clear();
        }
        serve.extend(std::mem::take(&mut found.serve).into_iter().map(|(_, entry)| entry));
        Ok((serve, found))
    }

    /// Logs in the records of moves get the names that this node uses for them ([`crate::log_names::LogPlace`]).
    fn name_places(&self, logs: &[LogId], catalogs: &mut [Vec<CatalogEntry>]) {
        let former = logs.iter().position(|log| self.names.is_local(*log));
        let of_local = former.map(|at| {
            let streams = catalogs[at].iter();
            let known: FxHashMap<StreamId, (AccountId, String)> = streams
                .map(|entry| (entry.id, (entry.account, entry.config.name.clone())))
                .collect();
            (at, known)
        });
        for (at, entry) in catalogs.iter_mut().enumerate().flat_map(each) {
            if entry.provenance == Provenance::default() {
                continue;
            }
            let (account, name) = (entry.account, entry.config.name.clone());
            // What was the default log of this server is called so in its own records of before, and in those of others.
            let is_local = |place: &StreamLocation| {
                let Some((former, known)) = &of_local else { return false };
                let is_its = known.get(&place.stream) == Some(&(account, name.clone()));
                place.log == DEFAULT_LOG && (at == *former || is_its)
            };
            let Provenance { from, to, .. } = &mut entry.provenance;
            for place in from.iter_mut().chain(to) {
                place.log = match is_local(place) {
                    true => self.names.place_of(logs[former.expect("it was found")]),
                    false => self.names.known(&place.log).to_string(),
                };
            }
        }
    }

    /// Runs an operation on which the attachment of a log depends.
    async fn must(&self, log: LogId, op: Op) -> Result<(), String> {
        match call(&*self.logs, log, op).await {
            Ok(Ok(_)) => Ok(()),
            other => Err(format!(
                "log {} does not take what a move left: {other:?}",
                self.names.name_of(log)
            )),
        }
    }

    /// Streams of which it is not known whether they live here wait, before anything is routed to them.
    async fn hold(
        &self,
        logs: &[LogId],
        undecided: &[(usize, CatalogEntry)],
    ) -> Result<(), String> {
        for (log, entry) in undecided {
            self.must(logs[*log], Op::Hold { id: entry.id, refuses: false }).await?;
        }
        Ok(())
    }

    /// Has it found out with other nodes what becomes of them.
    fn find_out(
        &self,
        logs: &[LogId],
        undecided: &[(usize, CatalogEntry)],
        copies: &[(usize, CatalogEntry)],
    ) {
        if self.names.node().is_none() {
            return;
        }
        for (log, entry) in undecided {
            let copy = entry.provenance.to.as_ref().expect("it was about to go somewhere");
            let route = StreamRoute { log: logs[*log], stream: entry.id };
            let stream = (entry.account, entry.config.name.as_str());
            tokio::spawn(self.moves.apart.decide(stream, route, copy));
        }
        for (log, entry) in copies {
            let source = entry.provenance.from.as_ref().expect("a copy comes from somewhere");
            let route = StreamRoute { log: logs[*log], stream: entry.id };
            self.moves.apart.clear((entry.account, &entry.config.name), route, source);
        }
    }

    /// The rights to change the streams of these accounts. They are taken in one order, and whoever else
    /// has one waits for no second.
    async fn rights_of(
        &self,
        accounts: impl Iterator<Item = AccountId>,
    ) -> Result<Vec<Changing>, String> {
        let accounts: BTreeSet<AccountId> = accounts.collect();
        let mut rights = Vec::new();
        for account in accounts {
            // No stream has this name, so no change of it can be pending.
            let right = self.rights.lock(account, "").await;
            rights.push(right.map_err(|why| why.to_string())?);
        }
        Ok(rights)
    }

    /// Whether no change that waits for its log has the name of a stream, or any of its subjects.
    fn check_pending(&self, entry: &CatalogEntry) -> Result<(), String> {
        let (account, name) = (entry.account, &entry.config.name);
        let pending = self.rights.pending().subjects_beside(account, name);
        let overlaps = |subject: &String| {
            pending.iter().any(|theirs| {
                let (mut search, mut steps) = (OverlapSearch::new(subject.as_bytes()), usize::MAX);
                search.search(theirs, &mut steps, |_, ()| true) != SearchOutcome::Nothing
            })
        };
        // A stream that another node was to make is what was made there, if its log comes here.
        let claimed = self.rights.pending().engine_of(account, name);
        if claimed.is_some_and(|log| log != ELSEWHERE) || entry.config.subjects.iter().any(overlaps)
        {
            return Err(format!(
                "stream {name:?} has a name or subjects that a change under way is about to take: \
                 try again later"
            ));
        }
        Ok(())
    }

    /// Forgets the streams of a log that is detached; nothing in it changes.
    pub(super) fn forget_log(&self, log: LogId) -> usize {
        self.imports.forget_log(log);
        self.streams.change(|registry| {
            let gone = registry.take_log(log);
            for (key, entry) in &gone {
                registry.drop_subjects(entry.account, *key, &entry.config.subjects);
            }
            gone.len()
        })
    }

    /// Takes streams into the registry, in parts: publishers to other streams ask it for routes meanwhile.
    async fn adopt(
        &self,
        logs: &[LogId],
        streams: Vec<(usize, CatalogEntry)>,
    ) -> Result<(), String> {
        let mut streams = streams.into_iter();
        loop {
            let part: Vec<_> = streams.by_ref().take(STREAMS_PART).collect();
            if part.is_empty() {
                return Ok(());
            }
            self.streams.change(|registry| {
                part.into_iter()
                    .try_for_each(|(log, entry)| self.adopt_one(logs[log], entry, registry))
            })?;
            yield_now().await;
        }
    }

    fn adopt_one(
        &self,
        engine: LogId,
        stream: CatalogEntry,
        registry: &mut Registry,
    ) -> Result<(), String> {
        let CatalogEntry { id, account, config, created, .. } = stream;
        if let Some(name) = importing_name(&config.name) {
            let key = Key { account, name: name.to_owned() };
            self.adopt_import(key, Target { log: engine.0, stream: id });
            return Ok(());
        }
        if let Some(other) = registry.get(account, &config.name) {
            let (name, other) = (&config.name, other.id);
            return Err(format!("stream {name:?} exists twice, as id {other} and id {id}"));
        }
        registry.insert(Entry { id, engine, account, config, created });
        Ok(())
    }

    /// An import goes on with the first of its streams that is found; another one, in a log that was not
    /// there when the import was begun anew, stays as it is until that one is finished or given up.
    fn adopt_import(&self, key: Key, target: Target) {
        let name = key.name.clone();
        let Err(other) = self.imports.found(key, target) else { return };
        let [here, there] = [target, other].map(|of| self.names.name_of(LogId(of.log)));
        self.core.say(&format!(
            "log {here} has an import of stream {name:?} that was begun anew in log {there}: it waits \
             until that is finished or given up"
        ));
    }
}
