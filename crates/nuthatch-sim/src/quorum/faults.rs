//! What goes wrong, and how often in the schedules of one seed.

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
    /// A machine loses its power.
    PowerCut = 20;
    /// All machines lose their power at once.
    PowerCutAll = 4;
    /// A process is killed.
    Kill = 15;
    /// The owner's machine loses its power.
    OwnerPowerCut = 15;
    /// A process is stopped for a while (SIGSTOP).
    Pause = 12;
    /// The owner is stopped for a while.
    OwnerPause = 12;
    /// One link is cut in one direction.
    CutLink = 15;
    /// All links are cut or mended by chance.
    Pattern = 10;
    /// One node is cut off.
    Isolate = 10;
    /// All links are mended.
    Mend = 30;
    /// Connections between two nodes are reset.
    Reset = 8;
    /// A disk is replaced by an empty one.
    Wipe = 8;
    /// A directory is brought back as it was at an earlier start.
    OldImage = 6;
    /// Bytes of the last entries rot.
    RotTail = 8;
    /// Bytes of entries before the last rot, or lie at the wrong place.
    RotMiddle = 8;
    /// One slot of a promise rots.
    RotPromise = 6;
    /// Both slots of a promise, or the identity, rot.
    RotIdentity = 3;
    /// The next sync fails.
    FailSync = 8;
    /// Syncs take long.
    SlowDisk = 6;
    /// Syncs are quick again.
    QuickDisk = 6;
    /// The catalog cannot be reached for a while.
    CatalogAway = 6;
}

/// How often each kind of fault comes in the schedules of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    weights: Vec<u64>,
    /// The longest time between two faults, in microseconds.
    pub every_max: u64,
}

impl Mix {
    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self { weights: vec![0; Fault::ALL.len()], every_max: 1_000_000 }
    }

    /// The mix of a seed: each kind is left out of half of all seeds, so that every few kinds meet
    /// without the others.
    pub fn drawn(rng: &mut Rng) -> Self {
        let weights = Fault::WEIGHTS.iter().map(|weight| {
            let share = if rng.chance(500) { 0 } else { rng.between(1, 4) };
            weight * share
        });
        let weights = weights.collect();
        Self { weights, every_max: rng.between(100_000, 2_000_000) }
    }

    /// A fault.
    pub fn draw(&self, rng: &mut Rng) -> Option<Fault> {
        rng.weighted(&self.weights).map(|index| Fault::ALL[index])
    }

    /// The kinds that come, in words.
    #[must_use]
    pub fn named(&self) -> String {
        let kinds = Fault::ALL.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0);
        kinds.map(|(fault, weight)| format!("{fault:?}:{weight}")).collect::<Vec<_>>().join(" ")
    }
}
