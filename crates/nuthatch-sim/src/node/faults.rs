//! What goes wrong in a node, and how often in the schedules of one seed.

use crate::rng::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $weight:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            /// Every kind.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];
            const WEIGHTS: &[u64] = &[$($weight),*];
        }
    };
}

faults! {
    /// The machine loses its power, perhaps in the middle of an operation.
    PowerCut = 20;
    /// The process is killed, perhaps in the middle of an operation: what it wrote is there.
    Kill = 15;
    /// The server is told to stop.
    Stop = 8;
    /// A sync fails, and what it covered is lost, although the cache still shows it.
    FailSync = 6;
    /// A write fails.
    FailWrite = 5;
    /// Some reads fail.
    FailReads = 8;
    /// A disk is full for one operation.
    FullOnce = 5;
    /// A disk is full for a while.
    Full = 6;
    /// There is room again.
    Room = 8;
    /// What the writers and workers do takes up to ten seconds.
    SlowDisks = 6;
    /// It takes milliseconds again.
    QuickDisks = 6;
    /// The wall clock is set forward, by seconds to days.
    ClockForward = 5;
    /// The wall clock is set back, likewise.
    ClockBack = 5;
    /// The store does not answer.
    StoreAway = 6;
    /// It answers again.
    StoreBack = 12;
    /// Some of its requests fail, before or after they are carried out, and some removals come late.
    StoreFails = 8;
    /// They do not fail any more.
    StoreWorks = 5;
    /// Its requests take up to ten seconds.
    StoreSlow = 5;
    /// They take milliseconds again.
    StoreQuick = 5;
    /// The process is stopped and goes on hours later.
    Sleep = 4;
}

/// What may happen in the schedules of one seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    weights: Vec<u64>,
    /// The mean time between two faults, in microseconds.
    pub pause: u64,
}

impl Mix {
    /// Nothing fails.
    #[must_use]
    pub fn none() -> Self {
        Self { weights: vec![0; Fault::ALL.len()], pause: 1_000_000 }
    }

    /// Each kind is left out in every second seed.
    pub fn drawn(rng: &mut Rng) -> Self {
        let weights = Fault::WEIGHTS.iter().map(|weight| weight * rng.below(2)).collect();
        Self { weights, pause: rng.between(100_000, 2_000_000) }
    }

    /// The next fault.
    pub fn pick(&self, rng: &mut Rng) -> Option<Fault> {
        rng.weighted(&self.weights).map(|at| Fault::ALL[at])
    }
}
