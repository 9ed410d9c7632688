//! Opening a log: check the chain, find the end, rebuild the index, replay into the machine. All of
//! that only reads; what is to be changed on the disk is noted, and done when nothing is left that
//! could be refused.

mod chain_check;
mod checkpoints;
mod replay;
mod settle;
pub mod standby;
mod tail;
mod torn;

use crate::catalog::{Catalog, CatalogError, SegmentEntry};
use crate::env::{Clock, Disk, Entropy, OwnableDisk, SystemClock, SystemEntropy, Tenure};
use crate::frame::FrameFault;
use crate::identity::{IDENTITY_FILE, Identity, IdentityFault};
use crate::index::Index;
use crate::keys::{KeyId, Keyring};
use crate::later::{Later, Unusable};
use crate::machine::Machine;
use crate::options::LogOptions;
use crate::sealed_segments::TIER_NOTE;
use crate::segment::SegmentWriter;
use crate::segment::scan::ScanPoint;
use crate::segment::writer::SegmentShape;
use crate::sequencer::{LogCore, LogInner, Parts, Recovered, Segments};
use crate::stats::{LogStats, set};
use crate::store::{Store, TMP_DIR, TORN_DIR};
use crate::types::{Epoch, Lsn};
use chain_check::Link;
use settle::Todo;
use standby::Standby;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest `segment_bytes`.
const MAX_SEGMENT_OPTION_BYTES: u64 = 1 << 30;

/// The largest `frame_bytes`.
const MAX_FRAME_OPTION_BYTES: usize = 64 << 20;

/// Report of opening a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Segments in the chain that have a file.
    pub segments: u64,
    /// Frames read.
    pub frames: u64,
    /// Records read from frames.
    pub records: u64,
    /// Messages indexed from footers, without reading frames.
    pub indexed: u64,
    /// How often a frame was read for states of streams behind the checkpoint.
    pub state_frames: u64,
    /// Frames at the end that were cut off because they were never completely written.
    pub torn_frames: u64,
    /// Bytes cut off with them, kept in `torn/`.
    pub torn_bytes: u64,
    /// Checkpoints and footers that could not be used: kept in `torn/`, or left where they are
    /// because only reading them failed.
    pub unusable: u64,
    /// Position up to which a checkpoint spared the replay; with a standby, that of the newest one.
    pub checkpoint: Option<Lsn>,
    /// Position up to which a standby has read the log; 0 without one.
    pub standby: Lsn,
    /// Last position in the log.
    pub last: Lsn,
    /// Epoch of this owner.
    pub epoch: Epoch,
    /// True if the log had been closed cleanly.
    pub clean: bool,
    /// How long it took.
    pub took: Duration,
}

/// Damage that keeps a log from being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// A segment's first block.
    SegmentHeader,
    /// A frame.
    Frame(FrameFault),
    /// A frame's records, although its checksum fits.
    Record,
    /// The file ends before its frames do.
    Short,
    /// The frames end before the catalog says.
    MissingFrames,
}

impl std::fmt::Display for DamageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SegmentHeader => "its first block",
            Self::Frame(FrameFault::Blank) => "zeros where a frame was",
            Self::Frame(FrameFault::Header) => "a frame's header",
            Self::Frame(FrameFault::Body) => "a frame's records",
            Self::Frame(FrameFault::Short) => "the file ends inside a frame",
            Self::Frame(FrameFault::Chain) => "a frame that does not follow the one before",
            Self::Frame(FrameFault::Unknown) => "a frame of a later version",
            Self::Frame(FrameFault::Key(_)) => "a frame under another key than its segment",
            Self::Frame(FrameFault::Seal) => {
                "a frame's records, although its checksum fits: they are not what was encrypted"
            }
            Self::Record => "records that make no sense",
            Self::Short => "the file ends before its frames do",
            Self::MissingFrames => "frames are missing",
        })
    }
}

/// Why a log was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the log in {place} is in use by another process")]
    Locked {
        /// The place.
        place: String,
    },
    /// An option makes no sense.
    #[error("option {option} of the log must be {must_be}")]
    Option {
        /// Its name.
        option: &'static str,
        /// The expected value.
        must_be: &'static str,
    },
    /// The disk failed.
    #[error("cannot open the log: {context}: {source}")]
    Io {
        /// While doing what.
        context: String,
        /// The error.
        source: io::Error,
    },
    /// The catalog cannot be used.
    #[error("the log in {place}: {source}")]
    Catalog {
        /// The place.
        place: String,
        /// Why.
        source: CatalogError,
    },
    /// A segment of this log was written after the catalog was.
    #[error("the catalog is older than segment {segment}, which it does not know")]
    Stale {
        /// Name of its file.
        segment: String,
    },
    /// A segment of the chain has no file.
    #[error("segment {segment} (positions {base} to {end}) is missing")]
    Missing {
        /// Name of its file.
        segment: String,
        /// First position in it.
        base: Lsn,
        /// Last position in it.
        end: Lsn,
    },
    /// Data that was durable is damaged.
    #[error("segment {segment} is damaged at offset {offset} (position {lsn}): {kind}")]
    Damaged {
        /// Name of its file.
        segment: String,
        /// Offset in the file.
        offset: u64,
        /// Position of the frame that should be there.
        lsn: Lsn,
        /// The fault, in words.
        kind: DamageKind,
    },
    /// Written by a later version.
    #[error("{file} is {what}; {}", .what.remedy())]
    Unknown {
        /// Name of the file.
        file: String,
        /// The part of a later version.
        what: Later,
    },
    /// Encrypted under a key that is not configured.
    #[error(
        "frames of segment {segment} are encrypted with key {key_id}; the configured keys are: {configured}. \
         Give the key that was used as jetstream.key, or as jetstream.prev_key beside a new one, until \
         nothing is encrypted with it any more (nuthatch log inspect shows what is)"
    )]
    Key {
        /// Name of the segment's file.
        segment: String,
        /// Name of the key.
        key_id: KeyId,
        /// Names of the keys that there are.
        configured: String,
    },
    /// A checkpoint covers positions that the log does not have any more.
    #[error(
        "{checkpoint} covers position {covers}, and the log ends with {end}: what lies between was \
         acknowledged and is gone. Bring back the missing bytes (the newest segment, a file system \
         that was not mounted), or run nuthatch doctor, which gives them up"
    )]
    Ahead {
        /// Name of the checkpoint.
        checkpoint: String,
        /// The position that it covers.
        covers: Lsn,
        /// The last position in the log.
        end: Lsn,
    },
    /// The directory says that it is another log's, or what it says is damaged.
    #[error("the file {IDENTITY_FILE} in {place} is not this log's: {what}")]
    Identity {
        /// The place.
        place: String,
        /// Its content.
        what: String,
    },
}

impl OpenError {
    /// True if `nuthatch doctor` can say more, and mend it.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Catalog { source, .. } => matches!(source, CatalogError::Damaged { .. }),
            Self::Missing { .. }
            | Self::Damaged { .. }
            | Self::Stale { .. }
            | Self::Ahead { .. }
            | Self::Identity { .. } => true,
            Self::Locked { .. }
            | Self::Option { .. }
            | Self::Io { .. }
            | Self::Unknown { .. }
            | Self::Key { .. } => false,
        }
    }

    /// The operating system's error, if that is what it is.
    #[must_use]
    pub const fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } | Self::Catalog { source: CatalogError::Io(source), .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

/// Adds what was being done to an I/O error.
fn io_context(context: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let context = context.into();
    move |source| OpenError::Io { context, source }
}

/// Entry points.
pub struct Log;

impl Log {
    /// Opens a log on `disk`, creating it if there is none, and replays it into `machine`.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed then.
    pub fn open<M: Machine>(
        options: LogOptions,
        disk: Arc<dyn OwnableDisk>,
        clock: Arc<dyn Clock>,
        entropy: Box<dyn Entropy>,
        machine: M,
    ) -> Result<(LogCore<M>, RecoveryReport), OpenError> {
        Recovery::run(options, disk, clock, entropy, || machine, None)
    }

    /// As [`Log::open`] with what a standby has read of the log, if that fits: only what it has not is read. Otherwise that is
    /// reported, and all is read into the machine that `from` makes.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn open_from<M: Machine>(
        options: LogOptions,
        disk: Arc<dyn OwnableDisk>,
        clock: Arc<dyn Clock>,
        entropy: Box<dyn Entropy>,
        (standby, from): (Option<Standby<M>>, impl FnOnce() -> M),
    ) -> Result<(LogCore<M>, RecoveryReport), OpenError> {
        Recovery::run(options, disk, clock, entropy, from, standby)
    }

    /// Opens a log on the files in `options.dir`, with the system's clock and randomness.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_local<M: Machine>(
        options: LogOptions,
        machine: M,
    ) -> Result<(LogCore<M>, RecoveryReport), OpenError> {
        let place = options.dir.display().to_string();
        let disk = crate::env::RealDisk::open(&options.dir)
            .map_err(io_context(format!("directory {place}")))?;
        let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
        Self::open(options, Arc::new(disk), Arc::new(clock), Box::new(entropy), machine)
    }

    /// Opens an empty log in memory of at most `budget_bytes`.
    ///
    /// # Errors
    /// [`OpenError`], hardly.
    pub fn open_memory<M: Machine>(
        options: LogOptions,
        budget_bytes: u64,
        machine: M,
    ) -> Result<(LogCore<M>, RecoveryReport), OpenError> {
        let disk = crate::env::RamDisk::new(budget_bytes);
        let segment_bytes = options.segment_bytes.min((budget_bytes / 16).max(64 << 10));
        let first_segment_bytes = options.first_segment_bytes.min(segment_bytes);
        let options = LogOptions { segment_bytes, first_segment_bytes, ..options };
        let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
        Self::open(options, Arc::new(disk), Arc::new(clock), Box::new(entropy), machine)
    }
}

pub(crate) struct Recovery<M> {
    pub(crate) options: LogOptions,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) keys: Keyring,
    pub(crate) machine: M,
    /// The chain as it will be.
    pub(crate) catalog: Catalog,
    /// The chain as it is on the disk.
    stored: Catalog,
    /// Changes to the disk, made when everything has been read.
    pub(crate) todo: Vec<Todo>,
    links: Vec<Link>,
    footer_bytes: usize,
    /// What the state before was read from.
    states_of: Option<replay::ReadFrame>,
    index: Index,
    segments: Segments,
    /// Where the frames of the segment that was open end, and where the last of them is.
    tail_end: Option<(ScanPoint, Option<u64>)>,
    pub(crate) report: RecoveryReport,
}

/// What a recovery begins with: options, the disk, its catalog and the keys.
type Read = (LogOptions, Arc<dyn Disk>, Catalog, Keyring);

impl<M: Machine> Recovery<M> {
    fn run(
        options: LogOptions,
        disk: Arc<dyn OwnableDisk>,
        clock: Arc<dyn Clock>,
        mut entropy: Box<dyn Entropy>,
        from: impl FnOnce() -> M,
        standby: Option<Standby<M>>,
    ) -> Result<(LogCore<M>, RecoveryReport), OpenError> {
        let started = Instant::now();
        check_options(&options)?;
        let tenure = prepare(&*disk)?;
        let disk: Arc<dyn Disk> = disk;
        let catalog = load_catalog(&*disk, &mut *entropy)?;
        let identity = load_identity(&*disk, catalog.log_id)?;
        let keys = if disk.medium().in_memory {
            Keyring::default()
        } else {
            Keyring::new(&options.keys, &mut *entropy)
        };
        let standby =
            standby.and_then(|standby| standby.caught_up(&disk, &catalog, &options.report));
        let read = (options, disk, catalog, keys);
        let mut recovery = match standby {
            Some(standby) => Self::of_standby(read, standby)?,
            None => Self::new(read, from()).read()?,
        };
        recovery.settle()?;
        if identity.is_none() && recovery.disk.medium().is_local {
            recovery.identify(&mut *entropy)?;
        }
        recovery.count_live();
        recovery.report.took = started.elapsed();
        Ok(recovery.finish(clock, entropy, tenure))
    }

    fn new((options, disk, catalog, keys): Read, machine: M) -> Self {
        let report = RecoveryReport { clean: catalog.clean, ..RecoveryReport::default() };
        Self {
            options,
            disk,
            machine,
            stored: catalog.clone(),
            catalog: Catalog { key_id: keys.current(), ..catalog },
            keys,
            todo: Vec::new(),
            links: Vec::new(),
            footer_bytes: 0,
            states_of: None,
            index: Index::default(),
            segments: Segments::default(),
            tail_end: None,
            report,
        }
    }

    /// Reads all of the log. Nothing is changed on the disk.
    fn read(mut self) -> Result<Self, OpenError> {
        self.check_files()?;
        self.open_chain()?;
        self.replay()?;
        Ok(self)
    }

    fn finish(
        mut self,
        clock: Arc<dyn Clock>,
        mut entropy: Box<dyn Entropy>,
        tenure: Box<dyn Tenure>,
    ) -> (LogCore<M>, RecoveryReport) {
        let epoch = tenure.epoch().unwrap_or(Epoch(self.catalog.epoch.0 + 1));
        let last = self.catalog.end();
        (self.report.epoch, self.report.last) = (epoch, last);
        let stats = Arc::new(LogStats::default());
        set(&stats.torn_frames, self.report.torn_frames);
        set(&stats.torn_bytes, self.report.torn_bytes);
        set(&stats.unusable_files, self.report.unusable);
        set(&stats.segments, self.report.segments);
        let newest = self.catalog.segments.iter().max_by_key(|entry| entry.end);
        let recovered = Recovered {
            epoch: newest.map_or(Epoch(0), |entry| entry.epoch),
            checkpoint: self.report.checkpoint.unwrap_or_default(),
            replayed: self.report.records,
        };
        let store = Arc::new(Store::new(self.disk, stats, self.catalog, epoch, self.keys));
        let shape = SegmentShape {
            block_bytes: self.options.block_bytes,
            full_bytes: self.options.segment_bytes,
            frames: self.options.segment_frames,
        };
        let writer = SegmentWriter::new(Arc::clone(&store), shape, entropy.next());
        let log = LogInner::new(Parts {
            options: self.options,
            clock,
            entropy,
            store,
            index: self.index,
            segments: self.segments,
            last,
        });
        (LogCore::new(self.machine, log, writer, tenure, recovered), self.report)
    }

    /// Adds up what lives in each segment.
    fn count_live(&mut self) {
        for (stream, index) in self.index.iter() {
            for (segment, first, last) in index.stretches() {
                let live = self.machine.live_weight(stream, first, last);
                self.segments.note_live(segment, live);
            }
        }
    }
}

fn damage(entry: &SegmentEntry, offset: u64, lsn: Lsn, kind: DamageKind) -> OpenError {
    OpenError::Damaged { segment: entry.file_name(), offset, lsn, kind }
}

/// The error for malformed records in a frame whose checksum fits.
fn no_records(entry: &SegmentEntry, offset: u64, lsn: Lsn, why: Unusable) -> OpenError {
    match why {
        Unusable::Later(what) => OpenError::Unknown { file: entry.file_name(), what },
        Unusable::Damaged(_) => damage(entry, offset, lsn, DamageKind::Record),
    }
}

fn check_options(options: &LogOptions) -> Result<(), OpenError> {
    let block = options.block_bytes;
    let checks = [
        (
            block.is_power_of_two() && (64..=4096).contains(&block),
            "block_bytes",
            "a power of two from 64 to 4096",
        ),
        (
            (u64::from(block)..=MAX_SEGMENT_OPTION_BYTES).contains(&options.segment_bytes),
            "segment_bytes",
            "at least a block and at most 1 GiB",
        ),
        (
            (1..=MAX_FRAME_OPTION_BYTES).contains(&options.frame_bytes),
            "frame_bytes",
            "from 1 to 64 MiB",
        ),
        (options.compact_below_percent <= 90, "compact_below_percent", "at most 90"),
    ];
    match checks.into_iter().find(|(fits, ..)| !fits) {
        None => Ok(()),
        Some((_, option, must_be)) => Err(OpenError::Option { option, must_be }),
    }
}

fn prepare(disk: &dyn OwnableDisk) -> Result<Box<dyn Tenure>, OpenError> {
    let tenure = disk.take().map_err(io_context("locking the directory"))?;
    let tenure = tenure.ok_or_else(|| OpenError::Locked { place: disk.label() })?;
    for dir in [TMP_DIR, TORN_DIR] {
        disk.create_dir(dir).map_err(io_context(dir))?;
    }
    if disk.medium().is_local {
        disk.sync_dir("").map_err(io_context("the directory"))?;
    }
    Ok(tenure)
}

/// The identity of a directory, which must be that of the log in it.
fn load_identity(disk: &dyn Disk, log_id: u64) -> Result<Option<Identity>, OpenError> {
    if !disk.medium().is_local {
        return Ok(None);
    }
    let wrong = |what: String| OpenError::Identity { place: disk.label(), what };
    match Identity::load(disk) {
        Ok(Some(identity)) if identity.log_id != log_id => {
            Err(wrong(format!("it names log {:016x}, not {log_id:016x}", identity.log_id)))
        }
        Ok(identity) => Ok(identity),
        Err(IdentityFault::Io(error)) => Err(io_context(IDENTITY_FILE)(error)),
        Err(IdentityFault::Unusable(Unusable::Later(what))) => {
            Err(OpenError::Unknown { file: IDENTITY_FILE.to_owned(), what })
        }
        Err(IdentityFault::Unusable(why)) => Err(wrong(why.to_string())),
    }
}

/// Error for files without a catalog: a log's first file is its catalog, so that any other one of
/// its files proves that it was lost.
pub(crate) fn proves_a_log(name: &str) -> Option<&'static str> {
    match name {
        _ if name.ends_with(".seg") => Some("it is missing although there are segments"),
        IDENTITY_FILE => Some("it is missing although the directory has an identity"),
        TIER_NOTE => Some("it is missing although segments were moved to a bucket"),
        _ if name.starts_with(crate::checkpoint::PREFIX) => {
            Some("it is missing although there are checkpoints")
        }
        _ => None,
    }
}

/// Reads the catalog, or begins one before anything else is written.
fn load_catalog(disk: &dyn Disk, entropy: &mut dyn Entropy) -> Result<Catalog, OpenError> {
    let place = disk.label();
    let loaded = Catalog::load(disk);
    let loaded = loaded.map_err(|source| OpenError::Catalog { place: place.clone(), source })?;
    if let Some(catalog) = loaded {
        return Ok(catalog);
    }
    let names = crate::env::again(|| disk.list("")).map_err(io_context(place.clone()))?;
    if let Some(what) = names.iter().find_map(|name| proves_a_log(name)) {
        return Err(OpenError::Catalog { place, source: CatalogError::Damaged { what } });
    }
    let catalog = Catalog::new(entropy.next());
    catalog.store(disk).map_err(io_context(format!("catalog in {place}")))?;
    Ok(catalog)
}
