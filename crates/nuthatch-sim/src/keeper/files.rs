//! The files of a machine: applied to, made durable, trimmed behind, and brought to others, as
//! `nuthatch_cluster`'s `files` does it.

use super::check::Violation;
use super::machine::Running;
use super::world::{Happening, MILLI, World};
use nuthatch_cluster::incoming::{self, INCOMING_DIR};
use nuthatch_cluster::keeper_dir::Chore;
use nuthatch_cluster::packet::Packet;
use nuthatch_cluster::replica::{STATE, Snapshot, file_name, remove_files};
use nuthatch_log::env::Disk;
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::node::Event;
use std::io;

/// Entries after which a keeper makes its files durable.
const MARK_ENTRIES: u64 = 12;

/// Files of the journal that stay beside the one that is written.
const JOURNAL_FILES: usize = 1;

/// As many stay at most for a node that is brought files.
const JOURNAL_FILES_HELD: usize = 8;

/// Files on their way from one machine to another.
pub(super) struct Transfer {
    from: usize,
    to: usize,
    from_life: u64,
    announced: Envelope,
    base: Base,
    snapshot: Snapshot,
}

impl World {
    /// Applies what is committed and begins to make it durable, when that is due.
    pub(super) fn apply(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        let Some(running) = &mut machine.running else { return Ok(()) };
        if running.is_tending() {
            return Ok(());
        }
        machine.touched = machine.touched.max(running.commit);
        running.failed |= running.apply().is_err();
        if let Some(chore) = running.dir.take_spare() {
            self.begin_chore(at, chore);
        }
        let machine = &mut self.machines[at];
        let Some(running) = &mut machine.running else { return Ok(()) };
        if running.failed || running.is_tending() || running.replica.unmarked().0 < MARK_ENTRIES {
            return Ok(());
        }
        let life = machine.life;
        match running.replica.begin_mark() {
            Ok(mark) => running.mark = Some(mark),
            Err(_) => running.failed = true,
        }
        let takes = self.schedule.rng.between(MILLI, 60 * MILLI);
        self.schedule.after(takes, Happening::MarkEnds { at, life });
        Ok(())
    }

    /// The files are made durable as they were when that was begun, and the journal is trimmed behind them.
    pub(super) fn mark_ends(&mut self, at: usize) -> Result<(), Violation> {
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        match marked(running) {
            Err(_) => running.failed = true,
            Ok(()) if running.renewed => {
                let disk = running.replica.disk();
                let _ = disk.remove(STATE).and_then(|()| disk.sync_dir(""));
                running.failed = true;
            }
            Ok(()) => {
                self.summary.marks += 1;
                return self.trim(at);
            }
        }
        Ok(())
    }

    /// The journal is trimmed, but not past what a node will need that is brought files.
    fn trim(&mut self, at: usize) -> Result<(), Violation> {
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        let durable = running.replica.marked();
        let mine = self.transfers.values().filter(|transfer| transfer.from == at);
        let held = mine.map(|transfer| transfer.base.lsn).min().unwrap_or(durable);
        let wanted = running.dir.trim_point(JOURNAL_FILES).min(held);
        let upto = wanted.max(running.dir.trim_point(JOURNAL_FILES_HELD)).min(durable);
        if upto <= running.node.keeper().log().base().lsn {
            return Ok(());
        }
        self.event(at, Event::Trim { upto })?;
        let chore = self.machines[at].running.as_mut().and_then(|r| r.dir.take_trim());
        if let Some(chore) = chore {
            self.summary.trims += 1;
            self.begin_chore(at, chore);
        }
        Ok(())
    }

    /// What is done to the journal's files is done beside, after the syncs that were asked for.
    fn begin_chore(&mut self, at: usize, chore: Chore) {
        self.numbered += 1;
        let number = self.numbered;
        let machine = &mut self.machines[at];
        let (life, takes) = (machine.life, machine.sync_max.max(2_000));
        let Some(running) = &mut machine.running else { return };
        running.chores.insert(number, chore);
        let takes = self.schedule.rng.between(takes, takes + 50 * MILLI);
        self.schedule.after(takes, Happening::ChoreEnds { at, life, number });
    }

    pub(super) fn chore_ends(&mut self, at: usize, number: u64) {
        let Some(running) = &mut self.machines[at].running else { return };
        let Some(chore) = running.chores.remove(&number) else { return };
        let turn = chore.turn();
        match chore.finish() {
            Ok(Some((number, file))) => running.dir.give_spare(&turn, number, file),
            Ok(None) => {}
            Err(_) => running.failed = true,
        }
    }

    /// Files that were announced are on their way, one set at a time.
    pub(super) fn bring_files(&mut self, at: usize, announced: Envelope) -> Result<(), Violation> {
        let from = self.slot(self.log_of(at), usize::from(announced.from.0));
        let Message::Install { epoch, base: wanted, .. } = announced.message else {
            unreachable!("as asked");
        };
        let coming = self.transfers.values().any(|transfer| transfer.to == at);
        if !coming && self.net.is_up(self.node_of(from), self.node_of(at)) {
            let donor = &self.machines[from];
            let taken = donor.running.as_ref().and_then(snapshot);
            if let Some((base, snapshot)) = taken.filter(|(base, _)| base.lsn >= wanted.lsn) {
                self.numbered += 1;
                let (number, life) = (self.numbered, self.machines[at].life);
                let announced = announced.clone();
                let from_life = donor.life;
                let transfer = Transfer { from, to: at, from_life, announced, base, snapshot };
                self.transfers.insert(number, transfer);
                let takes = self.schedule.rng.between(5 * MILLI, 400 * MILLI);
                self.schedule.after(takes, Happening::FilesCome { at, life, number });
            }
        }
        let Some(running) = &self.machines[at].running else { return Ok(()) };
        let answer = Envelope {
            from: announced.to,
            sender: running.node.keeper().identity().incarnation,
            to: announced.from,
            disk: Some(announced.sender),
            message: Message::Receiving { epoch },
        };
        self.carry(at, Packet { envelope: answer, payloads: vec![] });
        Ok(())
    }

    /// All files have come, and are put in place if they are still wanted.
    pub(super) fn files_come(
        &mut self,
        at: usize,
        life: u64,
        number: u64,
    ) -> Result<(), Violation> {
        let busy = self.machines[at].running.as_ref().is_some_and(Running::is_tending);
        if life == self.machines[at].life && busy {
            // Nobody marks anything while the files change.
            self.schedule.after(10 * MILLI, Happening::FilesCome { at, life, number });
            return Ok(());
        }
        let transfer = self.transfers.remove(&number).expect("it was under way");
        let Transfer { from, from_life, mut announced, base, snapshot, .. } = transfer;
        let there = self.machines[from].running.is_some() && self.machines[from].life == from_life;
        if life != self.machines[at].life || !there {
            return Ok(());
        }
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        if receive(&**running.replica.disk(), &snapshot).is_err() {
            return Ok(());
        }
        if let Message::Install { base: announced, .. } = &mut announced.message {
            *announced = base;
        }
        self.machines[at].touched = self.machines[at].touched.max(self.machines[from].touched);
        self.event(at, Event::Deliver(announced))?;
        let machine = &mut self.machines[at];
        let Some(running) = machine.running.as_mut().filter(|r| !r.failed) else { return Ok(()) };
        if running.renewed {
            self.summary.installs += 1;
            running.failed |= running.reopen().is_err();
        } else {
            running.failed |= incoming::clear(&**running.replica.disk()).is_err();
        }
        Ok(())
    }
}

fn marked(running: &mut Running) -> io::Result<()> {
    let mark = running.mark.take().expect("it was begun");
    let disk = running.replica.disk().clone();
    running.dir.gate().sync(&running.dir.to_sync())?;
    mark.make_durable(&*disk)?;
    let gone = running.replica.end_mark(mark);
    remove_files(&*disk, &gone)
}

fn snapshot(running: &Running) -> Option<(Base, Snapshot)> {
    let snapshot = running.replica.snapshot().ok().filter(|_| !running.renewed)?;
    Some((running.node.keeper().log().base_at(snapshot.applied)?, snapshot))
}

/// Files come as they are now: later entries may have changed them.
fn receive(disk: &dyn Disk, snapshot: &Snapshot) -> io::Result<()> {
    incoming::clear(disk)?;
    for (number, (open, len)) in &snapshot.files {
        let mut bytes = vec![0; *len as usize];
        let read = open.read_at(&mut bytes, 0)?;
        let into = disk.create(&format!("{INCOMING_DIR}/{}", file_name(*number)))?;
        into.write_at(&bytes[..read], 0)?;
        into.set_len(*len)?;
        into.sync()?;
    }
    let into = disk.create(&format!("{INCOMING_DIR}/{STATE}"))?;
    into.write_at(&snapshot.state, 0)?;
    into.sync()?;
    disk.sync_dir(INCOMING_DIR)
}
