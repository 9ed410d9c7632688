//! What clients know: what was answered, shown and confirmed to them, and what must therefore be true.

use super::outside::{Delivered, Output};
use super::streams::{AGE_NS, CONSUMERS, KEPT, Kind, WINDOW_NS, consumer_named, token_of};
use super::violation::Violation;
use nuthatch_streams::OpOutcome;
use nuthatch_streams::op::OpResult;
use std::collections::{BTreeMap, BTreeSet};

/// Code of the error that a message is not there.
const NO_MESSAGE: u16 = 10037;

/// What is known of a stream.
#[derive(Default)]
pub struct Known {
    /// Its creation was answered, or it was found.
    pub exists: bool,
    /// Contents that were acknowledged, delivered or read.
    pub seen: BTreeMap<u64, Vec<u8>>,
    /// The largest sequence that was acknowledged.
    pub acked: u64,
    /// Message ids and the sequences that were acknowledged for them.
    pub ids: BTreeMap<u64, u64>,
    /// The least that the clock of the node showed when a number was sent.
    pub sent_at: BTreeMap<u64, i64>,
    /// Removals of single messages that may have happened.
    pub doubtful: BTreeSet<u64>,
    /// What is durably gone.
    pub gone: BTreeSet<u64>,
    /// Purges up to here may have happened.
    pub purged_below: u64,
    /// Purges up to here have.
    pub gone_below: u64,
}

/// What is known of a consumer.
#[derive(Default)]
pub struct Reader {
    /// Its creation was answered, or it was found.
    pub exists: bool,
    /// Deliveries that were not answered.
    pub outstanding: Vec<Delivered>,
    /// Positive acknowledgements that were sent.
    pub acked: BTreeSet<u64>,
    /// Acknowledgements that were confirmed.
    pub confirmed: BTreeSet<u64>,
    /// The largest floor that was shown, and when.
    shown: Option<(u64, i64)>,
    /// The largest floor that is durable for certain.
    pub floor: u64,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub enum Asked {
    Create(Kind),
    CreateConsumer(usize),
    /// With the largest sequence that was acknowledged when it was sent.
    Publish {
        kind: Kind,
        token: u64,
        body: Vec<u8>,
        before: u64,
        sent_ns: i64,
    },
    Info {
        kind: Kind,
        acked: u64,
    },
    Get {
        kind: Kind,
        seq: u64,
    },
    ConsumerInfo(usize),
    Purge {
        kind: Kind,
        below: u64,
    },
    Delete {
        kind: Kind,
        seq: u64,
    },
}

/// A floor that was shown is durable once something that was published so long afterwards is.
const FLOOR_SETTLES_NS: i64 = 1_000_000_000;

/// What clients know of a node.
#[derive(Default)]
pub struct Model {
    pub streams: [Known; Kind::ALL.len()],
    pub readers: [Reader; CONSUMERS.len()],
    pub asked: BTreeMap<u64, Asked>,
    /// Numbers of messages with ids whose publishes were not answered.
    pub unknown: Vec<u64>,
    /// The largest time that the clock of the node has shown.
    pub clock_max: i64,
    /// Answers that were taken in.
    pub answered: u64,
    /// Reads that were answered with an error.
    pub unreadable: u64,
    numbers: u64,
}

/// The sequence in a positive acknowledgement, and whether it says that the message had come before.
fn sequence(answer: &str) -> Option<(u64, bool)> {
    if answer.contains("\"error\"") {
        return None;
    }
    let digits = answer.split("\"seq\":").nth(1)?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    Some((digits[..end].parse().ok()?, answer.contains("\"duplicate\"")))
}

impl Model {
    /// A number that no message and no request has had.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Notes a request; returns its number.
    pub fn ask(&mut self, asked: Asked) -> u64 {
        let number = self.number();
        self.asked.insert(number, asked);
        number
    }

    pub fn stream(&mut self, kind: Kind) -> &mut Known {
        &mut self.streams[kind as usize]
    }

    /// True if a stream and all of its consumers are there.
    pub fn is_ready(&self, kind: Kind) -> bool {
        self.streams[kind as usize].exists && kind.consumers().all(|at| self.readers[at].exists)
    }

    /// The process has ended: nobody will answer what was asked.
    pub fn process_ended(&mut self) {
        for (_, asked) in std::mem::take(&mut self.asked) {
            if let Asked::Publish { kind: Kind::Plain, token, .. } = asked {
                self.unknown.push(token);
            }
        }
        for reader in &mut self.readers {
            reader.outstanding.clear();
            reader.shown = None;
        }
    }

    /// True if an id that was sent then is still known to the node, whatever its clock did.
    pub fn is_in_window(&self, kind: Kind, token: u64) -> bool {
        let sent = self.streams[kind as usize].sent_at.get(&token);
        sent.is_some_and(|sent| self.clock_max < sent + WINDOW_NS / 2)
    }

    /// Notes the content of a message.
    pub fn see(&mut self, kind: Kind, seq: u64, body: &[u8]) -> Result<(), Violation> {
        let known = self.stream(kind).seen.entry(seq).or_insert_with(|| body.to_vec());
        if known == body {
            return Ok(());
        }
        Err(Violation::TwoContents { stream: kind.name(), seq })
    }

    /// True if a message may be gone from a stream that ends at `last`.
    pub fn may_be_gone(&self, kind: Kind, seq: u64, last: u64) -> bool {
        let known = &self.streams[kind as usize];
        if known.doubtful.contains(&seq) || seq < known.purged_below {
            return true;
        }
        match kind {
            Kind::Plain => false,
            Kind::Limited => seq + KEPT <= last,
            Kind::Queue | Kind::Interest => {
                kind.consumers().all(|at| self.readers[at].acked.contains(&seq))
            }
            Kind::Aging => {
                let sent = known.seen.get(&seq).and_then(|body| known.sent_at.get(&token_of(body)));
                sent.is_none_or(|sent| sent + AGE_NS <= self.clock_max)
            }
        }
    }

    /// Takes in what clients get.
    pub fn take(&mut self, output: Output) -> Result<(), Violation> {
        match output {
            Output::Delivered(delivered) => self.take_delivery(delivered),
            Output::Confirmed { consumer, seq } => {
                self.take_confirmation(&consumer, seq);
                Ok(())
            }
            // Of a log that did not take what it was asked.
            Output::NoAnswer { .. } => Ok(()),
            Output::Answer { number, text } => match self.asked.remove(&number) {
                Some(Asked::Publish { kind, token, body, before, sent_ns }) => {
                    self.answered += 1;
                    self.take_answer(kind, (token, before, sent_ns), &body, &text)
                }
                other => panic!("an answer to {other:?}"),
            },
            Output::Outcome { number, result } => {
                let asked = self.asked.remove(&number).expect("an outcome of what was asked");
                self.answered += 1;
                self.take_outcome(asked, result)
            }
        }
    }

    fn take_answer(
        &mut self,
        kind: Kind,
        (token, before, sent_ns): (u64, u64, i64),
        body: &[u8],
        text: &str,
    ) -> Result<(), Violation> {
        let stream = kind.name();
        let Some((seq, is_duplicate)) = sequence(text) else {
            self.unknown.extend((kind == Kind::Plain).then_some(token));
            return Ok(());
        };
        let in_window = self.is_in_window(kind, token);
        let known = self.stream(kind);
        if let Some(first) = known.ids.insert(token, seq).filter(|first| *first != seq && in_window)
        {
            return Err(Violation::StoredTwice { stream, token, first, second: seq });
        }
        if !is_duplicate && seq <= before {
            return Err(Violation::OutOfOrder { stream, seq, before });
        }
        known.acked = known.acked.max(seq);
        self.settle_floors(kind, sent_ns);
        self.see(kind, seq, body)
    }

    /// What was shown long before a message was sent, is durable when that is.
    fn settle_floors(&mut self, kind: Kind, sent_ns: i64) {
        for at in kind.consumers() {
            let reader = &mut self.readers[at];
            if let Some((floor, _)) =
                reader.shown.take_if(|(_, at)| *at + FLOOR_SETTLES_NS <= sent_ns)
            {
                reader.floor = reader.floor.max(floor);
            }
        }
    }

    fn take_delivery(&mut self, delivered: Delivered) -> Result<(), Violation> {
        let at = consumer_named(&delivered.consumer).expect("a consumer of ours");
        let spec = CONSUMERS[at];
        self.see(spec.stream, delivered.seq, &delivered.body)?;
        if self.readers[at].confirmed.contains(&delivered.seq) {
            return Err(Violation::AckForgotten { consumer: spec.name, seq: delivered.seq });
        }
        self.readers[at].outstanding.push(delivered);
        Ok(())
    }

    fn take_confirmation(&mut self, consumer: &str, seq: u64) {
        let at = consumer_named(consumer).expect("a consumer of ours");
        if self.readers[at].acked.contains(&seq) {
            self.readers[at].confirmed.insert(seq);
            if CONSUMERS[at].stream == Kind::Queue {
                self.stream(Kind::Queue).gone.insert(seq);
            }
        }
    }

    fn take_outcome(&mut self, asked: Asked, result: OpResult) -> Result<(), Violation> {
        match (asked, result) {
            (Asked::Create(kind), result) => self.stream(kind).exists |= result.is_ok(),
            (Asked::CreateConsumer(at), result) => self.readers[at].exists |= result.is_ok(),
            (Asked::Purge { kind, below }, Ok(_)) => {
                let known = self.stream(kind);
                known.gone_below = known.gone_below.max(below);
            }
            (Asked::Delete { kind, seq }, Ok(_)) => drop(self.stream(kind).gone.insert(seq)),
            (Asked::Info { kind, acked }, Ok(OpOutcome::Stream { info, .. })) => {
                let shown = info.state.last_seq;
                if shown < acked {
                    return Err(Violation::StaleInfo { stream: kind.name(), shown, acked });
                }
                return self.check_limit(kind, info.state.messages);
            }
            (Asked::Get { kind, seq }, Ok(OpOutcome::Message(found))) => {
                return self.see(kind, seq, &found.body);
            }
            (Asked::Get { kind, seq }, Err(error)) => {
                let last = self.stream(kind).acked;
                let is_gone = error.err_code == NO_MESSAGE;
                self.unreadable += u64::from(!is_gone);
                if is_gone
                    && self.stream(kind).seen.contains_key(&seq)
                    && !self.may_be_gone(kind, seq, last.max(self.last_seen(kind)))
                {
                    return Err(Violation::MessageLost { stream: kind.name(), seq });
                }
            }
            (Asked::ConsumerInfo(at), Ok(OpOutcome::Consumer(info))) => {
                let shown = (info.ack_floor.stream_seq, self.clock_max);
                self.readers[at].shown.get_or_insert(shown);
            }
            // Refused: nothing is known.
            _ => {}
        }
        Ok(())
    }

    /// The largest sequence that anybody has seen, or could have: what is on its way counts.
    fn last_seen(&self, kind: Kind) -> u64 {
        let known = &self.streams[kind as usize];
        let on_its_way = self
            .asked
            .values()
            .filter(|asked| matches!(asked, Asked::Publish { kind: of, .. } if *of == kind));
        let last = known.seen.last_key_value().map_or(0, |(seq, _)| *seq);
        last + on_its_way.count() as u64
    }

    pub fn check_limit(&self, kind: Kind, messages: u64) -> Result<(), Violation> {
        if kind == Kind::Limited && messages > KEPT {
            return Err(Violation::OverLimit { stream: kind.name(), messages });
        }
        Ok(())
    }
}
