//! Power cuts at seeded moments: whatever was acknowledged is readable afterwards, in order, and no
//! sequence is given out twice. The same checks must fail when syncing is turned off.

mod common;

use common::{Event, Outcome, Rig, Toy, tiny_parts, tiny_sync};
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{LogOptions, OpenError, StreamId, SyncPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Power cuts per history; each history goes on with what the last cut left.
const CUTS: u64 = 3;

/// Messages that the limited stream keeps.
const LIMIT: u64 = 5;

const PLAIN: StreamId = StreamId(1);
const LIMITED: StreamId = StreamId(2);
const DELETED_FROM: StreamId = StreamId(3);
const STREAMS: [StreamId; 3] = [PLAIN, LIMITED, DELETED_FROM];

/// What the outside world knows.
#[derive(Default)]
struct Known {
    messages: BTreeMap<(StreamId, u64), Vec<u8>>,
    /// Deleted or purged, perhaps: the request was sent.
    doomed: BTreeSet<(StreamId, u64)>,
    in_flight: Vec<(u64, Event)>,
    created: BTreeSet<StreamId>,
}

struct History {
    chance: SeededEntropy,
    known: Known,
    serial: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { chance: SeededEntropy::new(seed), known: Known::default(), serial: 0 }
    }

    fn body(&mut self) -> Vec<u8> {
        self.serial += 1;
        let len = match self.chance.below(10) {
            0 => self.chance.below(6000),
            _ => self.chance.below(200),
        };
        let mut body = self.serial.to_le_bytes().to_vec();
        body.resize(8 + len as usize, self.serial as u8);
        body
    }

    /// Works until the power goes, or `steps` are done.
    fn work(&mut self, rig: &mut Rig, steps: u64) {
        for stream in STREAMS {
            if !self.known.created.contains(&stream) {
                let max_messages = if stream == LIMITED { LIMIT } else { 0 };
                rig.run(Event::Create { stream, max_messages });
                if rig.core.machine().failed.is_some() {
                    return;
                }
                self.known.created.insert(stream);
            }
        }
        for _ in 0..steps {
            self.step(rig);
            self.collect(rig);
            if rig.core.machine().failed.is_some() {
                return;
            }
        }
    }

    fn step(&mut self, rig: &mut Rig) {
        let stream = STREAMS[self.chance.below(3) as usize];
        match self.chance.below(12) {
            0 => rig.advance(Duration::from_millis(self.chance.below(400))),
            1 => {
                let last = rig.core.machine().streams.get(&DELETED_FROM).map_or(0, |s| s.last);
                let seq = self.chance.below(last + 1);
                let token = rig.outputs.token();
                self.known.doomed.insert((DELETED_FROM, seq));
                rig.run(Event::Delete { stream: DELETED_FROM, seq, token });
            }
            2 if self.chance.below(4) == 0 => self.purge(rig),
            3 => rig.run(Event::Lazy { stream }),
            _ => {
                let count = 1 + self.chance.below(5);
                let events = (0..count).map(|_| self.publish(rig, stream)).collect();
                rig.run(Event::Batch(events));
            }
        }
    }

    fn purge(&mut self, rig: &mut Rig) {
        let last = rig.core.machine().streams.get(&DELETED_FROM).map_or(0, |s| s.last);
        let up_to = self.chance.below(last + 1);
        self.known.doomed.extend((0..=up_to).map(|seq| (DELETED_FROM, seq)));
        rig.run(Event::Purge { stream: DELETED_FROM, up_to });
    }

    fn publish(&mut self, rig: &Rig, stream: StreamId) -> Event {
        let (body, token) = (self.body(), rig.outputs.token());
        let event = Event::Publish { stream, body, token };
        self.known.in_flight.push((token, event.clone()));
        event
    }

    fn collect(&mut self, rig: &Rig) {
        for (token, event) in std::mem::take(&mut self.known.in_flight) {
            let Event::Publish { stream, body, .. } = event else { continue };
            if let Outcome::Acked(seq) = rig.outputs.take(token) {
                let before = self.known.messages.insert((stream, seq), body);
                assert!(before.is_none(), "sequence {seq} of {stream} was given out twice");
            }
        }
    }

    /// Compares what is there after a restart with what was acknowledged.
    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        for stream in STREAMS {
            let Some(state) = rig.core.machine().streams.get(&stream).cloned() else {
                let lost = self.known.created.contains(&stream);
                if lost {
                    return Err(format!("{stream} is gone"));
                } else {
                    continue;
                };
            };
            self.check_acked(stream, state.last, &state.live)?;
            for seq in state.live.into_keys() {
                self.check_body(rig, stream, seq)?;
            }
        }
        Ok(())
    }

    fn check_acked(
        &self,
        stream: StreamId,
        last: u64,
        live: &BTreeMap<u64, usize>,
    ) -> Result<(), String> {
        for (_, seq) in self.known.messages.keys().filter(|(id, _)| *id == stream) {
            let evicted = stream == LIMITED && *seq + LIMIT <= last;
            let doomed = self.known.doomed.contains(&(stream, *seq));
            if *seq > last || !(evicted || doomed || live.contains_key(seq)) {
                return Err(format!("message {seq} of {stream} is lost (last is {last})"));
            }
        }
        Ok(())
    }

    fn check_body(&mut self, rig: &mut Rig, stream: StreamId, seq: u64) -> Result<(), String> {
        let body = match rig.read(stream.0, seq) {
            Outcome::Body(body) => body,
            other => return Err(format!("message {seq} of {stream} cannot be read: {other:?}")),
        };
        let known = self.known.messages.entry((stream, seq)).or_insert_with(|| body.clone());
        if *known == body { Ok(()) } else { Err(format!("message {seq} of {stream} changed")) }
    }
}

/// Runs one history; returns a hash of everything the disk was asked to do.
fn history(options: &LogOptions, seed: u64) -> Result<u64, String> {
    let mut disk = MemDisk::default();
    let mut history = History::new(seed);
    let mut trace = 0u64;
    for cut in 0..CUTS {
        let at = disk.operations() + 1 + history.chance.below(300);
        disk.inject(Fault::PowerCut(at));
        let salt = seed * 31 + cut;
        match Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt) {
            Ok(mut rig) => {
                history.work(&mut rig, 150);
                history.collect(&rig);
                if history.chance.below(4) == 0 {
                    let _ = rig.core.close();
                }
                history.known.in_flight.clear();
            }
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        trace = trace.rotate_left(9) ^ disk.trace();
        disk = disk.crash(seed ^ cut << 32);
        let after = Rig::open_seeded(options.clone(), Arc::new(disk.clone()), salt ^ 7);
        let mut rig = after.map_err(|error| format!("does not open after a cut: {error}"))?;
        history.check(&mut rig)?;
        for stream in rig.core.machine().streams.keys() {
            history.known.created.insert(*stream);
        }
    }
    Ok(trace)
}

fn failures(options: &LogOptions, seeds: std::ops::Range<u64>) -> Vec<String> {
    seeds
        .filter_map(|seed| history(options, seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect()
}

/// Cut points of the always-synced run: 400 histories of three cuts each.
const HISTORIES: u64 = 400;

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let failures = failures(&tiny_parts(), 0..HISTORIES);
    assert!(failures.is_empty(), "{} failed: {:#?}", failures.len(), failures.first());
}

#[test]
fn the_harness_notices_missing_syncs() {
    let failures = failures(&tiny_sync(SyncPolicy::Never), 0..60);
    assert!(failures.len() > 5, "only {} of 60 histories lost anything", failures.len());
}

/// Without a sync before the acknowledgement messages may be lost, but only from the end, and the
/// log must open and be whole.
#[test]
fn late_syncs_lose_at_most_the_end() {
    for sync in [SyncPolicy::Never, SyncPolicy::Every(Duration::from_millis(100))] {
        for failure in failures(&tiny_sync(sync), 0..100) {
            assert!(failure.contains("lost") || failure.contains("gone"), "{failure}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        assert_eq!(history(&tiny_parts(), seed), history(&tiny_parts(), seed));
    }
    assert_ne!(history(&tiny_parts(), 1), history(&tiny_parts(), 2));
}

#[test]
fn a_failed_sync_stops_the_log_but_not_its_readers() {
    for fault in [Fault::SyncError, Fault::WriteError] {
        let disk = MemDisk::default();
        let mut rig = Rig::open(tiny_parts(), Arc::new(disk.clone())).expect("opens");
        rig.create(1, 0);
        assert_eq!(rig.publish(1, b"one"), Outcome::Acked(1));
        disk.inject(fault(disk.operations() + 1));
        assert!(matches!(rig.publish(1, b"two"), Outcome::Failed(_)));
        assert!(matches!(rig.publish(1, b"three"), Outcome::Refused(_)));
        assert_eq!(rig.read(1, 1), Outcome::Body(b"one".to_vec()));
        assert_eq!(rig.read(1, 2), Outcome::Missing);
        assert_eq!(rig.handle.stats().failed, 1);
        assert!(rig.core.close().is_err());
        drop(rig);
        let mut rig = Rig::open(tiny_parts(), Arc::new(disk)).expect("opens");
        assert_eq!(rig.read(1, 1), Outcome::Body(b"one".to_vec()));
        assert!(!rig.report.clean);
    }
}

#[allow(dead_code, reason = "the machine's type names the rig's")]
type Machine = Toy;
