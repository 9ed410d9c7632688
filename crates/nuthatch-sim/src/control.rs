//! The step machines of the control plane, each against logs that fail: moves of a stream between two
//! logs, mirrors and sources, restores from backups, imports, changes of streams, changes of the nodes.
//!
//! The logs are simulated, too, and do what they are told: a step that is left out, or taken too early, is
//! to show as a loss. Each seed runs one of the machines.

mod changes;
mod copies;
mod imports;
mod log;
mod moves;
mod moves_apart;
mod restores;
mod rosters;
mod sweeps;
mod violation;

pub use violation::Violation;

use crate::rng::Rng;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;

/// How the logs and the way to them fail in the schedules of one seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Faults {
    /// The mean time between two restarts or failed writes, in microseconds.
    pause: u64,
    /// What it takes at most until what was written is durable, in microseconds.
    slowest: u64,
    /// What an answer takes at most, in microseconds.
    answer_max: u64,
    /// Of a thousand answers so many are lost, although it was done.
    lost: u64,
    /// Of a thousand operations so many are not taken.
    not_sent: u64,
}

impl Faults {
    fn drawn(rng: &mut Rng) -> Self {
        Self {
            pause: rng.between(50 * MILLI, 3 * SECOND),
            slowest: *rng.pick(&[MILLI, 20 * MILLI, SECOND, 30 * SECOND]),
            answer_max: *rng.pick(&[MILLI, 50 * MILLI, 2 * SECOND]),
            lost: *rng.pick(&[0, 0, 10, 80]),
            not_sent: *rng.pick(&[0, 0, 20, 100]),
        }
    }
}

/// A machine of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Moves of a stream between logs.
    Mover,
    /// Moves between logs that come to other nodes meanwhile.
    MoverApart,
    /// A mirror and a source.
    Replicator,
    /// Changes of streams and what they claim.
    Changes,
    /// Restores from backups.
    Restore,
    /// Imports from other servers.
    Import,
    /// Sweeps for what nobody needs any more.
    Sweep,
    /// Changes of the nodes where the catalog is outside them.
    Rosters,
}

impl Machine {
    /// Every machine. The first seven are run by their share of the seeds, the others where they are named: so a seed stays
    /// what it was.
    pub const ALL: [Machine; 8] = [
        Machine::Mover,
        Machine::MoverApart,
        Machine::Replicator,
        Machine::Changes,
        Machine::Restore,
        Machine::Import,
        Machine::Sweep,
        Machine::Rosters,
    ];

    /// How many of them seeds are shared out to.
    pub const SHARED: usize = 7;

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Machine::Mover => "moves",
            Machine::MoverApart => "moves-apart",
            Machine::Replicator => "copies",
            Machine::Changes => "changes",
            Machine::Restore => "restores",
            Machine::Import => "imports",
            Machine::Sweep => "sweeps",
            Machine::Rosters => "rosters",
        }
    }
}

/// How a world is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The machine. None: the seed decides.
    pub machine: Option<Machine>,
    /// True if the trace is printed.
    pub printed: bool,
}

impl Options {
    /// Everything drawn from the seed.
    #[must_use]
    pub const fn drawn() -> Self {
        Self { machine: None, printed: false }
    }
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Hash of the trace.
    pub hash: u64,
    /// Happenings.
    pub steps: u64,
    /// Steps of the machines.
    pub steps_of_machines: u64,
    /// Publishes that were acknowledged.
    pub acked: u64,
    /// Moves, copies, changes and restores that came to their end.
    pub done: u64,
    /// Moves that were given up, restores that failed.
    pub given_up: u64,
    /// Changes that left a claim.
    pub claims: u64,
    /// Restarts.
    pub lives: u64,
    /// Faults.
    pub faults: u64,
}

impl Summary {
    /// Adds what another run did; the hash stays.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.steps_of_machines += other.steps_of_machines;
        self.acked += other.acked;
        self.done += other.done;
        self.given_up += other.given_up;
        self.claims += other.claims;
        self.lives += other.lives;
        self.faults += other.faults;
    }

    /// What was done, in words.
    #[must_use]
    pub fn report(&self) -> String {
        format!(
            "{} steps of machines, {} publishes, {} moves, copies, changes and restores done, {} given \
             up, {} claims, {} restarts, {} faults",
            self.steps_of_machines,
            self.acked,
            self.done,
            self.given_up,
            self.claims,
            self.lives,
            self.faults
        )
    }
}

/// Runs the schedule of a seed.
pub fn run(seed: u64, options: &Options) -> (Summary, Result<(), Violation>) {
    let all = Machine::SHARED as u64;
    match options.machine.unwrap_or(Machine::ALL[(seed % all) as usize]) {
        Machine::Mover => moves::run(seed, options.printed),
        Machine::MoverApart => moves_apart::run(seed, options.printed),
        Machine::Replicator => copies::run(seed, options.printed),
        Machine::Changes => changes::run(seed, options.printed),
        Machine::Restore => restores::run(seed, options.printed),
        Machine::Import => imports::run(seed, options.printed),
        Machine::Sweep => sweeps::run(seed, options.printed),
        Machine::Rosters => rosters::run(seed, options.printed),
    }
}
