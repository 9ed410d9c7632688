//! The streams and consumers that every node has.

use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, RetentionPolicy, StreamConfig,
};
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::validate::{self, Limits};

pub const SECOND_NS: i64 = 1_000_000_000;
/// Messages that the limited stream keeps.
pub const KEPT: u64 = 9;
/// How long the aging stream keeps messages.
pub const AGE_NS: i64 = 20 * SECOND_NS;
/// How long message ids are known.
pub const WINDOW_NS: i64 = 120 * SECOND_NS;
/// After so long without an acknowledgement a message is delivered again.
const ACK_WAIT_NS: i64 = SECOND_NS;
/// Subjects of each stream: `NAME.0` and so on.
pub const SUBJECTS: u64 = 5;

/// A stream, by what makes its messages go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Nothing; knows ids.
    Plain,
    /// A bound of messages.
    Limited,
    /// Acknowledgement by one consumer.
    Queue,
    /// Age.
    Aging,
    /// Acknowledgement by all consumers.
    Interest,
}

impl Kind {
    /// Every stream, in the order of their numbers.
    pub const ALL: [Kind; 5] =
        [Kind::Plain, Kind::Limited, Kind::Queue, Kind::Aging, Kind::Interest];

    /// Its name.
    pub const fn name(self) -> &'static str {
        ["P", "L", "Q", "A", "I"][self as usize]
    }

    /// The stream of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The log in which it is created.
    pub const fn first_log(self) -> usize {
        match self {
            Kind::Queue => 1,
            _ => 0,
        }
    }

    /// Its configuration.
    pub fn config(self) -> Box<StreamConfig> {
        let config = StreamConfig {
            name: self.name().into(),
            subjects: vec![format!("{}.>", self.name())],
            retention: match self {
                Kind::Queue => RetentionPolicy::Workqueue,
                Kind::Interest => RetentionPolicy::Interest,
                _ => RetentionPolicy::Limits,
            },
            max_msgs: if self == Kind::Limited { KEPT.cast_signed() } else { -1 },
            max_age: if self == Kind::Aging { AGE_NS } else { 0 },
            duplicate_window: if self == Kind::Aging { AGE_NS } else { WINDOW_NS },
            ..StreamConfig::default()
        };
        Box::new(validate::stream_config(config, &Limits::default()).expect("a valid stream"))
    }

    /// Numbers of its consumers in [`CONSUMERS`].
    pub fn consumers(self) -> impl Iterator<Item = usize> {
        (0..CONSUMERS.len()).filter(move |number| CONSUMERS[*number].stream == self)
    }
}

/// A consumer.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerSpec {
    /// Its stream.
    pub stream: Kind,
    /// Its name.
    pub name: &'static str,
    /// Whether messages are pushed to it.
    pub is_push: bool,
}

const fn consumer(stream: Kind, name: &'static str, is_push: bool) -> ConsumerSpec {
    ConsumerSpec { stream, name, is_push }
}

/// Every consumer.
pub const CONSUMERS: [ConsumerSpec; 6] = [
    consumer(Kind::Plain, "plain", false),
    consumer(Kind::Plain, "pushed", true),
    consumer(Kind::Limited, "limited", false),
    consumer(Kind::Queue, "worker", false),
    consumer(Kind::Interest, "one", false),
    consumer(Kind::Interest, "both", true),
];

impl ConsumerSpec {
    /// The request that creates it.
    pub fn request(&self) -> Box<PreparedConsumer> {
        let config = ConsumerConfig {
            name: self.name.into(),
            durable_name: self.name.into(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT_NS,
            deliver_subject: if self.is_push { format!("to.{}", self.name) } else { String::new() },
            ..ConsumerConfig::default()
        };
        let stream_name = self.stream.name().into();
        let request =
            CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() };
        PreparedConsumer::new(request)
    }
}

/// The number of the consumer of a name.
pub fn consumer_named(name: &str) -> Option<usize> {
    CONSUMERS.iter().position(|known| known.name == name)
}

/// The most that follows the number in a body.
const PAD_MAX: u64 = 350;

/// Bodies begin with the number of their message, which no other has; it decides about all of them.
pub fn body(token: u64) -> Vec<u8> {
    let mut body = token.to_le_bytes().to_vec();
    let pad = token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    body.resize(8 + (pad % PAD_MAX) as usize, token as u8);
    body
}

/// The number of a message.
pub fn token_of(body: &[u8]) -> u64 {
    let head = body.first_chunk().expect("a body of ours");
    u64::from_le_bytes(*head)
}

/// The subject of a message.
pub fn subject(stream: Kind, token: u64) -> String {
    format!("{}.{}", stream.name(), token % SUBJECTS)
}
