//! How the nodes of a cluster change whose catalog is outside them: any node may make a change, and any takes the next step of
//! what was begun. Nobody leads; what two do at once is decided by the store, for one of them ([`StoredSteps`]).
//!
//! So that not all do the same, the first of the nodes that hear each other goes on with what was begun, and the next one only
//! where that does not for a while.

mod absence;

use self::absence::Absences;
use crate::catalog::CatalogError;
use crate::catalog_trouble::CatalogTrouble;
use crate::change_nodes::{ChangeError, ChangeNodes, absent_text};
use crate::config::ClusterConfig;
use crate::life::Life;
use crate::quorum_log::QuorumLog;
use crate::roll::Roll;
use crate::start_error::{removed_text, too_old_text};
use crate::stored_steps::{self, Made, StoredSteps};
use nuthatch_catalog_group::roster::Due;
use nuthatch_catalog_group::{Change, Protocol, Replacing, Roster};
use nuthatch_log::Reporter;
use nuthatch_quorum::types::NodeId;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks whether somebody has changed the nodes. Each look is a request to the store.
const LOOK: Duration = Duration::from_secs(1);

/// The same while something was begun.
const LOOK_BUSY: Duration = Duration::from_millis(500);

/// Between two looks at all logs, where nothing was begun: one may have followed a roster that is earlier.
const LOOK_AT_LOGS: Duration = Duration::from_secs(60);

/// A node goes on with what was begun where each node before it has not for so long.
const TURN: Duration = Duration::from_secs(5);

/// Who asks for a change waits so long for others that change the nodes at the same time.
const CHANGED_WITHIN: Duration = Duration::from_secs(2);

/// Nor longer than this for what this node has to do in the store.
const STEPS_WITHIN: Duration = Duration::from_secs(1);

/// A node counts as heard if it was within this: a process may stand still for a moment.
const LATELY: Duration = Duration::from_secs(2);

/// Between two attempts at a change.
const AGAIN: Duration = Duration::from_millis(100);

/// What a node goes by.
pub(crate) struct Told {
    pub(crate) roll: Arc<Roll>,
    pub(crate) life: Life,
    pub(crate) report: Reporter,
    /// The node's name, and where its directory is, for people.
    pub(crate) me: (String, String),
    /// The newest protocol that it may speak.
    pub(crate) newest: Protocol,
    /// A node that is away for so long is replaced; none: only people replace nodes.
    pub(crate) replace_after: Option<Duration>,
}

impl Told {
    /// What a node goes by that is set up so, and whose directory is `dir`.
    pub(crate) fn of(
        config: &ClusterConfig,
        (roll, dir): (&Arc<Roll>, String),
        (life, report): (&Life, &Reporter),
    ) -> Self {
        Self {
            roll: Arc::clone(roll),
            life: life.clone(),
            report: report.clone(),
            me: (config.name.clone(), dir),
            newest: config.protocol_max,
            replace_after: config.replace_after,
        }
    }
}

/// Changes of the nodes, in a catalog outside them.
pub(crate) struct StoredNodes {
    told: Told,
    steps: Mutex<StoredSteps>,
    /// The store did not answer when it was asked last.
    is_away: AtomicBool,
    logs: Vec<Arc<QuorumLog>>,
    waking: (Mutex<bool>, Condvar),
}

impl StoredNodes {
    /// Begins to follow the roster.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn start(
        told: Told,
        steps: StoredSteps,
        logs: Vec<Arc<QuorumLog>>,
    ) -> io::Result<Arc<Self>> {
        let waking = (Mutex::new(false), Condvar::new());
        let nodes = Arc::new(Self {
            told,
            steps: Mutex::new(steps),
            is_away: AtomicBool::new(false),
            logs,
            waking,
        });
        let (ending, following) = (Arc::clone(&nodes), Arc::clone(&nodes));
        nodes.told.life.at_end(move || ending.wake());
        nodes.told.life.spawn("node-roster", move || following.run())?;
        Ok(nodes)
    }

    fn run(&self) {
        let (mut progress, mut trouble) = (Progress::default(), CatalogTrouble::default());
        while !self.told.life.is_ending() && !self.told.roll.has_removed_me() {
            let looked = self.look(&mut progress, Instant::now());
            self.is_away.store(looked.is_err(), Ordering::Release);
            match looked {
                Ok(()) => trouble.passed(|text| self.told.report.say(text)),
                Err(_) if self.told.life.is_ending() => return,
                Err(error) if is_of_later_program(&error) => {
                    self.told.roll.remove_me(&error.to_string());
                    return;
                }
                Err(error) => trouble.met(&error, |text| self.told.report.say(text)),
            }
            self.wait(if progress.is_busy { LOOK_BUSY } else { LOOK });
        }
    }

    fn wake(&self) {
        *self.waking.0.lock() = true;
        self.waking.1.notify_all();
    }

    fn wait(&self, limit: Duration) {
        let mut woken = self.waking.0.lock();
        if !*woken {
            self.waking.1.wait_for(&mut woken, limit);
        }
        *woken = false;
    }

    /// Reads who the nodes are, and takes the next step of what was begun.
    fn look(&self, progress: &mut Progress, now: Instant) -> Result<(), CatalogError> {
        let roster = self.read_roster()?;
        let begun = roster.replacing.is_some() || roster.resizing.is_some();
        let looks = progress.at.is_none_or(|at| now.duration_since(at) >= LOOK_AT_LOGS);
        if begun || looks || progress.is_busy || progress.seen != roster.changes {
            progress.is_busy = true;
            progress.is_busy = self.go_on(&roster, progress, now)? || begun;
            (progress.at, progress.seen) = (Some(now), roster.changes);
        }
        if let Some(after) = self.told.replace_after {
            self.replace_absent(&roster, (&mut progress.absences, after), now)?;
        }
        Ok(())
    }

    fn read_roster(&self) -> Result<Roster, CatalogError> {
        let mut steps = self.steps.lock();
        let roster = steps.read_roster()?.clone();
        self.note(&mut steps);
        Ok(roster)
    }

    /// Notes who the nodes are; ends this one where it is none of them any more.
    fn note(&self, steps: &mut StoredSteps) {
        let Told { roll, newest, me: (name, dir), .. } = &self.told;
        let (roster, told) = steps.known();
        told.iter().for_each(|text| self.told.report.say(text));
        roll.note(roster);
        if let Some(gone) = roster.gone(name).filter(|_| !roll.has_removed_me()) {
            let text = removed_text(name, gone.by.as_deref(), dir);
            self.told.report.say(&text);
            roll.remove_me(&text);
        }
        if roster.active > *newest {
            roll.remove_me(&too_old_text(roster.active, *newest));
        }
    }

    /// Takes the next step of what was begun, if it is this node's turn; true while there is one.
    fn go_on(
        &self,
        roster: &Roster,
        progress: &mut Progress,
        now: Instant,
    ) -> Result<bool, CatalogError> {
        let due = self.steps.lock().due()?;
        if due == Due::Nothing {
            progress.due_since = None;
            return Ok(false);
        }
        let since = *progress.due_since.get_or_insert(now);
        if now.duration_since(since) >= TURN * self.turn(roster) {
            let mut steps = self.steps.lock();
            steps.take(due)?;
            self.note(&mut steps);
        }
        Ok(true)
    }

    /// How many nodes come before this one, as far as it hears them.
    fn turn(&self, roster: &Roster) -> u32 {
        let me = self.told.roll.me();
        let before = roster.nodes.keys().filter(|node| **node < me && self.hears(**node));
        u32::try_from(before.count()).expect("few nodes")
    }

    fn hears(&self, node: NodeId) -> bool {
        let lately = |log: &Arc<QuorumLog>| log.hears(node).1.is_some_and(|silent| silent < LATELY);
        node == self.told.roll.me() || self.logs.iter().any(lately)
    }

    /// Makes a change, if it can be made.
    fn make(&self, change: &Change) -> Result<Made, ChangeError> {
        let unknown = |why: String| ChangeError::NoAnswer { why };
        let Some(mut steps) = self.steps.try_lock_for(STEPS_WITHIN) else {
            return Err(unknown("the catalog takes long to answer".to_owned()));
        };
        let made = steps.make(change);
        self.note(&mut steps);
        made.map_err(|error| unknown(error.to_string()))
    }

    /// Begins the replacement of a node that is away for long, when it is this node's turn.
    fn replace_absent(
        &self,
        roster: &Roster,
        (absences, after): (&mut Absences, Duration),
        now: Instant,
    ) -> Result<(), CatalogError> {
        let hears = |node| self.hears(node);
        // Another node before this one may hear no majority, or not reach the store.
        let over = after + TURN * self.turn(roster);
        let away = absences.look((roster, self.told.roll.me()), (&hears, over), now);
        let Some(old) = away else { return Ok(()) };
        let spares = self.told.roll.zones().spares_for(old, roster);
        let new = spares.into_iter().find(|node| self.hears(*node));
        if absences.tell(old, new) {
            self.told.report.say(&absent_text(roster, (old, new), after));
        }
        if let Some(new) = new {
            // Not instead of what somebody else has begun meanwhile.
            let mut steps = self.steps.lock();
            if steps.read_roster()?.changes == roster.changes {
                let made = steps.make_next(&Change::Begin(Replacing { old, new }))?;
                self.note(&mut steps);
                if let Made::Refused(why) = made {
                    self.told.report.note(&format!("a node that is away is not replaced: {why}"));
                }
                self.wake();
            }
        }
        Ok(())
    }
}

impl ChangeNodes for StoredNodes {
    fn change(&self, change: Change) -> Result<(), ChangeError> {
        let deadline = Instant::now() + CHANGED_WITHIN;
        loop {
            match self.make(&change)? {
                Made::Done => {
                    self.wake();
                    return Ok(());
                }
                Made::Refused(why) => return Err(ChangeError::Refused(why)),
                Made::Late => {}
            }
            if Instant::now() >= deadline || self.told.life.pause(AGAIN) {
                let why = "other changes of the nodes come first".to_owned();
                return Err(ChangeError::NoAnswer { why });
            }
        }
    }

    fn check(&self, roster: &Roster, change: &Change) -> Result<(), ChangeError> {
        match roster.has(change) {
            true => Ok(()),
            false => stored_steps::check(roster, change).map_err(ChangeError::Refused),
        }
    }

    fn refresh(&self) {
        // Where the store is away what is known is what was read last: the answer is not to take longer for that.
        if self.is_away.load(Ordering::Acquire) {
            return;
        }
        if let Some(mut steps) = self.steps.try_lock_for(STEPS_WITHIN) {
            let read = steps.read_roster().is_err();
            self.is_away.store(read, Ordering::Release);
            self.note(&mut steps);
        }
    }

    fn is_led(&self) -> bool {
        false
    }
}

/// What a node has done of what was begun.
#[derive(Default)]
struct Progress {
    /// When the logs were looked at last, and how often the nodes had changed by then.
    at: Option<Instant>,
    seen: u64,
    /// Since when there is a next step.
    due_since: Option<Instant>,
    /// Something was begun, and is not over.
    is_busy: bool,
    absences: Absences,
}

/// True if the roster says what only a later program knows.
fn is_of_later_program(error: &CatalogError) -> bool {
    matches!(error, CatalogError::Object { why, .. } if why.is_later())
}
