//! What every measured system looks like to the workbench: a queue that takes batches and says
//! when they are safe, hands messages out, and forgets what has been acknowledged.
//!
//! The interface is that of the mqperf method (seed 004). It blocks, because one thread per sender
//! and receiver is that method. `docs/adding-a-driver.md` explains how to add a system.

#[cfg(test)]
pub mod fake;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::queue_error::{QueueError, failed};

/// Guarantee of a completed send. No number is shown without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// On how many machines a message is before the send returns, in words.
    pub replicated: String,
    /// Whether it has been forced to the disk by then, in words.
    pub fsync: String,
    /// Where these words come from: `asked` of the server, or `configured` by whoever started it.
    pub source: Source,
}

/// How a guarantee is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The driver asked the server.
    Asked,
    /// Whoever started the server says so; the server itself does not tell.
    Configured,
}

impl Display for Guarantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "replicated: {}; fsync: {}", self.replicated, self.fsync)
    }
}

/// A topic, stream or table of one system.
pub trait Queue: Send + Sync {
    /// What a completed send promises here.
    ///
    /// # Errors
    /// When the server cannot be asked.
    fn guarantee(&self) -> Result<Guarantee, QueueError>;

    /// Makes the queue exist and be empty.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    fn prepare(&self) -> Result<(), QueueError>;

    /// Streams (topics, logs) that messages are spread over in turn. Less than the setting `streams`
    /// where opening them took longer than the setting `setup_limit_s`. Known once there is a sender.
    fn streams(&self) -> u64 {
        1
    }

    /// A connection that sends. `index` is different for all senders of a run, so that a driver
    /// can keep the order of each sender.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    fn sender(&self, index: usize) -> Result<Box<dyn Sender>, QueueError>;

    /// A connection that receives. All receivers share the messages: each gets others.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    fn receiver(&self, index: usize) -> Result<Box<dyn Receiver>, QueueError>;
}

/// A connection that sends.
pub trait Sender: Send {
    /// Sends all messages and returns when all of them are safe as [`Queue::guarantee`] says.
    ///
    /// # Errors
    /// When any of them may not be safe.
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError>;
}

/// A connection that receives.
pub trait Receiver: Send {
    /// Hands up to `max` messages to `each` and returns how many; waits at most about `wait` for
    /// the first. Until they are acknowledged nobody else gets them.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError>;

    /// Acknowledges everything this connection has received.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    fn ack(&mut self) -> Result<(), QueueError>;
}

/// Which queue of which system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSpec {
    /// Name of the driver, one of [`DRIVERS`].
    pub driver: String,
    /// Where the server is, in the form its client library wants.
    pub url: String,
    /// Name of the topic, stream or table.
    pub name: String,
    /// Settings of the driver, such as `partitions`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl QueueSpec {
    /// A number among the settings.
    ///
    /// # Errors
    /// When it is there and no number.
    fn number(&self, key: &str, default: u64) -> Result<u64, QueueError> {
        let Some(text) = self.settings.get(key) else { return Ok(default) };
        text.parse().map_err(|_| QueueError {
            driver: "settings",
            action: "read a setting",
            reason: format!("{key} is {text:?}, which is no number"),
        })
    }

    /// What whoever started the server says about its syncing.
    fn stated_fsync(&self) -> String {
        let unknown = "not stated (pass --set fsync=TEXT)";
        self.settings.get("fsync").map_or_else(|| unknown.to_owned(), Clone::clone)
    }
}

/// A driver of this source tree.
#[derive(Debug)]
pub struct DriverInfo {
    /// Its name.
    pub name: &'static str,
    /// What it drives, with what.
    pub what: &'static str,
    /// The Cargo feature that brings it; `None` when it is always there.
    pub feature: Option<&'static str>,
    /// Whether this build has it.
    pub built: bool,
}

/// All drivers, whether this build has them or not.
pub const DRIVERS: &[DriverInfo] = &[
    DriverInfo {
        name: "nats",
        what: "Nuthatch and NATS JetStream, with the lean client of this repository",
        feature: None,
        built: true,
    },
    DriverInfo {
        name: "redis",
        what: "Redis Streams with a consumer group, with the crate redis",
        feature: Some("redis"),
        built: cfg!(feature = "redis"),
    },
    DriverInfo {
        name: "postgres",
        what: "a PostgreSQL table with SKIP LOCKED, with the crate postgres",
        feature: Some("postgres"),
        built: cfg!(feature = "postgres"),
    },
    DriverInfo {
        name: "rabbitmq",
        what: "a RabbitMQ quorum queue with publisher confirms, with the crate lapin",
        feature: Some("rabbitmq"),
        built: cfg!(feature = "rabbitmq"),
    },
    DriverInfo {
        name: "kafka",
        what: "a Kafka topic with a consumer group, with librdkafka; serves Redpanda too",
        feature: Some("kafka"),
        built: cfg!(feature = "kafka"),
    },
    DriverInfo {
        name: "program",
        what: "a program that speaks the protocol of bench/peers on a socket (Woodpecker, RocksMQ)",
        feature: None,
        built: true,
    },
];

/// Opens a queue with the driver it names.
///
/// # Errors
/// When there is no such driver in this build, or its settings make no sense.
pub fn open(spec: &QueueSpec) -> Result<Box<dyn Queue>, QueueError> {
    match spec.driver.as_str() {
        "nats" => Ok(Box::new(nats::NatsQueue::new(spec)?)),
        #[cfg(feature = "redis")]
        "redis" => Ok(Box::new(redis::RedisQueue::new(spec)?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Box::new(postgres::PostgresQueue::new(spec)?)),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Ok(Box::new(rabbitmq::RabbitQueue::new(spec)?)),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(Box::new(kafka::KafkaQueue::new(spec)?)),
        "program" => Ok(Box::new(program::ProgramQueue::new(spec)?)),
        other => Err(missing(other)),
    }
}

fn missing(name: &str) -> QueueError {
    let reason = match DRIVERS.iter().find(|driver| driver.name == name) {
        Some(DriverInfo { feature: Some(feature), .. }) => format!(
            "this build has no driver {name:?}; build with `cargo build --release -p nuthatch-bench \
             --features {feature}`"
        ),
        _ => {
            let names: Vec<_> = DRIVERS.iter().map(|driver| driver.name).collect();
            format!("there is no driver {name:?}; the drivers are {}", names.join(", "))
        }
    };
    QueueError { driver: "drivers", action: "open a queue", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_not_there_says_how_to_get_it() {
        assert!(missing("kafka").reason.contains("--features kafka"));
        assert!(missing("nope").reason.contains("the drivers are nats,"));
    }

    #[test]
    fn settings_are_read() {
        let mut spec = QueueSpec {
            driver: "nats".into(),
            url: String::new(),
            name: "q".into(),
            settings: BTreeMap::new(),
        };
        assert_eq!(spec.number("replicas", 3), Ok(3));
        spec.settings.insert("replicas".into(), "5".into());
        assert_eq!(spec.number("replicas", 3), Ok(5));
        spec.settings.insert("replicas".into(), "x".into());
        assert!(spec.number("replicas", 3).is_err());
    }
}
