//! Reading a stream of another server: of another JetStream domain, behind a leaf node.
//!
//! What is asked for travels as requests under the prefix of the other API, and the messages come
//! from a push consumer that is made there for this purpose (as nats-server does between its own
//! servers). It counts what it has delivered, so nothing can be missing without being noticed; then,
//! and when it falls silent, a new one is made behind what has been stored.

mod setup;

use super::{Action, Delivery, Happened, Now, Reader, Replicator, State};
use crate::op::{Range, Replica};
use crate::rules::NOTICE_MISSING;
use nuthatch_protocol::headers::{Headers, find_header};
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use setup::Created;
use std::collections::VecDeque;
use std::time::Duration;

/// After so long a silence the consumer is taken for lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Heartbeats in a row that name the same flow control request: our replies do not reach the other side.
const STALLED_MAX: u32 = 3;
/// Messages are stored in batches of up to so many bytes.
const BATCH_BYTES: usize = 1024 * 1024;
/// And so many.
const BATCH_MESSAGES: usize = 1024;

/// Numbers of a delivery's reply subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    stream_seq: u64,
    consumer_seq: u64,
    time: Time,
    pending: u64,
}

impl Numbers {
    /// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream_seq>.<consumer_seq>.<time>.<pending>`, or
    /// the longer form with domain and account in front and perhaps a token behind.
    fn parse(reply: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(reply.strip_prefix(b"$JS.ACK.")?).ok()?;
        let tokens: Vec<&str> = rest.split('.').collect();
        let from = match tokens.len() {
            7 => 3,
            9.. => 5,
            _ => return None,
        };
        let number = |at: usize| tokens.get(from + at)?.parse::<u64>().ok();
        Some(Self {
            stream_seq: number(0)?,
            consumer_seq: number(1)?,
            time: Time(i64::try_from(number(2)?).ok()?),
            pending: number(3)?,
        })
    }
}

/// An origin of another server that is being read.
#[derive(Debug)]
pub(super) struct Afar {
    api: String,
    /// The call that was sent last.
    call: String,
    /// The next sequence of the origin that is wanted.
    next: u64,
    /// Deliveries of the present consumer.
    delivered: u64,
    /// Messages behind what was stored last.
    pub(super) pending: u64,
    /// Subjects on which the other side expects our flow control replies.
    replies: VecDeque<Vec<u8>>,
    /// Where messages are to come.
    deliver_subject: String,
    /// What the durable consumer has told when it was reset.
    reset: Option<Created>,
    /// The consumer is asked for as one that copies: the origin keeps messages for it if it does so for
    /// any. Servers before 2.14 know none.
    is_sourcing: bool,
    /// Its name and its filter stand in the subject of the request, where exports may be about them.
    is_named: bool,
    /// Something came on the subject that is listened on.
    has_heard: bool,
    /// The flow control request that heartbeats name, and how many have named it.
    stalled: (Vec<u8>, u32),
}

impl Afar {
    /// An origin of this API.
    pub(super) const fn new(api: String) -> Self {
        Self {
            api,
            call: String::new(),
            next: 1,
            delivered: 0,
            pending: 0,
            replies: VecDeque::new(),
            deliver_subject: String::new(),
            reset: None,
            is_sourcing: true,
            is_named: true,
            has_heard: false,
            stalled: (Vec::new(), 0),
        }
    }
}

/// Received messages, sorted.
#[derive(Default)]
struct Batch {
    messages: Vec<Replica>,
    /// The last sequence seen and how many follow it.
    last: Option<(u64, u64)>,
}

impl Replicator {
    /// Sends the flow control replies that are due: what came before is stored, so more may come.
    /// Then waits for messages.
    pub(super) fn reply(&mut self, mut afar: Box<Afar>, now: Now) -> Action {
        if let Some(subject) = afar.replies.pop_front() {
            // Whose flow control acknowledges lets go what these numbers name: it is stored.
            let (delivered, last) = (afar.delivered, afar.next - 1);
            let headers = format!(
                "NATS/1.0\r\nNats-Last-Consumer: {delivered}\r\nNats-Last-Stream: {last}\r\n\r\n"
            );
            self.state = State::Reply(afar);
            return Action::Send { subject, headers: headers.into_bytes() };
        }
        self.state = State::Receive(afar);
        let (messages_max, bytes_max) = (BATCH_MESSAGES, BATCH_BYTES);
        Action::Receive { until: now + SILENCE_MAX, messages_max, bytes_max }
    }

    /// Stores what there is of messages.
    pub(super) fn received(&mut self, mut afar: Box<Afar>, happened: Happened, now: Now) -> Action {
        let deliveries = match happened {
            Happened::Arrived(deliveries) => deliveries,
            Happened::Silent => {
                return self.failed(self.silence(&afar));
            }
            other => panic!("messages were waited for: {other:?}"),
        };
        afar.has_heard = true;
        let mut batch = Batch::default();
        for delivery in deliveries {
            if let Err(error) = self.sort(delivery, &mut afar, &mut batch, now) {
                return self.failed(error);
            }
        }
        let Some((last, pending)) = batch.last else { return self.reply(afar, now) };
        (afar.next, afar.pending) = (last + 1, pending);
        let range = Range { messages: batch.messages, next: last + 1, last_seq: last + pending };
        self.store(range, Reader::Afar(afar), now)
    }

    fn sort(
        &mut self,
        delivery: Delivery,
        afar: &mut Afar,
        batch: &mut Batch,
        now: Now,
    ) -> Result<(), JsError> {
        match Headers::new(&delivery.headers).status() {
            Some((100, _)) => return self.control(&delivery, afar, now),
            Some((code, text)) => {
                let text = String::from_utf8_lossy(text);
                return Err(self.trouble(format!("the other side says {code} {text}")));
            }
            None => {}
        }
        let Some(numbers) = Numbers::parse(&delivery.reply) else {
            return Err(self.trouble("a delivery without its numbers"));
        };
        if numbers.consumer_seq != afar.delivered + 1 && NOTICE_MISSING.holds() {
            return Err(self.trouble("deliveries are missing"));
        }
        afar.delivered = numbers.consumer_seq;
        afar.stalled.1 = 0;
        batch.last = Some((numbers.stream_seq, numbers.pending));
        if numbers.stream_seq < afar.next {
            return Ok(());
        }
        batch.messages.push(Replica {
            seq: numbers.stream_seq,
            time: numbers.time,
            subject: delivery.subject,
            headers: delivery.headers,
            body: delivery.body,
        });
        Ok(())
    }

    /// Heartbeats and flow control.
    fn control(&mut self, delivery: &Delivery, afar: &mut Afar, now: Now) -> Result<(), JsError> {
        self.status.active = Some(now);
        if !delivery.reply.is_empty() {
            afar.replies.push_back(delivery.reply.clone());
            return Ok(());
        }
        match find_header(&delivery.headers, b"Nats-Consumer-Stalled") {
            Some(stalled) => self.stalled(afar, stalled),
            None => afar.stalled.1 = 0,
        }
        let delivered = find_header(&delivery.headers, b"Nats-Last-Consumer")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        match delivered {
            Some(count) if count != afar.delivered && NOTICE_MISSING.holds() => {
                Err(self.trouble("deliveries are missing"))
            }
            _ => Ok(()),
        }
    }

    /// The other side waits for the answer to a flow control request.
    fn stalled(&mut self, afar: &mut Afar, request: &[u8]) {
        afar.replies.push_back(request.to_vec());
        if afar.stalled.0 != request {
            afar.stalled = (request.to_vec(), 0);
        }
        afar.stalled.1 += 1;
        if afar.stalled.1 >= STALLED_MAX {
            let mut error = JsError::SOURCE_CONSUMER_FLOW_CONTROL_STALLED;
            if self.plan.source.external.is_some() {
                let stream = &self.plan.source.name;
                error.description = format!(
                    "{}: answers on $JS.FC.{stream}.> do not arrive, they must be exported and imported",
                    error.description
                )
                .into();
            }
            self.status.error = Some(error);
        }
    }

    /// Why nothing comes, as far as that is known.
    fn silence(&self, afar: &Afar) -> JsError {
        let text = format!("nothing was heard for {SILENCE_MAX:?}");
        if afar.has_heard || self.plan.source.external.is_none() {
            return self.trouble(text);
        }
        let subject = match &self.plan.source.consumer {
            Some(consumer) => consumer.deliver_subject.clone(),
            None => format!("{}.*", self.deliver_prefix()),
        };
        self.trouble(format!("{text} on {subject}: deliveries must be exported and imported"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_forms() {
        let numbers = Numbers { stream_seq: 7, consumer_seq: 3, time: Time(99), pending: 5 };
        assert_eq!(Numbers::parse(b"$JS.ACK.S.C.1.7.3.99.5"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.hub.hash.S.C.1.7.3.99.5"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.hub.hash.S.C.1.7.3.99.5.token"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.S.C.1.7.3.99"), None);
        assert_eq!(Numbers::parse(b"_INBOX.1.7.3.99.5.6.7.8"), None);
    }
}
