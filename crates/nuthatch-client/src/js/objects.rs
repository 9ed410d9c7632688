//! Object stores (ADR-20): a stream `OBJ_<bucket>` with the chunks of objects under `$O.<bucket>.C.<id>`, and what is
//! known of each under `$O.<bucket>.M.<name in base64>`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use nuthatch_protocol::js::{
    AckPolicy, ConsumerAction, ConsumerConfig, DiscardPolicy, GetRequest, PurgeRequest,
    StreamConfig, Time,
};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{JetStream, JsError, NO_MESSAGE, STREAM_NOT_FOUND, header_block};

/// What the streams behind buckets begin with.
const STREAM_PREFIX: &str = "OBJ_";
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks asked for at a time.
const BATCH: u64 = 32;
/// The server removes a reader this long after it is gone, ns.
const INACTIVE_NS: i64 = 30_000_000_000;

/// Why something with an object failed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A bucket has letters, digits, `_` and `-`.
    #[error("{0:?} is no name of a bucket")]
    BadName(String),
    /// There is no such bucket.
    #[error("there is no bucket {0}")]
    NoBucket(String),
    /// The bucket has no such object.
    #[error("there is no object {0:?}")]
    NotFound(String),
    /// What was read is not what was stored.
    #[error("object {name:?} is damaged: {why}")]
    Damaged {
        /// Which.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// The input cannot be read, or the output not written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// JetStream refused, or the connection failed.
    #[error(transparent)]
    Js(#[from] JsError),
}

/// What a bucket knows of an object; fields of later versions stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectInfo {
    /// Its name.
    pub name: String,
    /// The bucket.
    pub bucket: String,
    /// Words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Id of its chunks.
    pub nuid: String,
    /// When it was stored. Whoever reads it takes that from the message; what is stored is the zero time.
    pub mtime: Time,
    /// Bytes.
    pub size: u64,
    /// Chunks.
    pub chunks: u64,
    /// `SHA-256=` and the digest in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// It was deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Its headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// Size of chunks, and where a link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<ObjectOptions>,
    /// What is not known here.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// `null` counts as absent, as in Go.
fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// How an object is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectOptions {
    /// Bytes of a chunk at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chunk_size: Option<u64>,
    /// It stands for another object, or for a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<ObjectLink>,
}

/// Where a link leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectLink {
    /// The bucket.
    pub bucket: String,
    /// The object; empty: the bucket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A bucket of objects.
#[derive(Debug)]
pub struct ObjectStore<'a> {
    js: JetStream<'a>,
    bucket: String,
    stream: String,
}

impl<'a> ObjectStore<'a> {
    /// The configuration of a bucket's stream: kept for good, in one copy. What it is to have otherwise is set in it
    /// before [`ObjectStore::create`].
    ///
    /// # Errors
    /// [`ObjectError::BadName`].
    pub fn config(bucket: &str) -> Result<StreamConfig, ObjectError> {
        Ok(StreamConfig {
            name: stream_of(bucket)?,
            subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
            max_msgs: -1,
            max_bytes: -1,
            max_msg_size: -1,
            max_consumers: -1,
            num_replicas: 1,
            discard: DiscardPolicy::New,
            allow_rollup_hdrs: true,
            allow_direct: true,
            ..StreamConfig::default()
        })
    }

    /// Makes a bucket, or finds it there with this configuration.
    ///
    /// # Errors
    /// [`ObjectError::BadName`] if it is no configuration of a bucket, or what JetStream says.
    pub fn create(mut js: JetStream<'a>, config: &StreamConfig) -> Result<Self, ObjectError> {
        let bucket = config.name.strip_prefix(STREAM_PREFIX).unwrap_or_default().to_owned();
        let stream = stream_of(&bucket)?;
        js.create_stream(config)?;
        Ok(Self { js, bucket, stream })
    }

    /// A bucket that is there; whether it is shows with the first call.
    ///
    /// # Errors
    /// [`ObjectError::BadName`].
    pub fn open(js: JetStream<'a>, bucket: &str) -> Result<Self, ObjectError> {
        Ok(Self { js, bucket: bucket.to_owned(), stream: stream_of(bucket)? })
    }

    /// What is known of an object; `None` if there is none, or it was deleted.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn info(&mut self, name: &str) -> Result<Option<ObjectInfo>, ObjectError> {
        let last_by_subj = self.meta_subject(name);
        let which = GetRequest { last_by_subj, ..GetRequest::default() };
        let stored = match self.js.message(&self.stream, &which) {
            Err(error) if error.err_code() == Some(NO_MESSAGE) => return Ok(None),
            other => other.map_err(|error| self.explained(error))?,
        };
        let info: ObjectInfo = serde_json::from_slice(&stored.data).map_err(|error| {
            ObjectError::Damaged { name: name.to_owned(), why: error.to_string() }
        })?;
        Ok(Some(ObjectInfo { mtime: stored.time, ..info }).filter(|info| !info.deleted))
    }

    /// Stores an object, in place of one with this name. When it fails, what was sent is removed again.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn put(&mut self, name: &str, input: &mut dyn Read) -> Result<ObjectInfo, ObjectError> {
        let old = self.info(name)?;
        let max_chunk_size = Some(CHUNK_BYTES as u64);
        let mut info = ObjectInfo {
            name: name.to_owned(),
            bucket: self.bucket.clone(),
            nuid: format!("{:016x}{:06x}", crate::random_u64(), crate::random_u64() >> 40),
            options: Some(ObjectOptions { max_chunk_size, link: None }),
            ..ObjectInfo::default()
        };
        let sent = self.send(&mut info, input);
        let told = if sent.is_ok() { self.tell(&info) } else { Ok(()) };
        let dropped = match (&sent, &told) {
            (Ok(()), Ok(())) => old.as_ref(),
            (Err(_), _) | (_, Err(ObjectError::Js(JsError::Api(_)))) => Some(&info),
            // Whether it was stored is not known: chunks that nobody names do less harm than an object
            // without chunks.
            (Ok(()), Err(_)) => None,
        };
        let removed = dropped.map_or(Ok(()), |info| self.drop_chunks(info));
        // Of several failures the first one is told.
        sent.and(told).and(removed).map(|()| info)
    }

    fn send(&mut self, info: &mut ObjectInfo, input: &mut dyn Read) -> Result<(), ObjectError> {
        let subject = self.chunk_subject(info);
        let max = self.js.client().info().max_payload;
        let chunk_bytes = if max == 0 { CHUNK_BYTES } else { CHUNK_BYTES.min(max) };
        let (mut digest, mut chunk) = (Context::new(&SHA256), Vec::with_capacity(chunk_bytes));
        loop {
            chunk.clear();
            (&mut *input).take(chunk_bytes as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() {
                break;
            }
            digest.update(&chunk);
            info.size += chunk.len() as u64;
            info.chunks += 1;
            self.js.publish(&subject, b"", &chunk).map_err(|error| self.explained(error))?;
        }
        info.digest = digest_text(digest);
        Ok(())
    }

    fn tell(&mut self, info: &ObjectInfo) -> Result<(), ObjectError> {
        let body = serde_json::to_vec(info).unwrap_or_default();
        let headers = header_block(&[("Nats-Rollup", "sub")]);
        let told = self.js.publish(&self.meta_subject(&info.name), &headers, &body);
        told.map(drop).map_err(|error| self.explained(error))
    }

    /// Writes an object to `out`, and checks its length and digest.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`]; [`ObjectError::Damaged`] after what has been written.
    pub fn get(&mut self, name: &str, out: &mut dyn Write) -> Result<ObjectInfo, ObjectError> {
        let info = self.info(name)?.ok_or_else(|| ObjectError::NotFound(name.to_owned()))?;
        let damaged = |why| ObjectError::Damaged { name: name.to_owned(), why };
        let (mut digest, mut size) = (Context::new(&SHA256), 0);
        let reader = format!("read{:016x}", crate::random_u64());
        let config = ConsumerConfig {
            name: reader.clone(),
            ack_policy: AckPolicy::None,
            filter_subject: self.chunk_subject(&info),
            mem_storage: true,
            inactive_threshold: INACTIVE_NS,
            num_replicas: 1,
            ..ConsumerConfig::default()
        };
        self.js.create_consumer(&self.stream, &config, ConsumerAction::Create)?;
        let mut left = info.chunks;
        while left > 0 {
            let batch = self.js.fetch(&self.stream, &reader, left.min(BATCH))?;
            if batch.is_empty() {
                return Err(damaged(format!("{left} of {} chunks are missing", info.chunks)));
            }
            left -= batch.len() as u64;
            for chunk in batch {
                digest.update(&chunk.message.payload);
                size += chunk.message.payload.len() as u64;
                out.write_all(&chunk.message.payload)?;
            }
        }
        self.js.delete_consumer(&self.stream, &reader)?;
        out.flush()?;
        let found = digest_text(digest);
        if size != info.size || (!info.digest.is_empty() && info.digest != found) {
            let (wanted, expected) = (info.size, &info.digest);
            return Err(damaged(format!(
                "expected {wanted} bytes with {expected}, received {size} with {found}"
            )));
        }
        Ok(info)
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// [`ObjectError::NotFound`], or what JetStream says.
    pub fn delete(&mut self, name: &str) -> Result<(), ObjectError> {
        let old = self.info(name)?.ok_or_else(|| ObjectError::NotFound(name.to_owned()))?;
        let mut marker = ObjectInfo { deleted: true, ..old.clone() };
        (marker.size, marker.chunks, marker.mtime) = (0, 0, Time::ZERO);
        marker.digest.clear();
        self.tell(&marker)?;
        self.drop_chunks(&old)
    }

    fn drop_chunks(&mut self, info: &ObjectInfo) -> Result<(), ObjectError> {
        // Without an id it would be the chunks of all.
        if info.nuid.is_empty() {
            return Ok(());
        }
        let filter = self.chunk_subject(info);
        Ok(self
            .js
            .purge(&self.stream, &PurgeRequest { filter, ..PurgeRequest::default() })
            .map(drop)?)
    }

    fn meta_subject(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.bucket, URL_SAFE.encode(name))
    }

    fn chunk_subject(&self, info: &ObjectInfo) -> String {
        format!("$O.{}.C.{}", self.bucket, info.nuid)
    }

    fn explained(&self, error: JsError) -> ObjectError {
        let unheard = matches!(&error, JsError::Request(crate::RequestError::NoResponders(_)));
        if unheard || error.err_code() == Some(STREAM_NOT_FOUND) {
            return ObjectError::NoBucket(self.bucket.clone());
        }
        ObjectError::Js(error)
    }
}

fn digest_text(context: Context) -> String {
    format!("SHA-256={}", URL_SAFE.encode(context.finish()))
}

fn stream_of(bucket: &str) -> Result<String, ObjectError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if bucket.is_empty() || !bucket.chars().all(good) {
        return Err(ObjectError::BadName(bucket.to_owned()));
    }
    Ok(format!("{STREAM_PREFIX}{bucket}"))
}
