//! A Kafka topic read by one consumer group, with librdkafka. Serves Redpanda too.
//!
//! librdkafka rather than a client in pure Rust: the pure ones that are kept up have no consumer
//! groups and no idempotent producer, so they would measure something nobody runs; librdkafka is
//! what most clients of other languages are made of, and it builds from the registry in a minute.
//!
//! As in seed 004 offsets are stored on acknowledgement and committed every ten seconds, all
//! in-sync replicas must have a message (`acks=all`), and each sender keeps to one partition, so
//! that its order is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};

const DRIVER: &str = "kafka";

/// Limit for administrative requests and for the delivery of a batch.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Wait between the end of a topic and its creation anew, and how often that is tried.
const RECREATE_WAIT: Duration = Duration::from_millis(250);
const RECREATE_ATTEMPTS: usize = 40;

/// Largest message, above the largest measured.
const MAX_MESSAGE_BYTES: &str = "8388608";

/// How often stored offsets are committed.
const COMMIT_INTERVAL_MS: &str = "10000";

/// A topic.
pub struct KafkaQueue {
    brokers: String,
    topic: String,
    partitions: u64,
    replicas: u64,
    linger_ms: u64,
    /// The topic's `flush.messages`, when it is not left to the broker.
    flush_messages: Option<String>,
    fsync: String,
}

impl KafkaQueue {
    /// `url` is `HOST:PORT`. Settings: `partitions`, `replicas`, `linger_ms`, `flush.messages` of the
    /// topic, and `fsync`, a text for the report.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        Ok(Self {
            brokers: spec.url.clone(),
            topic: spec.name.clone(),
            partitions: spec.number("partitions", 1)?.max(1),
            replicas: spec.number("replicas", 1)?,
            // A sender waits for its whole batch, so lingering would only add to every send.
            linger_ms: spec.number("linger_ms", 0)?,
            flush_messages: spec.settings.get("flush.messages").cloned(),
            fsync: spec.stated_fsync(),
        })
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("message.max.bytes", MAX_MESSAGE_BYTES);
        config
    }

    async fn recreate(&self) -> Result<(), KafkaError> {
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let options = AdminOptions::new().request_timeout(Some(TIMEOUT));
        // A topic that does not exist is deleted as far as we are concerned.
        admin.delete_topics(&[&self.topic], &options).await?;
        let partitions = i32::try_from(self.partitions).unwrap_or(i32::MAX);
        let replication = TopicReplication::Fixed(i32::try_from(self.replicas).unwrap_or(1));
        let mut topic = NewTopic::new(&self.topic, partitions, replication)
            .set("max.message.bytes", MAX_MESSAGE_BYTES);
        if let Some(messages) = &self.flush_messages {
            topic = topic.set("flush.messages", messages);
        }
        // Deletion goes on in the background for a while.
        for attempt in 1.. {
            let results = admin.create_topics([&topic], &options).await?;
            match results.into_iter().next() {
                Some(Err((_, code))) if attempt < RECREATE_ATTEMPTS => {
                    let _ = code;
                    thread::sleep(RECREATE_WAIT);
                }
                Some(Err((_, code))) => return Err(KafkaError::AdminOp(code)),
                _ => break,
            }
        }
        Ok(())
    }
}

impl Queue for KafkaQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        let replicated = match self.replicas {
            0 | 1 => "no".to_owned(),
            replicas => format!("all in-sync of {replicas} (acks=all)"),
        };
        Ok(Guarantee { replicated, fsync: self.fsync.clone(), source: Source::Configured })
    }

    fn prepare(&self) -> Result<(), QueueError> {
        futures_executor::block_on(self.recreate()).map_err(failed(DRIVER, "create the topic"))
    }

    fn sender(&self, index: usize) -> Result<Box<dyn Sender>, QueueError> {
        let outcome = Arc::new(Outcome::default());
        let mut config = self.config();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", self.linger_ms.to_string());
        let producer = config
            .create_with_context(Context { outcome: outcome.clone() })
            .map_err(failed(DRIVER, "create a producer"))?;
        let partition = i32::try_from(index as u64 % self.partitions).unwrap_or(0);
        let topic = self.topic.clone();
        Ok(Box::new(KafkaSender { producer, topic, partition, outcome, sent: 0 }))
    }

    fn receiver(&self, _index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        let mut config = self.config();
        config
            .set("group.id", format!("bench-{}", self.topic))
            .set("auto.offset.reset", "earliest")
            // By default a consumer whose queue is full fetches nothing for a whole second.
            .set("fetch.queue.backoff.ms", "5")
            .set("fetch.message.max.bytes", MAX_MESSAGE_BYTES)
            .set("enable.auto.offset.store", "false")
            .set("auto.commit.interval.ms", COMMIT_INTERVAL_MS);
        let consumer: BaseConsumer =
            config.create().map_err(failed(DRIVER, "create a consumer"))?;
        consumer.subscribe(&[&self.topic]).map_err(failed(DRIVER, "subscribe"))?;
        let received = BTreeMap::new();
        Ok(Box::new(KafkaReceiver { consumer, topic: self.topic.clone(), received }))
    }
}

/// Results of a producer's messages. Reports come in the thread of the producer, the moment they
/// arrive.
#[derive(Default)]
struct Outcome {
    reports: Mutex<Reports>,
    changed: Condvar,
}

#[derive(Default)]
struct Reports {
    delivered: u64,
    failure: Option<String>,
}

struct Context {
    outcome: Arc<Outcome>,
}

impl rdkafka::ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        let mut reports = self.outcome.reports.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(_) => reports.delivered += 1,
            Err((err, _)) => {
                reports.failure.get_or_insert_with(|| err.to_string());
            }
        }
        self.outcome.changed.notify_one();
    }
}

struct KafkaSender {
    producer: ThreadedProducer<Context>,
    topic: String,
    partition: i32,
    outcome: Arc<Outcome>,
    /// Messages sent so far.
    sent: u64,
}

impl Sender for KafkaSender {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        let wrong = failed(DRIVER, "send");
        for body in batch {
            let record =
                BaseRecord::<(), [u8]>::to(&self.topic).partition(self.partition).payload(*body);
            self.producer.send(record).map_err(|(err, _)| wrong(err.to_string()))?;
        }
        self.sent += batch.len() as u64;
        let deadline = Instant::now() + TIMEOUT;
        let mut reports = self.outcome.reports.lock().unwrap_or_else(PoisonError::into_inner);
        while reports.delivered < self.sent {
            if let Some(text) = reports.failure.take() {
                return Err(wrong(text));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(wrong(format!("not delivered within {TIMEOUT:?}")));
            }
            let waited = self.outcome.changed.wait_timeout(reports, left);
            reports = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Drop for KafkaSender {
    fn drop(&mut self) {
        // Everything has been delivered or given up; there is nobody left to tell.
        let _ = self.producer.flush(Duration::ZERO);
    }
}

struct KafkaReceiver {
    consumer: BaseConsumer,
    topic: String,
    /// Last offset received, per partition, of what is not acknowledged.
    received: BTreeMap<i32, i64>,
}

impl Receiver for KafkaReceiver {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        let mut count = 0;
        let mut left = wait;
        while count < max {
            // After the first message only what has been fetched already is taken.
            let Some(message) = self.consumer.poll(left) else { break };
            let message = message.map_err(failed(DRIVER, "receive"))?;
            each(message.payload().unwrap_or_default());
            self.received.insert(message.partition(), message.offset());
            count += 1;
            left = Duration::ZERO;
        }
        Ok(count)
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        for (partition, offset) in std::mem::take(&mut self.received) {
            self.consumer
                .store_offset(&self.topic, partition, offset)
                .map_err(failed(DRIVER, "store an offset"))?;
        }
        Ok(())
    }
}
