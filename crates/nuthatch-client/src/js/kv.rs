//! Key-value buckets (ADR-8): a stream `KV_<bucket>` whose subjects are `$KV.<bucket>.<key>`.

use std::time::Duration;

use nuthatch_protocol::js::{
    AckPolicy, ConsumerAction, ConsumerConfig, DeliverPolicy, DiscardPolicy, GetRequest,
    StreamConfig, StreamInfo, StreamInfoRequest, Time,
};

use super::calls::Delivered;
use super::{JetStream, JsError, NO_MESSAGE, STREAM_NOT_FOUND, WRONG_LAST_SEQUENCE};
use crate::frame::Message;

/// What the streams behind buckets begin with.
const STREAM_PREFIX: &str = "KV_";
/// Names the operation of an entry that is no value.
const OPERATION: &str = "KV-Operation";
/// The revision that a key must still have.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// Entries asked for at a time.
const BATCH: u64 = 256;
/// The server removes a reader this long after it is gone, ns.
const INACTIVE_NS: i64 = 30_000_000_000;

/// Why something with a bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// A bucket has letters, digits, `_` and `-`; a key `/`, `=` and `.` too, and no empty part.
    #[error("{0:?} is no name of a bucket or a key")]
    BadName(String),
    /// There is no such bucket.
    #[error("there is no bucket {0}")]
    NoBucket(String),
    /// The key has another revision than the one that was expected; nothing was written.
    #[error("key {key} has not revision {expected} any more")]
    Changed {
        /// Which.
        key: String,
        /// The revision that was expected; 0: none.
        expected: u64,
    },
    /// The server stopped in the middle of a list.
    #[error("the bucket's stream delivers nothing more, and {left} entries are left")]
    Cut {
        /// How many.
        left: u64,
    },
    /// JetStream refused, or the connection failed.
    #[error(transparent)]
    Js(#[from] JsError),
}

/// What an entry did to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It has a value.
    Put,
    /// The key was deleted.
    Delete,
    /// The key was deleted with its history.
    Purge,
}

impl Operation {
    /// What a message of a bucket's stream does to its key.
    #[must_use]
    pub fn of(message: &Message<'_>) -> Self {
        match (message.header(OPERATION), message.header("Nats-Marker-Reason")) {
            (Some("DEL"), _) => Self::Delete,
            (Some("PURGE"), _) | (_, Some("MaxAge" | "Purge")) => Self::Purge,
            (_, Some("Remove")) => Self::Delete,
            _ => Self::Put,
        }
    }

    /// `PUT`, `DEL` or `PURGE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Delete => "DEL",
            Self::Purge => "PURGE",
        }
    }
}

/// A value of a key, or the marker of its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value; empty of a marker.
    pub value: Vec<u8>,
    /// What it did.
    pub operation: Operation,
    /// Sequence in the bucket's stream: later ones are higher.
    pub revision: u64,
    /// When it was stored.
    pub time: Time,
}

/// A bucket.
#[derive(Debug)]
pub struct KeyValue<'a> {
    js: JetStream<'a>,
    bucket: String,
    stream: String,
}

impl<'a> KeyValue<'a> {
    /// The configuration of a bucket's stream: the newest value of each key, kept for good, in one copy. What it
    /// is to have otherwise is set in it before [`KeyValue::create`].
    ///
    /// # Errors
    /// [`KvError::BadName`].
    pub fn config(bucket: &str) -> Result<StreamConfig, KvError> {
        Ok(StreamConfig {
            name: stream_of(bucket)?,
            subjects: vec![format!("$KV.{bucket}.>")],
            max_msgs_per_subject: 1,
            max_msgs: -1,
            max_bytes: -1,
            max_msg_size: -1,
            max_consumers: -1,
            num_replicas: 1,
            discard: DiscardPolicy::New,
            allow_rollup_hdrs: true,
            deny_delete: true,
            allow_direct: true,
            ..StreamConfig::default()
        })
    }

    /// Makes a bucket, or finds it there with this configuration.
    ///
    /// # Errors
    /// [`KvError::BadName`] if it is no configuration of a bucket, or what JetStream says.
    pub fn create(mut js: JetStream<'a>, config: &StreamConfig) -> Result<Self, KvError> {
        let bucket = config.name.strip_prefix(STREAM_PREFIX).unwrap_or_default().to_owned();
        let stream = stream_of(&bucket)?;
        js.create_stream(config)?;
        Ok(Self { js, bucket, stream })
    }

    /// A bucket that is there; whether it is shows with the first call.
    ///
    /// # Errors
    /// [`KvError::BadName`].
    pub fn open(js: JetStream<'a>, bucket: &str) -> Result<Self, KvError> {
        Ok(Self { js, bucket: bucket.to_owned(), stream: stream_of(bucket)? })
    }

    /// Configuration and state of its stream.
    ///
    /// # Errors
    /// [`KvError::NoBucket`], or what JetStream says.
    pub fn info(&mut self) -> Result<StreamInfo, KvError> {
        let info = self.js.stream(&self.stream, &StreamInfoRequest::default());
        info.map_err(|error| explained(&self.bucket, error))
    }

    /// The newest value of a key; `None` if it has none, or was deleted.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn get(&mut self, key: &str) -> Result<Option<Entry>, KvError> {
        Ok(self.newest(key)?.filter(|entry| entry.operation == Operation::Put))
    }

    /// The newest entry of a key, a marker of its deletion too.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn newest(&mut self, key: &str) -> Result<Option<Entry>, KvError> {
        let last_by_subj = self.subject(key)?;
        self.find(&GetRequest { last_by_subj, ..GetRequest::default() })
    }

    /// The entry of a revision, if that is still there and of this key.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn revision(&mut self, key: &str, seq: u64) -> Result<Option<Entry>, KvError> {
        self.subject(key)?;
        let found = self.find(&GetRequest { seq, ..GetRequest::default() })?;
        Ok(found.filter(|entry| entry.key == key))
    }

    fn find(&mut self, which: &GetRequest) -> Result<Option<Entry>, KvError> {
        let stored = match self.js.message(&self.stream, which) {
            Err(error) if error.err_code() == Some(NO_MESSAGE) => return Ok(None),
            other => other.map_err(|error| explained(&self.bucket, error))?,
        };
        let view = Message {
            subject: stored.subject.as_bytes(),
            sid: 0,
            reply: None,
            headers: &stored.headers,
            payload: &stored.data,
        };
        let operation = Operation::of(&view);
        let key = self.key_of(&stored.subject);
        let (revision, time) = (stored.seq, stored.time);
        Ok(Some(Entry { key, value: stored.data, operation, revision, time }))
    }

    /// Stores a value; returns its revision.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<u64, KvError> {
        self.write(key, &[], value, None)
    }

    /// Stores a value of a key that has none, or was deleted.
    ///
    /// # Errors
    /// [`KvError::Changed`] if it has one.
    pub fn create_key(&mut self, key: &str, value: &[u8]) -> Result<u64, KvError> {
        match self.write(key, &[], value, Some(0)) {
            Err(KvError::Changed { key, expected }) => match self.newest(&key)? {
                Some(last) if last.operation != Operation::Put => {
                    self.write(&key, &[], value, Some(last.revision))
                }
                _ => Err(KvError::Changed { key, expected }),
            },
            other => other,
        }
    }

    /// Replaces the value of a revision.
    ///
    /// # Errors
    /// [`KvError::Changed`] if the key has another one.
    pub fn update(&mut self, key: &str, value: &[u8], revision: u64) -> Result<u64, KvError> {
        self.write(key, &[], value, Some(revision))
    }

    /// Deletes a key; older values stay as the bucket's history says.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn delete(&mut self, key: &str) -> Result<u64, KvError> {
        self.write(key, &[(OPERATION, "DEL")], b"", None)
    }

    /// Deletes a key with its history.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn purge(&mut self, key: &str) -> Result<u64, KvError> {
        self.write(key, &[(OPERATION, "PURGE"), ("Nats-Rollup", "sub")], b"", None)
    }

    fn write(
        &mut self,
        key: &str,
        headers: &[(&str, &str)],
        value: &[u8],
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        let subject = self.subject(key)?;
        let expected_text = expected.map(|revision| revision.to_string());
        let mut headers = headers.to_vec();
        headers.extend(expected_text.as_deref().map(|text| (EXPECTED, text)));
        match self.js.publish(&subject, &super::header_block(&headers), value) {
            Err(error) if error.err_code() == Some(WRONG_LAST_SEQUENCE) => {
                Err(KvError::Changed { key: key.to_owned(), expected: expected.unwrap_or(0) })
            }
            other => other.map_err(|error| explained(&self.bucket, error)),
        }
    }

    /// All keys that have a value, in the order of their newest entries.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn keys(&mut self) -> Result<Vec<String>, KvError> {
        let mut keys = Vec::new();
        self.read(DeliverPolicy::LastPerSubject, ">", true, |entry| {
            if entry.operation == Operation::Put {
                keys.push(entry.key);
            }
        })?;
        Ok(keys)
    }

    /// All that is kept of a key, the oldest first.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn history(&mut self, key: &str) -> Result<Vec<Entry>, KvError> {
        self.subject(key)?;
        let mut entries = Vec::new();
        self.read(DeliverPolicy::All, key, false, |entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Reads what there is now, through a consumer that goes with it.
    fn read(
        &mut self,
        deliver_policy: DeliverPolicy,
        filter: &str,
        headers_only: bool,
        mut each: impl FnMut(Entry),
    ) -> Result<(), KvError> {
        let name = format!("read{:016x}", crate::random_u64());
        let config = ConsumerConfig {
            name: name.clone(),
            deliver_policy,
            ack_policy: AckPolicy::None,
            filter_subject: format!("$KV.{}.{filter}", self.bucket),
            headers_only,
            mem_storage: true,
            inactive_threshold: INACTIVE_NS,
            num_replicas: 1,
            ..ConsumerConfig::default()
        };
        let made = self.js.create_consumer(&self.stream, &config, ConsumerAction::Create);
        let mut left = made.map_err(|error| explained(&self.bucket, error))?.num_pending;
        while left > 0 {
            let batch = self.js.fetch(&self.stream, &name, left.min(BATCH))?;
            left = match batch.last() {
                Some(last) => last.pending,
                // What was there may have gone meanwhile; what is still there must not be left out.
                None => match self.js.consumer(&self.stream, &name)?.num_pending {
                    0 => 0,
                    left => return Err(KvError::Cut { left }),
                },
            };
            batch.into_iter().for_each(|one| each(self.entry(one)));
        }
        Ok(self.js.delete_consumer(&self.stream, &name)?)
    }

    fn entry(&self, delivered: Delivered) -> Entry {
        let operation = Operation::of(&delivered.message.view());
        let (revision, time) = (delivered.seq, delivered.time);
        let key = self.key_of(&delivered.message.subject);
        Entry { key, value: delivered.message.payload, operation, revision, time }
    }

    fn subject(&self, key: &str) -> Result<String, KvError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-/_=.".contains(c);
        if !key.chars().all(good) || key.split('.').any(str::is_empty) {
            return Err(KvError::BadName(key.to_owned()));
        }
        Ok(format!("$KV.{}.{key}", self.bucket))
    }

    fn key_of(&self, subject: &str) -> String {
        let parts = subject.strip_prefix("$KV.").and_then(|rest| rest.strip_prefix(&*self.bucket));
        parts.and_then(|rest| rest.strip_prefix('.')).unwrap_or(subject).to_owned()
    }
}

/// How long values are kept, for [`KeyValue::config`]: `max_age` with the window of message ids that fits.
pub fn set_time_to_live(config: &mut StreamConfig, ttl: Duration) {
    const WINDOW_MAX_NS: i64 = 120_000_000_000;
    config.max_age = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
    config.duplicate_window = config.max_age.min(WINDOW_MAX_NS);
}

fn stream_of(bucket: &str) -> Result<String, KvError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if bucket.is_empty() || !bucket.chars().all(good) {
        return Err(KvError::BadName(bucket.to_owned()));
    }
    Ok(format!("{STREAM_PREFIX}{bucket}"))
}

fn explained(bucket: &str, error: JsError) -> KvError {
    let unheard = matches!(&error, JsError::Request(crate::RequestError::NoResponders(_)));
    if unheard || error.err_code() == Some(STREAM_NOT_FOUND) {
        return KvError::NoBucket(bucket.to_owned());
    }
    KvError::Js(error)
}
