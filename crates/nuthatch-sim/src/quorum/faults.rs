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
    /// The catalog takes its time.
    CatalogSlow = 6;
    /// A node is told to take over, whoever owns the log.
    TakeOver = 10;
    /// Two nodes are told to at the same moment.
    TakeOverTwice = 8;
    /// The owner is told to hand over.
    HandOver = 8;
    /// Other nodes are to keep the log, or another one to own it.
    Wish = 8;
    /// A process is killed and starts again at once.
    Restart = 10;
    /// A link of the owner is cut for less than a second, in one direction or both.
    Flap = 15;
    /// A node takes over that the owner cannot reach, while its lease may still run.
    Usurp = 10;
    /// The owner is stopped for a moment, and its connections are reset.
    OwnerStall = 8;
    /// A keeper is left behind; then the tail of another's disk rots, or its middle, and the rest loses its
    /// power for longer than a takeover waits.
    Strand = 4;
    /// The next write fails (EIO).
    FailWrite = 6;
    /// A disk has room for a few entries only.
    DiskFull = 6;
    /// All disks have room again.
    DiskFreed = 5;
    /// Reading an entry fails once, while the process runs (EIO).
    ReadError = 5;
    /// Bytes of entries rot while the process runs.
    RotLive = 6;
    /// The last entry was written at the place of another one, and the process does not know.
    Misdirect = 5;
    /// The note of a cut rots.
    RotNote = 4;
    /// A directory is that of another node, as it is.
    ForeignDisk = 3;
    /// A wall clock is set ahead or back by up to an hour.
    WallJump = 6;
    /// All wall clocks are set right.
    WallSet = 5;
    /// A clock that nothing is to rest on jumps ahead by up to an hour.
    ClockJump = 6;
    /// A machine sleeps, and wakes hours later by its own clocks.
    Sleep = 4;
    /// The catalog does what it is asked, and its answers are lost for a while.
    CatalogMute = 5;
    /// The catalog is what it was some changes ago, and after a while the true one again.
    CatalogBack = 4;
    /// A keeper trims its log.
    Trim = 15;
    /// All but one do, as far as they may.
    TrimOthers = 8;
    /// What tells up to where a log was trimmed rots.
    RotBase = 3;
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

    /// These kinds only, all as often as each other.
    #[must_use]
    pub fn only(faults: &[Fault], every_max: u64) -> Self {
        let weights = Fault::ALL.iter().map(|fault| u64::from(faults.contains(fault)));
        Self { weights: weights.collect(), every_max }
    }

    /// The mix of a seed: one of the themes, or a swarm, of which each kind is left out of half of all seeds,
    /// so that every few kinds meet without the others.
    pub fn drawn(rng: &mut Rng) -> Self {
        if rng.chance(500) {
            let theme = *rng.pick(THEMES);
            return Self::only(theme.faults, rng.between(200_000, 1_000_000));
        }
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

/// Faults that together show one of the classic mistakes.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// The mistake.
    pub name: &'static str,
    /// As many schedules as find the loss of every rule against it.
    pub schedules: u64,
    /// What it takes to see it.
    pub faults: &'static [Fault],
    /// The longest time between two faults, in milliseconds.
    every_max: u64,
}

impl Theme {
    /// A world with nothing but these faults.
    #[must_use]
    pub fn mix(&self) -> Mix {
        Mix::only(self.faults, self.every_max * 1_000)
    }
}

macro_rules! themes {
    ($($name:literal, $schedules:literal, $every_max:literal: $($fault:ident)*;)*) => {
        /// Themes of the classic mistakes (`tests/mistakes.rs`).
        pub const THEMES: &[Theme] = &[$(Theme {
            name: $name,
            schedules: $schedules,
            faults: &[$(Fault::$fault),*],
            every_max: $every_max,
        },)*];
    };
}

themes! {
    "m1", 150, 500: PowerCut PowerCutAll OwnerPowerCut TakeOver;
    "m2", 150, 500: PowerCut Restart TakeOver TakeOverTwice RotPromise SlowDisk QuickDisk;
    "m3", 1_500, 200: TakeOver TakeOverTwice Usurp CatalogSlow;
    "m4", 1_500, 500: TakeOver TakeOverTwice Usurp Isolate Mend SlowDisk QuickDisk;
    "m5", 1_500, 500: TakeOver TakeOverTwice PowerCut OwnerPowerCut Isolate Mend CatalogSlow RotTail Wish;
    "m7", 150, 500: Wipe TakeOver Kill Isolate Mend;
    "m8", 150, 500: OldImage ForeignDisk Kill TakeOver Isolate Mend;
    "m9", 150, 500: Wipe PowerCutAll PowerCut Isolate Mend;
    "m10", 1_500, 500: RotTail RotMiddle Strand TakeOver Misdirect;
    "m11", 150, 500: RotIdentity RotPromise RotNote RotTail PowerCut TakeOver;
    "m12", 1_500, 500: OwnerPause OwnerStall Usurp TakeOver CatalogSlow HandOver;
    "m16", 150, 500: Reset TakeOver TakeOverTwice Restart Wipe CutLink Mend;
    "m17", 1_500, 500: Wish Wipe TakeOver TakeOverTwice Flap CatalogSlow OwnerPowerCut Isolate Mend;
    "m18", 150, 500: Wish OldImage Wipe Restart TakeOver Isolate Mend;
    "m21", 150, 500: FailSync FailWrite PowerCut OwnerPowerCut TakeOver;
    "m22", 150, 500: DiskFull DiskFreed FailWrite PowerCut Kill TakeOver;
    "disks", 150, 500: RotLive Misdirect ReadError RotNote ForeignDisk Kill TakeOver;
    "clocks", 1_500, 500: WallJump WallSet ClockJump Sleep OwnerStall Usurp TakeOver;
    "m25", 1_500, 500: CatalogBack Wish TakeOver OwnerPowerCut Restart OwnerPause;
    "m19", 1_500, 500: Trim TrimOthers Wipe TakeOver Usurp Isolate Mend OwnerPowerCut PowerCut;
    "trimmed", 600, 500: Trim TrimOthers RotLive RotTail RotMiddle RotBase Restart TakeOver Isolate Mend;
    "catalog", 150, 500: CatalogMute CatalogAway CatalogSlow TakeOver OwnerPowerCut Wish;
}
