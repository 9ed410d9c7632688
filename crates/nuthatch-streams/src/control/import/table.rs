//! The imports that are under way on a server.

use super::intake::{Batch, Effect, Event, Intake};
use crate::op::OpResult;
use crate::rules::{IMPORT_ENDS_ALONE, IMPORT_FINISH_CONFIRMED, IMPORT_ONCE};
use crate::sink::AccountId;
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use rustc_hash::FxHashMap;

/// Imports under way at once, over all accounts.
pub const IMPORTS_MAX: usize = 4096;
/// Imports of one account under way at once.
pub const IMPORTS_OF_ACCOUNT_MAX: usize = 1024;

/// An import, by the account and the name that its stream is to have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The account.
    pub account: AccountId,
    /// The name.
    pub name: String,
}

/// The stream that an import fills.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// Its log, by its number.
    pub log: u64,
    /// Its identity there.
    pub stream: StreamId,
}

/// How far an import is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Its name is taken; its stream has no identity yet.
    Reserved,
    /// It takes batches.
    Open,
    /// Its stream begins or ends, and the log has not said whether it has.
    Doubtful,
}

#[derive(Debug)]
struct Import {
    /// Before it has a stream: its log, and no identity.
    target: Target,
    phase: Phase,
    verified: u64,
    intake: Intake,
}

/// The imports that are under way, at most [`IMPORTS_MAX`]. What must outlive a stop of the server is
/// in the streams that they fill: a start finds them by their names ([`Imports::found`]).
#[derive(Debug, Default)]
pub struct Imports(FxHashMap<Key, Import>);

impl Imports {
    /// A log that is served has this stream, half imported.
    ///
    /// # Errors
    /// The stream that the import fills already, in another log: this one is left alone.
    pub fn found(&mut self, key: Key, target: Target) -> Result<(), Target> {
        if let Some(known) = self.0.get(&key) {
            return Err(known.target);
        }
        let intake = Intake::found();
        self.0.insert(key, Import { target, phase: Phase::Open, verified: 0, intake });
        Ok(())
    }

    /// A log is not served any more: neither are its imports. Nothing in it changes.
    pub fn forget_log(&mut self, log: u64) -> Vec<Effect> {
        let gone: Vec<Key> = self
            .0
            .iter()
            .filter(|(_, i)| i.target.log == log)
            .map(|(key, _)| key.clone())
            .collect();
        let why = JsError::STREAM_RESTORE.with_err("the log of this import was taken away");
        gone.iter().flat_map(|key| self.remove(key, &why)).collect()
    }

    /// The stream that an import fills.
    #[must_use]
    pub fn target(&self, key: &Key) -> Option<Target> {
        let import = self.0.get(key).filter(|import| import.phase != Phase::Reserved);
        import.map(|import| import.target)
    }

    /// Up to here the importer has compared both sides.
    #[must_use]
    pub fn verified(&self, key: &Key) -> u64 {
        self.0.get(key).map_or(0, |import| import.verified)
    }

    /// How many are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A batch of an import came. What is to be stored goes into the stream that is returned.
    ///
    /// # Errors
    /// No such import is under way.
    pub fn batch(&mut self, key: &Key, batch: Batch) -> Result<(Target, Vec<Effect>), JsError> {
        let target = self.target(key).ok_or(JsError::STREAM_NOT_FOUND)?;
        Ok((target, self.tell(key, Event::Batch(batch))))
    }

    /// What became of [`Effect::Store`] of the import that fills `target`. If that is over, its batches
    /// were answered then.
    pub fn stored(&mut self, key: &Key, target: Target, outcome: OpResult) -> Vec<Effect> {
        match self.target(key) {
            Some(known) if known == target => self.tell(key, Event::Stored(outcome)),
            _ => Vec::new(),
        }
    }

    pub(super) fn phase(&self, key: &Key) -> Option<Phase> {
        self.0.get(key).map(|import| import.phase)
    }

    pub(super) fn verify(&mut self, key: &Key, up_to: u64) {
        self.import(key).verified = up_to;
    }

    /// Takes a name for an import that is about to begin in this log.
    pub(super) fn reserve(&mut self, key: &Key, log: u64) -> Result<(), JsError> {
        self.check_room(key.account)?;
        let target = Target { log, stream: StreamId(0) };
        let import = Import { target, phase: Phase::Reserved, verified: 0, intake: Intake::new() };
        let known = self.0.insert(key.clone(), import);
        assert!(known.is_none() || !IMPORT_ONCE.holds(), "an import is begun once");
        Ok(())
    }

    fn check_room(&self, account: AccountId) -> Result<(), JsError> {
        let of_account = || self.0.keys().filter(|key| key.account == account).count();
        let text = if self.0.len() >= IMPORTS_MAX {
            format!("{IMPORTS_MAX} imports are under way: finish some first")
        } else if of_account() >= IMPORTS_OF_ACCOUNT_MAX {
            format!("{IMPORTS_OF_ACCOUNT_MAX} imports of this account are under way: finish some")
        } else {
            return Ok(());
        };
        Err(JsError::STREAM_RESTORE.with_err(text))
    }

    /// Its stream has an identity; whether it is there is to be found out.
    pub(super) fn named(&mut self, key: &Key, stream: StreamId) {
        let import = self.import(key);
        assert!(import.phase == Phase::Reserved, "a stream is begun once");
        (import.target.stream, import.phase) = (stream, Phase::Doubtful);
    }

    /// Its stream is there, and takes batches.
    pub(super) fn open(&mut self, key: &Key) {
        self.import(key).phase = Phase::Open;
    }

    /// The importer was told that everything up to here is stored.
    pub(super) fn asked(&mut self, key: &Key, stored: u64) -> Vec<Effect> {
        self.tell(key, Event::Asked(stored))
    }

    /// Whether it may be finished: all of its batches were confirmed, and it goes up to `last`.
    pub(super) fn check_confirmed(&mut self, key: &Key, last: u64) -> Result<(), JsError> {
        if IMPORT_FINISH_CONFIRMED.holds() {
            self.import(key).intake.check_confirmed(last)
        } else {
            Ok(())
        }
    }

    /// Its stream is about to end; until it is known that it has not, no batch is taken.
    pub(super) fn ends(&mut self, key: &Key) -> Vec<Effect> {
        self.import(key).phase = Phase::Doubtful;
        if !IMPORT_ENDS_ALONE.holds() {
            return Vec::new();
        }
        let why = "this import is being finished or given up: begin again if it is not";
        self.tell(key, Event::Closed(JsError::STREAM_RESTORE.with_err(why)))
    }

    /// It is over.
    pub(super) fn remove(&mut self, key: &Key, why: &JsError) -> Vec<Effect> {
        self.0.remove(key).map_or_else(Vec::new, |import| import.intake.end(why))
    }

    fn tell(&mut self, key: &Key, event: Event) -> Vec<Effect> {
        self.import(key).intake.step(event)
    }

    fn import(&mut self, key: &Key) -> &mut Import {
        self.0.get_mut(key).expect("the import is under way")
    }
}
