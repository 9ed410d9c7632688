//! The streams that logs hold come into the registry, at a start or with a log that is attached, and
//! leave it with a log that is detached.

use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::import_table::ImportTable;
use crate::log_names::LogNames;
use crate::logs_port::{LogsPort, call};
use crate::moves::StreamMoves;
use crate::pending_changes::{Changing, ELSEWHERE};
use crate::registry::Entry;
use crate::stream_table::StreamTable;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use nuthatch_server::jetstream_port::LogId;
use nuthatch_streams::control::import::{Key, Target};
use nuthatch_streams::op::CatalogEntry;
use nuthatch_streams::stream::importing_name;
use nuthatch_streams::{AccountId, Op, OpOutcome, migration};
use std::collections::BTreeSet;
use std::sync::Arc;

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
        let found = migration::resolve(&names, &catalogs).map_err(|why| why.to_string())?;
        let count = found.serve.len();
        self.adopt(&ids, found.serve)?;
        for (log, copy) in &found.waiting {
            let from = copy.provenance.from.as_ref().map_or("", |place| place.log.as_str());
            self.core.say(&format!(
                "log {} has part of stream {:?}, which was moving there from log {from}: without \
                 that log it is not served",
                names[*log], copy.config.name
            ));
        }
        self.moves.forget_left(&ids, &found.forget, &catalogs).await;
        self.moves.resume(&ids, &found.resume);
        Ok(count)
    }

    /// Adopts the streams of a log that is attached while others are served. Copies that were on
    /// their way to it or from it stay where they are until a start sees all logs.
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
        let whole = streams.into_iter().filter(|entry| !entry.provenance.arriving);
        let whole: Vec<_> = whole.map(|entry| (0, entry)).collect();
        let _rights = self.rights_of(whole.iter().map(|(_, entry)| entry.account)).await?;
        for (_, entry) in &whole {
            self.check_pending(entry)?;
        }
        self.check_subjects(whole.iter().map(|(_, entry)| entry))?;
        let count = whole.len();
        self.adopt(&[log], whole)?;
        Ok(count)
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

    /// Whether no stream that is served has any subject of these.
    fn check_subjects<'a>(
        &self,
        mut streams: impl Iterator<Item = &'a CatalogEntry>,
    ) -> Result<(), String> {
        let registry = self.streams.read();
        let is_taken = |entry: &&CatalogEntry| {
            let mut subjects = entry.config.subjects.iter();
            subjects.any(|subject| {
                let (mut search, mut steps) = (OverlapSearch::new(subject.as_bytes()), usize::MAX);
                let found = registry.overlaps(entry.account, &mut search, &mut steps, None);
                found != SearchOutcome::Nothing
            })
        };
        match streams.find(is_taken) {
            Some(entry) => Err(format!(
                "stream {:?} has subjects that a stream in another log has",
                entry.config.name
            )),
            None => Ok(()),
        }
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

    fn adopt(&self, logs: &[LogId], streams: Vec<(usize, CatalogEntry)>) -> Result<(), String> {
        self.streams.change(|registry| {
            for (log, stream) in streams {
                let engine = logs[log];
                let CatalogEntry { id, account, config, created, .. } = stream;
                if let Some(name) = importing_name(&config.name) {
                    let key = Key { account, name: name.to_owned() };
                    self.adopt_import(key, Target { log: engine.0, stream: id });
                    continue;
                }
                if let Some(other) = registry.get(account, &config.name) {
                    return Err(format!(
                        "stream {:?} exists twice, as id {} and id {id}",
                        config.name, other.id
                    ));
                }
                registry.insert(Entry { id, engine, account, config: Arc::new(config), created });
            }
            Ok(())
        })
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
