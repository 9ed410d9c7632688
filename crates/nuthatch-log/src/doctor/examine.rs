//! The examination as a whole: what is looked at, in which order, and what comes out.

use super::apply::KEPT_DIR;
use super::finding::{Finding, Kind, Severity};
use super::inventory::{Inventory, Lost, Uncertain};
use super::{StateDecoder, StreamPreview};
use crate::catalog::{CATALOG_FILE, Catalog};
use crate::env::{Change, Disk, OverlayDisk, SystemEntropy, read_exact_at};
use crate::identity::{IDENTITY_FILE, Identity, IdentityFault};
use crate::keys::{KeyId, Keyring, Keys};
use crate::later::Unusable;
use crate::segment::SegmentId;
use crate::store::{RESERVE_FILE, TMP_DIR, TORN_DIR};
use crate::types::{Lsn, StreamId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

/// File that records what earlier repairs gave up, so that it is reported once.
const LOST_FILE: &str = "doctor/lost";

/// More of that file is not read.
const LOST_FILE_MAX_BYTES: usize = 16 << 20;

/// Options of a diagnosis.
#[derive(Clone, Default, Debug)]
pub struct DoctorOptions {
    /// Set a changed byte back also where the frame is so large that chance could have made the
    /// explanation up.
    pub likely: bool,
    /// Keys of what is encrypted. What is under another one is told as that, and nothing is mended then.
    pub keys: Keys,
}

/// Why a log could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// A server has it open.
    #[error("a server is using it: stop the server first")]
    InUse,
    /// There is neither a catalog nor another file of a log.
    #[error("there is no log")]
    NoLog,
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Findings, and the state of the log after repair.
#[derive(Debug)]
pub struct Diagnosis {
    /// Identity of the log.
    pub log_id: u64,
    /// Everything found, the worst first.
    pub findings: Vec<Finding>,
    /// Messages that cannot be read any more.
    pub lost: Vec<Lost>,
    /// Streams of which newer messages may be lost that nothing tells of: their sequences are skipped.
    pub uncertain: Vec<Uncertain>,
    /// The streams as a server shows them after mending, or why it would not open.
    pub streams: Result<Vec<StreamPreview>, String>,
    /// The changes of the repair, by file.
    pub changes: BTreeMap<String, Change>,
}

impl Diagnosis {
    /// True if nothing is damaged. Notes do not count.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.streams.is_ok() && self.findings.iter().all(|f| f.kind.severity() == Severity::Note)
    }

    /// Adds findings about the medium that holds the files.
    pub fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|f| std::cmp::Reverse(f.kind.severity()));
    }

    /// True if it may be mended: nothing blocks it and the mended log opens.
    #[must_use]
    pub fn is_mendable(&self) -> bool {
        let blocking = |f: &Finding| f.kind.severity() == Severity::Blocking;
        self.streams.is_ok() && !self.findings.iter().any(blocking)
    }
}

/// Examines the log on `disk`, which is only read. The caller holds its lock.
///
/// # Errors
/// [`DoctorError`].
pub fn diagnose(
    disk: &Arc<dyn Disk>,
    decoder: &dyn StateDecoder,
    options: DoctorOptions,
) -> Result<Diagnosis, DoctorError> {
    let mut examiner = Examiner {
        base: Arc::clone(disk),
        disk: Arc::new(OverlayDisk::new(Arc::clone(disk))),
        decoder,
        keys: Keyring::new(&options.keys, &mut SystemEntropy::default()),
        options,
        catalog: Catalog::new(0),
        inventory: Inventory::default(),
        findings: Vec::new(),
        holes_without_file: BTreeSet::new(),
        open_end: Lsn(0),
        end_is_guessed: false,
    };
    examiner.run()
}

/// An examination under way.
pub struct Examiner<'a> {
    /// The log as it is.
    pub(super) base: Arc<dyn Disk>,
    /// The log as it will be.
    pub(super) disk: Arc<OverlayDisk>,
    pub(super) decoder: &'a dyn StateDecoder,
    pub(super) options: DoctorOptions,
    pub(super) keys: Keyring,
    pub(super) catalog: Catalog,
    pub(super) inventory: Inventory,
    pub(super) findings: Vec<Finding>,
    /// Removed entries that may stand for a lost file.
    pub(super) holes_without_file: BTreeSet<SegmentId>,
    /// The last position in the open segment, if there is one.
    pub(super) open_end: Lsn,
    /// Nothing tells where the log ended.
    pub(super) end_is_guessed: bool,
}

impl Examiner<'_> {
    fn run(&mut self) -> Result<Diagnosis, DoctorError> {
        let is_of_a_log =
            |name: &String| name == CATALOG_FILE || crate::recovery::proves_a_log(name).is_some();
        if self.segment_names()?.is_empty() && !self.base.list("")?.iter().any(is_of_a_log) {
            return Err(DoctorError::NoLog);
        }
        self.other_files()?;
        if !self.load_catalog()? {
            return Ok(self.stopped());
        }
        self.identity();
        let before = self.catalog.clone();
        self.strays()?;
        self.look_in_torn()?;
        self.segments()?;
        if self.end_is_guessed {
            self.inventory.lost_end();
        }
        self.drop_void_states()?;
        self.checkpoints()?;
        self.repair_segment()?;
        let is_new = self.base_catalog().is_none_or(|on_disk| on_disk != self.catalog);
        if is_new || before != self.catalog {
            self.catalog.store(&*self.disk)?;
        }
        Ok(self.conclude()?)
    }

    fn base_catalog(&self) -> Option<Catalog> {
        Catalog::load(&*self.base).ok().flatten()
    }

    /// Nothing can be said beyond what was found.
    fn stopped(&mut self) -> Diagnosis {
        Diagnosis {
            log_id: self.catalog.log_id,
            findings: std::mem::take(&mut self.findings),
            lost: Vec::new(),
            uncertain: Vec::new(),
            streams: Err("it was not examined further".to_owned()),
            changes: BTreeMap::new(),
        }
    }

    fn conclude(&mut self) -> io::Result<Diagnosis> {
        let streams = if self.is_blocked() {
            Err("it was not tried, because something above must be dealt with first".to_owned())
        } else {
            self.decoder
                .preview(Arc::new(OverlayDisk::new(Arc::clone(&self.disk) as Arc<dyn Disk>)))
        };
        let known = self.known_losses();
        let lost = streams.as_ref().map_or_else(|_| Vec::new(), |s| self.inventory.lost(s, &known));
        self.remember(&lost)?;
        let changes = self.disk.changes()?;
        let mut findings = std::mem::take(&mut self.findings);
        findings.sort_by_key(|f| std::cmp::Reverse(f.kind.severity()));
        let uncertain = self.inventory.uncertain();
        let log_id = self.catalog.log_id;
        Ok(Diagnosis { log_id, findings, lost, uncertain, streams, changes })
    }

    /// Losses that earlier mendings have told: stream id, first and last sequence on a line each. An
    /// old checkpoint may still speak of those messages.
    fn known_losses(&self) -> Vec<(StreamId, u64, u64)> {
        let text = self.read_text(LOST_FILE).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split('\t');
            let id = StreamId(words.next()?.parse().ok()?);
            Some((id, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    }

    fn read_text(&self, path: &str) -> io::Result<String> {
        let file = self.disk.open(path)?;
        let len = usize::try_from(file.len()?).unwrap_or(0).min(LOST_FILE_MAX_BYTES);
        Ok(String::from_utf8_lossy(&read_exact_at(&*file, 0, len)?).into_owned())
    }

    fn remember(&self, lost: &[Lost]) -> io::Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let mut text = self.read_text(LOST_FILE).unwrap_or_default();
        for Lost { stream, name, first, last } in lost {
            let _ = writeln!(text, "{stream}\t{first}\t{last}\t{name}");
        }
        self.disk.create(LOST_FILE)?.write_at(text.as_bytes(), 0)
    }

    fn is_blocked(&self) -> bool {
        self.findings.iter().any(|f| f.kind.severity() == Severity::Blocking)
    }

    /// Notes a finding.
    pub(super) fn note(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Notes that something is encrypted under a key that was not given. Whatever is in it is neither
    /// damage nor mended.
    pub(super) fn note_encrypted(&mut self, file: &str, key: KeyId, more: &str) {
        let given = self.keys.names();
        let what = format!(
            "encrypted with key {key}, which was not given (given: {given}): what it holds was not \
             examined{more}"
        );
        self.note(Finding::new(Kind::Encrypted, file, what, ""));
    }

    /// Takes a file out of the log's way; it is kept.
    pub(super) fn set_aside(&mut self, kind: Kind, path: &str, what: String) {
        let gone = self.disk.remove(path);
        let action = match gone {
            Ok(()) => "moved out of the log's way".to_owned(),
            Err(error) => format!("it cannot be moved: {error}"),
        };
        self.note(Finding::new(kind, path, what, action));
    }

    /// The identity of the directory must be that of the log. Without one the next start gives it
    /// another: it is not the disk any more that was known by the old one.
    fn identity(&mut self) {
        let why = match Identity::load(&*self.disk) {
            Ok(Some(identity)) if identity.log_id != self.catalog.log_id => {
                format!("it names log {:016x}, not {:016x}", identity.log_id, self.catalog.log_id)
            }
            Ok(_) => return,
            Err(IdentityFault::Unusable(Unusable::Later(what))) => {
                let what = what.to_string();
                return self.note(Finding::new(Kind::LaterVersion, IDENTITY_FILE, what, ""));
            }
            Err(IdentityFault::Io(error)) => {
                let what = error.to_string();
                return self.note(Finding::new(Kind::Unreadable, IDENTITY_FILE, what, ""));
            }
            Err(why) => why.to_string(),
        };
        self.set_aside(Kind::Identity, IDENTITY_FILE, why);
    }

    /// True if a file has been taken out of the way.
    pub(super) fn is_aside(&self, path: &str) -> bool {
        self.disk.list("").is_ok_and(|names| !names.iter().any(|name| name == path))
    }

    /// Files that are not segments, catalog or checkpoints.
    fn other_files(&mut self) -> io::Result<()> {
        for name in self.base.list(TMP_DIR)? {
            let path = format!("{TMP_DIR}/{name}");
            let what = "a file under construction when the log stopped";
            let action = "the server removes it at its next start";
            self.note(Finding::new(Kind::Leftover, path, what, action));
        }
        for name in self.base.list(TORN_DIR)? {
            let path = format!("{TORN_DIR}/{name}");
            let bytes = self.base.open(&path).and_then(|file| file.len()).unwrap_or(0);
            let what = format!("{bytes} bytes that an earlier start set aside");
            let action = "never read again; remove it when you no longer want it";
            self.note(Finding::new(Kind::SetAside, path, what, action));
        }
        for name in self.base.list("")? {
            let known = name == CATALOG_FILE
                || name == RESERVE_FILE
                || name == IDENTITY_FILE
                || name.ends_with(".seg")
                || crate::sealed_segments::TIER_FILES.contains(&name.as_str())
                || name.starts_with(crate::checkpoint::PREFIX);
            if !known && name != KEPT_DIR {
                let what = "a log has no such file";
                self.note(Finding::new(Kind::UnknownFile, name, what, "left alone"));
            }
        }
        Ok(())
    }
}
