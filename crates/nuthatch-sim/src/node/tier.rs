//! The tier of a node's log: its sealed segments move to a store in memory, by steps that virtual time
//! passes in, so that everything else goes on meanwhile.

mod baton;
mod executor;
mod store;

pub use baton::Progress;
pub use store::{Store, StoreFaults};

use super::server::LOGS;
use super::time::MachineTime;
use super::world::{Happening, World};
use crate::rng::Rng;
use baton::Stepping;
use executor::VirtualExecutor;
use nuthatch_log::env::MemDisk;
use nuthatch_object::{Bucket, BucketOptions, Step, TierOptions, TieredDisk};
use nuthatch_streams::steady::TimeSource;
use object_store::path::Path;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::Connection;

const MILLI: u64 = 1_000;
/// How long a request is repeated.
const RETRY_FOR: Duration = Duration::from_secs(3);
/// Steps in which everything that is due must have moved.
const STEPS_MAX: u32 = 2_000;

/// When segments move, and what is kept of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierStyle {
    pub local_max_bytes: Option<u64>,
    pub after_age: Option<Duration>,
    pub cache_bytes: usize,
    pub part_bytes: u64,
}

impl TierStyle {
    /// Two of three nodes have one.
    pub fn drawn(rng: &mut Rng) -> Option<Self> {
        let by_size = rng.chance(600);
        let style = Self {
            local_max_bytes: by_size.then(|| *rng.pick(&[0, 24 << 10, 64 << 10])),
            after_age: (!by_size || rng.chance(200))
                .then(|| Duration::from_millis(rng.between(0, 3_000))),
            cache_bytes: *rng.pick(&[0, 64 << 10]),
            part_bytes: rng.between(1_000, 8_000),
        };
        rng.chance(667).then_some(style)
    }
}

impl World {
    /// The tier of a log goes on after so long.
    pub(super) fn move_on_after(&mut self, log: usize, delay: u64) {
        self.schedule.after(delay, Happening::Moves { life: self.life, log });
    }

    /// The tier of a log goes on until time has to pass, or nothing is due.
    pub(super) fn move_segments(&mut self, log: usize) {
        let progress = self.server.as_mut().and_then(|server| server.hosts[log].move_on());
        let now = self.schedule.now();
        let step = match progress {
            Some(Progress::Ended(step)) => step,
            Some(Progress::Rests(time)) => {
                let micros = u64::try_from(time.as_nanos().div_ceil(1000)).expect("a short time");
                return self.move_on_after(log, micros);
            }
            None => return,
        };
        let pause = match &step {
            Ok(Step::Idle(_)) => self.schedule.rng.between(20 * MILLI, 300 * MILLI),
            Ok(step) => {
                self.summary.tiered += u64::from(matches!(step, Step::Moved(_)));
                self.summary.untiered += u64::from(matches!(step, Step::Removed(_)));
                self.schedule.rng.between(1, 20 * MILLI)
            }
            Err(_) => {
                self.summary.tier_failures += 1;
                self.schedule.rng.between(100 * MILLI, 2_000 * MILLI)
            }
        };
        if !matches!(step, Ok(Step::Idle(_))) {
            self.schedule.trace.record(now, &format!("{} {step:?}", LOGS[log]));
        }
        self.move_on_after(log, pause);
    }
}

/// The tier of an open log.
pub struct LogTier {
    disk: Arc<TieredDisk>,
    executor: VirtualExecutor,
    time: MachineTime,
    step: Option<Stepping<io::Result<Step>>>,
}

impl LogTier {
    /// Puts the store behind the disk of the log `name`.
    pub fn open(
        (name, local): (&str, &MemDisk),
        store: &Store,
        time: &MachineTime,
        style: TierStyle,
        salt: u64,
    ) -> io::Result<Self> {
        let executor = VirtualExecutor::new(time.clone());
        let way = Connection { store: store.clone(), executor: executor.clone() };
        let bucket = Bucket::on(
            Arc::new(executor.clone()),
            Arc::new(way),
            Path::from(name),
            format!("store/{name}"),
            BucketOptions { retry_for: RETRY_FOR, ..BucketOptions::default() },
        );
        let options = TierOptions {
            who: name.to_owned(),
            after_age: style.after_age,
            local_max_bytes: style.local_max_bytes,
            cache_bytes: style.cache_bytes,
            part_bytes: style.part_bytes,
            seed: salt,
            ..TierOptions::default()
        };
        let disk = TieredDisk::open(Arc::new(local.clone()), Arc::new(bucket), options)?;
        Ok(Self { disk: Arc::new(disk), executor, time: time.clone(), step: None })
    }

    pub fn disk(&self) -> &Arc<TieredDisk> {
        &self.disk
    }

    fn now(&self) -> SystemTime {
        let nanos = u64::try_from(self.time.wall_nanos()).expect("after 1970");
        SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
    }

    /// Goes on with the step under way, or with the next one, until time has to pass.
    pub fn go_on(&mut self) -> Progress<io::Result<Step>> {
        let (disk, now) = (Arc::clone(&self.disk), self.now());
        let step = self.step.get_or_insert_with(|| Stepping::new(move || disk.step(now)));
        self.executor.set_step(Some(Arc::clone(step.baton())));
        let progress = step.go_on();
        if matches!(progress, Progress::Ended(_)) {
            self.step = None;
            self.executor.set_step(None);
        }
        progress
    }

    /// Moves all that is due, without time passing; none may be under way.
    pub fn move_all(&self) -> io::Result<()> {
        for _ in 0..STEPS_MAX {
            if let Step::Idle(wait) = self.disk.step(self.now())?
                && wait != Some(Duration::ZERO)
            {
                return Ok(());
            }
        }
        Err(io::Error::other("segments move for ever"))
    }
}

impl Drop for LogTier {
    /// A step under way has no answer any more, and ends.
    fn drop(&mut self) {
        self.executor.end();
    }
}
