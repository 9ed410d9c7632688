//! What must be true when a process has ended, looked at on a copy of what it left.

use super::host::Style;
use super::model::Model;
use super::outside::Output;
use super::server::{Parts, Server, StartFault};
use super::streams::{AGE_NS, CONSUMERS, Kind, WINDOW_NS, consumer_named, token_of};
use super::violation::Violation;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_streams::op::{FoundMessage, GetMessage};
use nuthatch_streams::{Op, OpOutcome};
use std::collections::{BTreeMap, BTreeSet};

/// Fruitless rounds after which a consumer has got everything: longer than redelivery takes.
const IDLE_ROUNDS: u32 = 3;
/// Microseconds between two rounds.
const ROUND: u64 = 600_000;

/// Microseconds that a damaged log has for compactions between two looks.
const HARMED_ROUND: u64 = 90_000_000;

/// Codes of the errors that a stream, or a consumer, is not there.
const NO_STREAM: u16 = 10059;
const NO_CONSUMER: u16 = 10014;
const NO_MESSAGE: u16 = 10037;

/// How a look at what a process left has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// Everything is as it must be.
    Whole,
    /// The logs say that they are damaged, which they are.
    Damaged,
}

/// A process on a copy of the disks, with room and without faults.
struct Look<'a> {
    model: &'a mut Model,
    parts: &'a Parts,
    server: Server,
    /// Something was damaged: what cannot be read may be told so.
    is_harmed: bool,
}

/// Opens a copy of what there is and compares it with what clients know; if so wished every consumer
/// then takes all it can get.
pub fn look(
    model: &mut Model,
    parts: &Parts,
    style: Style,
    salt: u64,
    drains: bool,
) -> Result<(), Violation> {
    let copy = parts.copy();
    let mut look = Look::start(model, &copy, style, salt)?;
    look.everything()?;
    if copy.tier.is_some() {
        look.move_segments()?;
        look.everything()?;
    }
    if drains {
        look.drain()?;
    }
    Ok(())
}

/// Starts what was damaged, and looks at it before and after it had time for compactions.
pub fn look_harmed(
    model: &mut Model,
    parts: &Parts,
    style: Style,
    salt: u64,
) -> Result<Looked, Violation> {
    let server = match Server::start(parts, Style { by_hand: false, ..style }, salt) {
        Err(StartFault::Damage { .. }) => return Ok(Looked::Damaged),
        server => server?,
    };
    let mut look = Look { model, parts, server, is_harmed: true };
    for _ in 0..3 {
        look.model.clock_max = look.model.clock_max.max(look.server.now_ns());
        look.everything()?;
        look.move_segments()?;
        look.pass(HARMED_ROUND);
    }
    Ok(Looked::Whole)
}

/// The sequences that a stream holds.
fn held(info: &StreamInfo) -> BTreeSet<u64> {
    let state = &info.state;
    let deleted: BTreeSet<u64> = state.deleted.iter().copied().collect();
    let all = (state.first_seq..=state.last_seq).filter(|seq| !deleted.contains(seq));
    if state.messages == 0 { BTreeSet::new() } else { all.collect() }
}

impl<'a> Look<'a> {
    fn start(
        model: &'a mut Model,
        parts: &'a Parts,
        style: Style,
        salt: u64,
    ) -> Result<Self, Violation> {
        let server = Server::start(parts, Style { by_hand: false, ..style }, salt)?;
        model.clock_max = model.clock_max.max(server.now_ns());
        Ok(Self { model, parts, server, is_harmed: false })
    }

    fn everything(&mut self) -> Result<(), Violation> {
        for kind in Kind::ALL {
            self.stream(kind)?;
        }
        (0..CONSUMERS.len()).try_for_each(|at| self.consumer(at))
    }

    fn info(&mut self, kind: Kind) -> Result<Option<StreamInfo>, Violation> {
        let subjects_filter = String::new();
        let op = |id| Op::StreamInfo { id, deleted_details: true, subjects_filter, offset: 0 };
        match self.server.ask(kind, op) {
            Some(Ok(OpOutcome::Stream { info, .. })) => Ok(Some(*info)),
            None if self.server.homes[kind as usize].is_none() => Ok(None),
            Some(Err(error)) if error.err_code == NO_STREAM => Ok(None),
            other => Err(Violation::Unexpected {
                what: format!("no information about {}: {other:?}", kind.name()),
            }),
        }
    }

    /// The message of a sequence; none where the log says that it cannot be read.
    fn read(&mut self, kind: Kind, seq: u64) -> Result<Option<FoundMessage>, Violation> {
        let request = GetMessage { seq, ..GetMessage::default() };
        match self.server.ask(kind, |id| Op::GetMessage { id, request }) {
            Some(Ok(OpOutcome::Message(found))) => Ok(Some(found)),
            Some(Err(error)) if self.is_harmed && error.err_code != NO_MESSAGE => {
                self.model.unreadable += 1;
                Ok(None)
            }
            other => Err(Violation::Unexpected {
                what: format!("message {seq} of {}: {other:?}", kind.name()),
            }),
        }
    }

    fn stream(&mut self, kind: Kind) -> Result<(), Violation> {
        let stream = kind.name();
        let Some(info) = self.info(kind)? else {
            let is_lost = self.model.stream(kind).exists;
            return if is_lost { Err(Violation::StreamLost { stream }) } else { Ok(()) };
        };
        let (held, last) = (held(&info), info.state.last_seq);
        self.model.check_limit(kind, held.len() as u64)?;
        let known = self.model.stream(kind);
        known.exists = true;
        let (gone_below, gone) = (known.gone_below, &known.gone);
        if let Some(seq) = held.iter().find(|seq| gone.contains(seq) || **seq < gone_below) {
            return Err(Violation::CameBack { stream, seq: *seq });
        }
        let seen: Vec<u64> = known.seen.keys().copied().collect();
        for seq in seen.into_iter().filter(|seq| !held.contains(seq)) {
            if seq > last || !self.model.may_be_gone(kind, seq, last) {
                return Err(Violation::MessageLost { stream, seq });
            }
        }
        self.contents(kind, &held)
    }

    /// Every message can be read, is what it was, and there once.
    fn contents(&mut self, kind: Kind, held: &BTreeSet<u64>) -> Result<(), Violation> {
        let mut ids: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
        for seq in held {
            let Some(found) = self.read(kind, *seq)? else { continue };
            self.model.see(kind, *seq, &found.body)?;
            let token = token_of(&found.body);
            let time = found.time.0;
            if let Some((first, at)) = ids.insert(token, (*seq, time))
                && time.abs_diff(at) < WINDOW_NS.unsigned_abs()
            {
                let stream = kind.name();
                return Err(Violation::StoredTwice { stream, token, first, second: *seq });
            }
        }
        Ok(())
    }

    fn consumer(&mut self, at: usize) -> Result<(), Violation> {
        let (consumer, kind) = (CONSUMERS[at].name, CONSUMERS[at].stream);
        let reader = &mut self.model.readers[at];
        let name = consumer.to_owned();
        match self.server.ask(kind, |id| Op::ConsumerInfo { id, name }) {
            Some(Ok(OpOutcome::Consumer(info))) => {
                reader.exists = true;
                let (shown, found) = (reader.floor, info.ack_floor.stream_seq);
                if found < shown {
                    return Err(Violation::FloorFell { consumer, shown, found });
                }
                Ok(())
            }
            None if self.server.homes[kind as usize].is_none() => Ok(()),
            Some(Err(error)) if [NO_CONSUMER, NO_STREAM].contains(&error.err_code) => {
                if reader.exists { Err(Violation::ConsumerLost { consumer }) } else { Ok(()) }
            }
            other => Err(Violation::Unexpected { what: format!("{consumer}: {other:?}") }),
        }
    }

    /// Lets time pass, and the logs do what is due.
    fn pass(&mut self, micros: u64) {
        self.parts.time.pass(micros);
        self.server.settle();
    }

    /// All segments that are due move; where something is damaged, it need not come to an end.
    fn move_segments(&self) -> Result<(), Violation> {
        match self.server.move_segments() {
            Err(error) if !self.is_harmed => {
                Err(Violation::Unexpected { what: format!("segments do not move: {error}") })
            }
            _ => Ok(()),
        }
    }

    /// Every consumer takes and acknowledges what it gets, until there is nothing more.
    fn drain(&mut self) -> Result<(), Violation> {
        let mut got: [BTreeSet<u64>; CONSUMERS.len()] = Default::default();
        let mut idle = 0;
        while idle < IDLE_ROUNDS {
            idle += 1;
            for at in (0..CONSUMERS.len()).filter(|at| !CONSUMERS[*at].is_push) {
                self.server.pull(at, 500);
            }
            self.server.settle();
            for output in self.server.outside.take() {
                let Output::Delivered(delivered) = output else { continue };
                idle = 0;
                let at = consumer_named(&delivered.consumer).expect("a consumer of ours");
                self.check_delivery(at, delivered.seq)?;
                got[at].insert(delivered.seq);
                self.server.ack(at, &delivered, "+ACK", false);
            }
            self.pass(ROUND);
        }
        for (at, got) in got.iter().enumerate() {
            self.check_drained(at, got)?;
        }
        self.check_empty()
    }

    fn check_delivery(&self, at: usize, seq: u64) -> Result<(), Violation> {
        if self.model.readers[at].confirmed.contains(&seq) {
            return Err(Violation::AckForgotten { consumer: CONSUMERS[at].name, seq });
        }
        Ok(())
    }

    /// What a consumer did not get, it has acknowledged, or the stream has not got any more.
    fn check_drained(&mut self, at: usize, got: &BTreeSet<u64>) -> Result<(), Violation> {
        let (consumer, kind) = (CONSUMERS[at].name, CONSUMERS[at].stream);
        if !self.model.readers[at].exists {
            return Ok(());
        }
        let Some(info) = self.info(kind)? else { return Ok(()) };
        let acked = &self.model.readers[at].acked;
        let missed = held(&info).into_iter().find(|seq| !got.contains(seq) && !acked.contains(seq));
        missed.map_or(Ok(()), |seq| Err(Violation::NeverDelivered { consumer, seq }))
    }

    /// What everybody acknowledged, and what is older than it may get, does not stay.
    fn check_empty(&mut self) -> Result<(), Violation> {
        for _ in 0..3 {
            self.pass(2 * AGE_NS.unsigned_abs() / 1000);
        }
        let now_ns = self.server.now_ns();
        for kind in [Kind::Queue, Kind::Interest, Kind::Aging] {
            let is_ready = self.model.is_ready(kind);
            let Some(info) = self.info(kind)? else { continue };
            // Where the clock was set back, messages may be younger than nothing.
            let is_young = kind == Kind::Aging && info.state.first_ts.0 + AGE_NS > now_ns;
            let messages = info.state.messages;
            if messages > 0 && is_ready && !is_young {
                return Err(Violation::Stays { stream: kind.name(), messages });
            }
        }
        Ok(())
    }
}
