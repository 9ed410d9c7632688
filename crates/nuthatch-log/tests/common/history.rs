//! A seeded history of publishes, deletes and purges on a log that may fail at any moment, and the
//! comparison of what is there afterwards with what was acknowledged.

use super::{Event, Outcome, Rig};
use nuthatch_log::StreamId;
use nuthatch_log::env::SeededEntropy;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Messages that the limited stream keeps.
const LIMIT: u64 = 5;

const PLAIN: StreamId = StreamId(1);
const LIMITED: StreamId = StreamId(2);
const DELETED_FROM: StreamId = StreamId(3);
const STREAMS: [StreamId; 3] = [PLAIN, LIMITED, DELETED_FROM];

/// What the outside world knows.
#[derive(Default)]
pub struct Known {
    pub messages: BTreeMap<(StreamId, u64), Vec<u8>>,
    /// Deleted or purged, perhaps: the request was sent.
    pub doomed: BTreeSet<(StreamId, u64)>,
    pub in_flight: Vec<(u64, Event)>,
    pub created: BTreeSet<StreamId>,
}

pub struct History {
    pub chance: SeededEntropy,
    pub known: Known,
    serial: u64,
    /// Messages that a read told to be damaged; `None`: none may be.
    pub told: Option<u64>,
    /// What was acknowledged and then synced, where acknowledgements come before syncs: only that must
    /// survive. `None`: all that was acknowledged.
    synced: Option<Synced>,
}

/// What was known at the last moment at which everything was durable.
#[derive(Default)]
struct Synced {
    messages: BTreeSet<(StreamId, u64)>,
    created: BTreeSet<StreamId>,
}

impl History {
    pub fn new(seed: u64) -> Self {
        let chance = SeededEntropy::new(seed);
        Self { chance, known: Known::default(), serial: 0, told: None, synced: None }
    }

    /// Only what was synced must survive.
    pub fn synced_only(self) -> Self {
        Self { synced: Some(Synced::default()), ..self }
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
    pub fn work(&mut self, rig: &mut Rig, steps: u64) {
        for stream in STREAMS {
            if !self.known.created.contains(&stream) {
                let max_messages = if stream == LIMITED { LIMIT } else { 0 };
                rig.run(Event::Create { stream, max_messages });
                let machine = rig.core.machine();
                if machine.failed.is_some() {
                    return;
                }
                // On a full medium the log refuses a new stream, as it refuses messages.
                if machine.streams.contains_key(&stream) {
                    self.known.created.insert(stream);
                }
            }
        }
        for _ in 0..steps {
            self.step(rig);
            self.collect(rig);
            self.note_synced(rig);
            if rig.core.machine().failed.is_some() {
                return;
            }
        }
    }

    fn note_synced(&mut self, rig: &Rig) {
        let stats = rig.handle.stats();
        if stats.failed == 0 && stats.durable_lsn >= stats.committed_lsn {
            let Some(synced) = &mut self.synced else { return };
            synced.messages.extend(self.known.messages.keys());
            synced.created.clone_from(&self.known.created);
        }
    }

    /// Adds what another knows: acknowledged to it, or doomed by it.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        self.known.created.extend(other.known.created);
        self.known.doomed.extend(other.known.doomed);
        for ((stream, seq), body) in other.known.messages {
            let known = self.known.messages.entry((stream, seq)).or_insert_with(|| body.clone());
            if *known != body {
                return Err(format!("sequence {seq} of {stream} was given out twice"));
            }
        }
        Ok(())
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

    pub fn collect(&mut self, rig: &Rig) {
        for (token, event) in std::mem::take(&mut self.known.in_flight) {
            let Event::Publish { stream, body, .. } = event else { continue };
            if let Outcome::Acked(seq) = rig.outputs.take(token) {
                let before = self.known.messages.insert((stream, seq), body);
                assert!(before.is_none(), "sequence {seq} of {stream} was given out twice");
            }
        }
    }

    /// Compares what is there after a restart with what was acknowledged.
    pub fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        for stream in STREAMS {
            let Some(state) = rig.core.machine().streams.get(&stream).cloned() else {
                let created = self.synced.as_ref().map_or(&self.known.created, |s| &s.created);
                let lost = created.contains(&stream);
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
        let must_be_there = |at: &(StreamId, u64)| {
            at.0 == stream && self.synced.as_ref().is_none_or(|s| s.messages.contains(at))
        };
        for (_, seq) in self.known.messages.keys().filter(|at| must_be_there(at)) {
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
            Outcome::Damaged if self.told.is_some() => {
                self.told = self.told.map(|told| told + 1);
                return Ok(());
            }
            other => return Err(format!("message {seq} of {stream} cannot be read: {other:?}")),
        };
        let known = self.known.messages.entry((stream, seq)).or_insert_with(|| body.clone());
        if *known == body { Ok(()) } else { Err(format!("message {seq} of {stream} changed")) }
    }
}
