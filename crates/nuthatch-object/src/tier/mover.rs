//! Moves segments to the bucket, one step at a time, and removes those that are not needed any more.

use super::cold::{LocalRead, ends_at};
use super::disk::{NoteState, TierShared};
use super::note::{MoveStage, NoteEntry};
use super::stub::Stub;
use super::{TierOwner, check_tenant, settle};
use crate::owner::Owner;
use crate::{numbered, rules, selftest};
use nuthatch_log::env::{DiskFile, SeededEntropy, is_full};
use nuthatch_log::{Chain, Entropy, SealedSegment};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// The first pause after a failed step; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause after failed steps.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// With nothing to do, it looks again after this long at the latest: for clocks that jump.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Of a bound for the local disk, one part in this many may be ends of moved segments.
const STUBS_SHARE: u64 = 4;

/// Result of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// This segment is in the bucket only.
    Moved(String),
    /// This segment is gone from the bucket.
    Removed(String),
    /// The upload of this segment does not count and will be removed from the bucket: the segment
    /// was removed meanwhile.
    Rejected(String),
    /// This segment was found on both sides and differs: the one on the local disk counts, the other
    /// is left where it is.
    Differs(String),
    /// Nothing was to be done; the next segment is old enough after this long.
    Idle(Option<Duration>),
}

/// Does the moving.
pub struct Mover {
    shared: Arc<TierShared>,
}

/// Fails if another has taken the tier.
fn look(owner: &Owner) -> io::Result<()> {
    if rules::MOVER_LOOKS.holds() { owner.check() } else { Ok(()) }
}

/// Segments to move next.
struct Candidates {
    /// The oldest segment that is due.
    next: Option<SealedSegment>,
    /// When the next one is.
    wait: Option<Duration>,
}

impl Mover {
    /// A mover without a thread.
    pub const fn new(shared: Arc<TierShared>) -> Self {
        Self { shared }
    }

    /// A mover on a thread that ends when the disk is stopped.
    pub fn start(name: &str, shared: Arc<TierShared>) -> io::Result<()> {
        let mover = Self { shared };
        let thread = std::thread::Builder::new().name(format!("{name}-tier"));
        thread.spawn(move || mover.serve()).map(drop)
    }

    fn serve(&self) {
        let mut pause = PAUSE_FIRST;
        while !self.shared.book.lock().stopped {
            *self.shared.signal.0.lock() = false;
            match self.step(SystemTime::now()) {
                Ok(Step::Idle(wait)) => {
                    self.note_success();
                    pause = PAUSE_FIRST;
                    self.wait(wait.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN), true);
                }
                Ok(_) => {
                    self.note_success();
                    pause = PAUSE_FIRST;
                }
                Err(error) => {
                    self.note_failure(&error);
                    self.wait(pause, false);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Sleeps; less if there may be something to do, or, after a failure, if this is the end.
    fn wait(&self, longest: Duration, for_work: bool) {
        let deadline = std::time::Instant::now() + longest;
        loop {
            if self.shared.book.lock().stopped {
                return;
            }
            let (signal, changed) = &self.shared.signal;
            let mut signal = signal.lock();
            if *signal && for_work {
                return;
            }
            *signal = false;
            if changed.wait_until(&mut signal, deadline).timed_out() {
                return;
            }
        }
    }

    fn note_success(&self) {
        if self.shared.gauges.trouble.lock().take().is_some() {
            self.shared.options.report.say("segments move to the tier again");
        }
    }

    fn note_failure(&self, error: &io::Error) {
        if self.shared.book.lock().stopped {
            return;
        }
        self.shared.gauges.failures.fetch_add(1, Ordering::Relaxed);
        let text = error.to_string();
        let mut trouble = self.shared.gauges.trouble.lock();
        if trouble.is_none() {
            let place = self.shared.cold.bucket.label();
            let what = format!("no segments move to the tier {place} for now: {text}");
            self.shared.options.report.say(&what);
        }
        *trouble = Some(text);
    }

    /// Does the next thing there is to do.
    pub fn step(&self, now: SystemTime) -> io::Result<Step> {
        let Some(chain) = Chain::read(&*self.shared.local).map_err(io::Error::other)? else {
            return Ok(Step::Idle(None));
        };
        let owner = self.claim(&chain)?;
        if let Some((name, entry)) = self.first(MoveStage::Doomed) {
            return self.remove(&owner, name, &entry);
        }
        let here: BTreeSet<String> = self.shared.local.list("")?.into_iter().collect();
        if let Some((name, entry)) = self.first_on_both_sides(&here) {
            return self.finish(&owner, name, entry);
        }
        let Candidates { next, wait } = self.candidates(&chain, &here, now)?;
        match next {
            Some(segment) => self.move_away(&owner, &segment),
            None => Ok(Step::Idle(wait)),
        }
    }

    /// Makes the tier this log's and this server its only mover, once. What an earlier one had begun
    /// to upload is to be removed.
    fn claim(&self, chain: &Chain) -> io::Result<Arc<Owner>> {
        let mut slot = self.shared.owner.lock();
        if let Some(owner) = &*slot {
            return Ok(Arc::clone(owner));
        }
        let bucket = &self.shared.cold.bucket;
        let who = &self.shared.options.who;
        let mut entropy = SeededEntropy::new(self.shared.options.seed);
        let mut nonce = || u128::from(entropy.next()) << 64 | u128::from(entropy.next());
        if check_tenant(bucket, Some(chain.log_id))? == TierOwner::Nobody {
            self.refuse_another_place()?;
            selftest::run(bucket, nonce()).map_err(io::Error::other)?;
            settle(bucket, chain.log_id, who, nonce())?;
        }
        let noted = |book: &NoteState| book.note.entries.values().map(|entry| entry.epoch).max();
        let used = noted(&self.shared.book.lock()).unwrap_or(0);
        numbered::report_strangers(bucket)?;
        let owner = Arc::new(Owner::take(Arc::clone(bucket), who, nonce(), used)?);
        let mut book = self.shared.book.lock();
        self.shared.change(&mut book, |entries| {
            for entry in entries.values_mut().filter(|entry| entry.stage == MoveStage::Moving) {
                entry.stage = if rules::BEGUN_IS_UNDONE.holds() {
                    MoveStage::Doomed
                } else {
                    MoveStage::Moved
                };
            }
        })?;
        self.shared.make_spare(&book.note);
        *slot = Some(Arc::clone(&owner));
        Ok(owner)
    }

    /// A tier that holds nothing of what was moved there is another one: a directory that is not
    /// mounted any more, or a bucket that was emptied.
    fn refuse_another_place(&self) -> io::Result<()> {
        if self.shared.book.lock().note.entries.is_empty() || !rules::SAME_PLACE.holds() {
            return Ok(());
        }
        let place = self.place();
        let text = format!("segments were moved to {place}, which holds nothing: is it mounted?");
        Err(io::Error::new(io::ErrorKind::NotFound, text))
    }

    fn first(&self, stage: MoveStage) -> Option<(String, NoteEntry)> {
        let book = self.shared.book.lock();
        let mut entries = book.note.entries.iter();
        entries.find(|(_, entry)| entry.stage == stage).map(|(name, entry)| (name.clone(), *entry))
    }

    fn first_on_both_sides(&self, here: &BTreeSet<String>) -> Option<(String, NoteEntry)> {
        let book = self.shared.book.lock();
        let unmovable = self.shared.unmovable.lock();
        let mut moved =
            book.note.entries.iter().filter(|(_, entry)| entry.stage == MoveStage::Moved);
        let due =
            |(name, _): &(&String, &NoteEntry)| here.contains(*name) && !unmovable.contains(*name);
        moved.find(due).map(|(name, entry)| (name.clone(), *entry))
    }

    fn remove(&self, owner: &Owner, name: String, entry: &NoteEntry) -> io::Result<Step> {
        look(owner)?;
        self.shared.cold.remove(&name, entry)?;
        let mut book = self.shared.book.lock();
        self.shared.change(&mut book, |entries| entries.remove(&name))?;
        Ok(Step::Removed(name))
    }

    /// A server ended between the note and the removal of the local file, or the file was put back
    /// from outside. The local one counts, unless the bucket has the same.
    fn finish(&self, owner: &Owner, name: String, entry: NoteEntry) -> io::Result<Step> {
        let file = self.shared.local.open(&name)?;
        let same = self.is_the_same(&*file, &name, &entry);
        if same.inspect_err(|error| self.note_unmovable(&name, error))? {
            look(owner)?;
            let book = self.shared.book.lock();
            let still = book.note.entries.get(&name) == Some(&entry) && !book.stopped;
            if still {
                self.drop_local(&name, entry)?;
            }
            return Ok(Step::Moved(name));
        }
        let what = format!("{name} differs from what {} holds, which is left there", self.place());
        self.shared.options.report.say(&what);
        self.set_stage(&name, MoveStage::Aside)?;
        self.shared.retarget_local(&name)?;
        Ok(Step::Differs(name))
    }

    /// True if a local file is what the bucket holds. It is longer if the server ended before it was
    /// cut behind its footer.
    fn is_the_same(&self, file: &dyn DiskFile, name: &str, entry: &NoteEntry) -> io::Result<bool> {
        if !rules::LOCAL_COUNTS.holds() {
            return Ok(true);
        }
        let go_on = || self.go_on();
        Ok(file.len()? >= entry.bytes
            && ends_at(file, entry.bytes)?
            && self.shared.cold.holds(file, name, entry, &go_on)?)
    }

    /// A segment that the local disk does not read stays where it is, and the others move.
    fn note_unmovable(&self, name: &str, error: &io::Error) {
        if error.get_ref().is_some_and(|inner| inner.is::<LocalRead>()) {
            self.shared.unmovable.lock().insert(name.to_owned());
        }
    }

    fn set_stage(&self, name: &str, stage: MoveStage) -> io::Result<()> {
        let mut book = self.shared.book.lock();
        self.shared.change(&mut book, |entries| {
            if let Some(entry) = entries.get_mut(name) {
                entry.stage = stage;
            }
        })
    }

    fn go_on(&self) -> io::Result<()> {
        if self.shared.book.lock().stopped {
            return Err(io::Error::other("the log is being closed"));
        }
        Ok(())
    }

    /// The local file goes; who has it open reads from the bucket.
    fn drop_local(&self, name: &str, entry: NoteEntry) -> io::Result<()> {
        self.shared.retarget(name, entry);
        self.shared.local.remove(name)?;
        self.shared.local.sync_dir("")
    }

    /// Which segment moves next: the oldest that is due. One that lies before a segment that has moved
    /// is due, however young its file is: compaction made it of old ones.
    fn candidates(
        &self,
        chain: &Chain,
        here: &BTreeSet<String>,
        now: SystemTime,
    ) -> io::Result<Candidates> {
        let local = self.shared.count_local()?;
        let bound = self
            .shared
            .options
            .local_max_bytes
            .map_or(u64::MAX, |most| most.saturating_sub(self.shared.options.headroom_bytes));
        let (movable, newest_moved) = self.movable(chain, here);
        // A disk that others fill is not to become full either.
        let short = (2 * self.shared.options.headroom_bytes)
            .saturating_sub(self.shared.local.free_bytes()?);
        let mut excess = local.saturating_sub(bound).max(short);
        self.shared.first_seen.lock().retain(|name, _| here.contains(name));
        let (mut next, mut wait, mut waiting) = (None, None::<Duration>, 0);
        for segment in movable {
            let left = self.time_left(segment, now)?;
            let old = newest_moved.is_some_and(|newest| segment.base < newest);
            if old || excess > 0 || left == Some(Duration::ZERO) {
                waiting += 1;
                excess = excess.saturating_sub(segment.bytes);
                next.get_or_insert_with(|| segment.clone());
            } else {
                wait = wait.into_iter().chain(left).min();
            }
        }
        self.shared.gauges.waiting_segments.store(waiting, Ordering::Relaxed);
        Ok(Candidates { next, wait })
    }

    /// Sealed segments that are here and not noted, and the first position of the newest that was
    /// moved.
    fn movable<'a>(
        &self,
        chain: &'a Chain,
        here: &BTreeSet<String>,
    ) -> (Vec<&'a SealedSegment>, Option<nuthatch_log::Lsn>) {
        let book = self.shared.book.lock();
        let noted = |segment: &SealedSegment| book.note.entries.get(&segment.file);
        let moved = chain
            .sealed
            .iter()
            .filter(|segment| noted(segment).is_some_and(|entry| entry.stage == MoveStage::Moved));
        let newest = moved.map(|segment| segment.base).max();
        let unmovable = self.shared.unmovable.lock();
        let movable = chain.sealed.iter().filter(|segment| {
            let name = &segment.file;
            here.contains(name) && noted(segment).is_none() && !unmovable.contains(name)
        });
        (movable.collect(), newest)
    }

    /// How long until a segment is old enough; `None`: age does not count.
    fn time_left(&self, segment: &SealedSegment, now: SystemTime) -> io::Result<Option<Duration>> {
        let Some(after) = self.shared.options.after_age else { return Ok(None) };
        let mut seen = self.shared.first_seen.lock();
        let first_seen = *seen.entry(segment.file.clone()).or_insert(now);
        let sealed = match self.shared.local.modified(&segment.file) {
            Ok(modified) => modified.map_or(first_seen, |modified| modified.min(first_seen)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => first_seen,
            Err(error) => return Err(error),
        };
        let age = now.duration_since(sealed).unwrap_or_default();
        Ok(Some(after.saturating_sub(age)))
    }

    fn move_away(&self, owner: &Owner, segment: &SealedSegment) -> io::Result<Step> {
        let name = segment.file.clone();
        let file = match self.shared.local.open(&name) {
            Ok(file) => file,
            // Compaction was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Step::Idle(Some(Duration::ZERO)));
            }
            Err(error) => return Err(error),
        };
        if !self.is_all(&*file, segment)? {
            return Ok(Step::Idle(Some(Duration::ZERO)));
        }
        let (stage, epoch) = (MoveStage::Moving, owner.epoch());
        let part_bytes = self.shared.options.part_bytes.max(1);
        let entry = NoteEntry { stage, epoch, bytes: segment.bytes, part_bytes };
        let begun = self.begin(&name, entry)?;
        if !begun {
            return Ok(Step::Idle(Some(Duration::ZERO)));
        }
        let copied = self.copy(owner, &*file, segment, &entry).and_then(|same| {
            let text = || format!("{} did not give back what was put for {name}", self.place());
            if same { Ok(()) } else { Err(io::Error::other(text())) }
        });
        match copied {
            Ok(()) => self.commit(owner, name, entry),
            Err(error) => {
                self.give_up(owner, &name, &error);
                Err(error)
            }
        }
    }

    /// True if the file holds nothing but the segment. Torn bytes for which there was no room elsewhere
    /// lie behind it: they stay, and the segment with them, until the log has set them aside.
    fn is_all(&self, file: &dyn DiskFile, segment: &SealedSegment) -> io::Result<bool> {
        let name = &segment.file;
        let all = ends_at(file, segment.bytes);
        let all = all.inspect_err(|error| self.note_unmovable(name, error))?
            || !rules::BYTES_BEHIND_KEPT.holds();
        if !all {
            let what = "has bytes behind its end that are kept: it does not move to the tier";
            self.shared.options.report.say(&format!("{name} {what}"));
            self.shared.unmovable.lock().insert(name.clone());
        }
        Ok(all)
    }

    /// Uploaded objects are removed as soon as the bucket answers again. The next attempt uses
    /// another epoch: a removal that arrives late must not hit its objects.
    fn give_up(&self, owner: &Owner, name: &str, error: &io::Error) {
        self.note_unmovable(name, error);
        if let Err(error) = self.set_stage(name, MoveStage::Doomed) {
            // The next start finds the move unfinished; until then the segment stays here.
            self.shared
                .options
                .report
                .say(&format!("the move of {name} is not taken back: {error}"));
        }
        if !owner.is_fenced() && rules::ATTEMPT_OF_ITS_OWN.holds() {
            *self.shared.owner.lock() = None;
        }
    }

    fn place(&self) -> &str {
        self.shared.cold.bucket.label()
    }

    /// Notes that a move begins, unless the segment is gone by now.
    fn begin(&self, name: &str, entry: NoteEntry) -> io::Result<bool> {
        let mut book = self.shared.book.lock();
        if !self.shared.local.list("")?.iter().any(|here| here == name) {
            return Ok(false);
        }
        if rules::MOVE_NOTED.holds() {
            self.shared.change(&mut book, |entries| entries.insert(name.to_owned(), entry))?;
        } else {
            book.note.entries.insert(name.to_owned(), entry);
        }
        Ok(true)
    }

    /// Uploads and compares; the segment's ends are kept here.
    fn copy(
        &self,
        owner: &Owner,
        file: &dyn DiskFile,
        segment: &SealedSegment,
        entry: &NoteEntry,
    ) -> io::Result<bool> {
        let go_on = || self.go_on();
        self.shared.cold.upload(file, &segment.file, entry, &go_on)?;
        if !self.shared.cold.holds(file, &segment.file, entry, &go_on)? {
            return Ok(false);
        }
        if self.has_room_for_stub(segment) {
            // Without them the bucket is asked: on a full disk, for one.
            let (local, name) = (&*self.shared.local, &segment.file);
            match Stub::write(local, name, file, segment.data_end, segment.bytes) {
                Err(error) if !is_full(&error) => {
                    let what = format!("the ends of {name} are not kept here: {error}");
                    self.shared.options.report.say(&what);
                }
                _ => {}
            }
        }
        look(owner)?;
        Ok(true)
    }

    /// The ends of moved segments may take a part of what the log may have of the local disk.
    fn has_room_for_stub(&self, segment: &SealedSegment) -> bool {
        let Some(most) = self.shared.options.local_max_bytes else { return true };
        let there = self.shared.gauges.stub_bytes.load(Ordering::Relaxed);
        there + (segment.bytes - segment.data_end) <= most / STUBS_SHARE
    }

    /// The segment is in the bucket from now on, unless it was removed meanwhile.
    fn commit(&self, owner: &Owner, name: String, entry: NoteEntry) -> io::Result<Step> {
        let moved = NoteEntry { stage: MoveStage::Moved, ..entry };
        let mut book = self.shared.book.lock();
        if book.note.entries.get(&name) != Some(&entry) && rules::REMOVED_MEANWHILE.holds() {
            self.shared.remove_ends(&name);
            return Ok(Step::Rejected(name));
        }
        if !rules::NOTED_BEFORE_REMOVAL.holds() {
            self.drop_local(&name, moved)?;
        }
        if let Err(error) =
            self.shared.change(&mut book, |entries| entries.insert(name.clone(), moved))
        {
            drop(book);
            // Stored or not, the segment is still here: another attempt begins from the front.
            self.give_up(owner, &name, &error);
            return Err(error);
        }
        if rules::NOTED_BEFORE_REMOVAL.holds() {
            self.drop_local(&name, moved)?;
        }
        self.shared.make_spare(&book.note);
        drop(book);
        self.shared.gauges.moves.fetch_add(1, Ordering::Relaxed);
        self.shared.gauges.moves_bytes.fetch_add(entry.bytes, Ordering::Relaxed);
        Ok(Step::Moved(name))
    }
}
