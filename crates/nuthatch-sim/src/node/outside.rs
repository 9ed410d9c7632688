//! What leaves the engines of a node: answers, deliveries, outcomes.

use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_streams::op::OpResult;
use nuthatch_streams::{AccountId, Delivery, Message, Sink};
use std::sync::{Arc, Mutex, MutexGuard};

/// A message that a consumer got.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub consumer: String,
    pub seq: u64,
    pub body: Vec<u8>,
    pub reply: String,
}

/// Something that clients, or the node itself, get.
#[derive(Debug)]
pub enum Output {
    /// The answer to the request of this number.
    Answer { number: u64, text: String },
    /// The outcome of the operation of this number.
    Outcome { number: u64, result: OpResult },
    /// The log ended before it answered the operation of this number.
    NoAnswer { number: u64 },
    /// A message for a consumer.
    Delivered(Delivered),
    /// A double acknowledgement was confirmed.
    Confirmed { consumer: String, seq: u64 },
}

/// Where the engines of one life put what leaves them.
#[derive(Clone, Default, Debug)]
pub struct Outside(Arc<Mutex<Vec<Output>>>);

impl Outside {
    fn lock(&self) -> MutexGuard<'_, Vec<Output>> {
        self.0.lock().expect("nobody panics with it")
    }

    pub fn put(&self, output: Output) {
        self.lock().push(output);
    }

    pub fn take(&self) -> Vec<Output> {
        std::mem::take(&mut self.lock())
    }

    /// The outcome of an operation, if it has come; all else stays.
    pub fn take_outcome(&self, asked: u64) -> Option<OpResult> {
        let mut all = self.lock();
        let is_it =
            |output: &Output| matches!(output, Output::Outcome { number, .. } if *number == asked);
        let at = all.iter().position(is_it)?;
        match all.remove(at) {
            Output::Outcome { result, .. } => Some(result),
            _ => None,
        }
    }
}

/// The subject to which the confirmation of an acknowledgement comes.
pub fn confirmation(consumer: &str, seq: u64) -> String {
    format!("confirm.{consumer}.{seq}")
}

/// Tells the outcome of an operation, or that it will have none.
pub struct Reply {
    outside: Outside,
    number: u64,
    is_told: bool,
}

impl Reply {
    pub const fn new(outside: Outside, number: u64) -> Self {
        Self { outside, number, is_told: false }
    }

    pub fn tell(mut self, result: OpResult) {
        self.is_told = true;
        self.outside.put(Output::Outcome { number: self.number, result });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_told {
            self.outside.put(Output::NoAnswer { number: self.number });
        }
    }
}

/// Receives the outputs of an engine.
pub struct Recorder(pub Outside);

impl Recorder {
    fn take(&self, message: &Message<'_>) {
        let subject = String::from_utf8_lossy(message.subject);
        let parts: Vec<&str> = subject.split('.').collect();
        if let Ok(number) = subject.parse() {
            let text = String::from_utf8_lossy(message.body).into_owned();
            self.0.put(Output::Answer { number, text });
        } else if let ["confirm", consumer, seq] = parts[..] {
            let seq = seq.parse().expect("a sequence");
            self.0.put(Output::Confirmed { consumer: consumer.to_owned(), seq });
        }
    }
}

impl Sink for Recorder {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        self.take(message);
    }

    fn publish(&mut self, _: AccountId, message: &Message<'_>) {
        self.take(message);
    }

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        Some(())
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        true
    }

    fn ready(&mut self, (): &()) -> bool {
        true
    }

    fn deliver(&mut self, (): &mut (), delivery: &Delivery<'_>) -> bool {
        // Advisories and statuses have no ack subject.
        if let Some(ack) = parse_ack_subject(delivery.reply) {
            self.0.put(Output::Delivered(Delivered {
                consumer: String::from_utf8_lossy(ack.consumer).into_owned(),
                seq: ack.stream_seq,
                body: delivery.body.to_vec(),
                reply: String::from_utf8_lossy(delivery.reply).into_owned(),
            }));
        }
        true
    }

    fn flush(&mut self) {}
}
