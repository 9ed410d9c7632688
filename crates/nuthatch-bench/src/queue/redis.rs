//! Redis Streams: `XADD` in a pipeline, `XREADGROUP` and `XACK` in one consumer group, with the
//! crate `redis`.
//!
//! As in seed 004, acknowledged entries stay in the stream. `XAUTOCLAIM`, which gives the messages
//! of a dead consumer to others, is not part of the measured path.

use std::time::Duration;

use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Client, Commands, Connection, RedisError};

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};

const DRIVER: &str = "redis";

/// The consumer group.
const GROUP: &str = "bench";

/// The one field of an entry.
const FIELD: &str = "b";

/// A socket operation that takes longer counts as a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A stream with its consumer group.
pub struct RedisQueue {
    client: Client,
    key: String,
}

impl RedisQueue {
    /// `url` is `redis://HOST:PORT`. There are no settings.
    ///
    /// # Errors
    /// When the address makes no sense.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        let client = Client::open(spec.url.as_str()).map_err(failed(DRIVER, "read the address"))?;
        Ok(Self { client, key: spec.name.clone() })
    }

    fn connect(&self) -> Result<Connection, QueueError> {
        let connect = || -> Result<Connection, RedisError> {
            let connection = self.client.get_connection()?;
            connection.set_read_timeout(Some(TIMEOUT))?;
            connection.set_write_timeout(Some(TIMEOUT))?;
            Ok(connection)
        };
        connect().map_err(failed(DRIVER, "connect"))
    }
}

fn config(connection: &mut Connection, key: &str) -> Result<String, QueueError> {
    let pair: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg(key)
        .query(connection)
        .map_err(failed(DRIVER, "read the configuration"))?;
    Ok(pair.into_iter().nth(1).unwrap_or_default())
}

impl Queue for RedisQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        let mut connection = self.connect()?;
        let fsync = match config(&mut connection, "appendonly")?.as_str() {
            "yes" => match config(&mut connection, "appendfsync")?.as_str() {
                "always" => "before the answer (appendfsync always)".to_owned(),
                other => format!("after the answer (appendfsync {other})"),
            },
            _ => "no (memory only)".to_owned(),
        };
        // Replication of Redis never precedes the answer unless WAIT is used, and it is not here.
        Ok(Guarantee { replicated: "no".into(), fsync, source: Source::Asked })
    }

    fn prepare(&self) -> Result<(), QueueError> {
        let mut connection = self.connect()?;
        let create = |connection: &mut Connection| -> Result<(), RedisError> {
            connection.del::<_, ()>(&self.key)?;
            connection.xgroup_create_mkstream::<_, _, _, ()>(&self.key, GROUP, "0")
        };
        create(&mut connection).map_err(failed(DRIVER, "create the stream"))
    }

    fn sender(&self, _index: usize) -> Result<Box<dyn Sender>, QueueError> {
        Ok(Box::new(RedisSender { connection: self.connect()?, key: self.key.clone() }))
    }

    fn receiver(&self, index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        Ok(Box::new(RedisReceiver {
            connection: self.connect()?,
            key: self.key.clone(),
            consumer: format!("c{index}"),
            to_ack: Vec::new(),
        }))
    }
}

struct RedisSender {
    connection: Connection,
    key: String,
}

impl Sender for RedisSender {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        let mut pipeline = redis::pipe();
        for body in batch {
            pipeline.cmd("XADD").arg(&self.key).arg("*").arg(FIELD).arg(*body).ignore();
        }
        pipeline.query::<()>(&mut self.connection).map_err(failed(DRIVER, "XADD"))
    }
}

struct RedisReceiver {
    connection: Connection,
    key: String,
    consumer: String,
    /// Identifiers of unacknowledged entries.
    to_ack: Vec<String>,
}

impl Receiver for RedisReceiver {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        // A block of 0 would mean for ever.
        let block_ms = usize::try_from(wait.as_millis()).unwrap_or(usize::MAX).max(1);
        let options =
            StreamReadOptions::default().group(GROUP, &self.consumer).count(max).block(block_ms);
        let reply: Option<StreamReadReply> = self
            .connection
            .xread_options(&[&self.key], &[">"], &options)
            .map_err(failed(DRIVER, "XREADGROUP"))?;
        let mut count = 0;
        for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
            if let Some(redis::Value::BulkString(body)) = entry.map.get(FIELD) {
                each(body);
                count += 1;
            }
            self.to_ack.push(entry.id);
        }
        Ok(count)
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        if self.to_ack.is_empty() {
            return Ok(());
        }
        self.connection
            .xack::<_, _, _, ()>(&self.key, GROUP, &self.to_ack)
            .map_err(failed(DRIVER, "XACK"))?;
        self.to_ack.clear();
        Ok(())
    }
}
