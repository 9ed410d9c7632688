//! Objects in etcd, created where there is none: what a cluster's catalog is ordered by, as blocking calls.
//!
//! Everything is one kind of request, a transaction that may be repeated: reads change nothing, and a creation that finds
//! its own bytes was carried out before. So a request whose answer is lost is asked again, of the same server or of the
//! next, and what is there decides. Reads are linearizable. Of keys only the newest value is read, so a compaction of etcd
//! takes nothing away.
//!
//! Whoever reads or creates an object names the one that comes before it, and both are looked at in the same transaction:
//! so it is noticed when etcd was set back (restored from a copy), also under nodes that run.
//!
//! No call takes longer than [`CALL_MAX`] and what a thread is late. etcd's own client library is not used: it needs a
//! `protoc` to build, and asks a server that is gone as often as the others.

mod address;
mod error;
mod messages;
mod servers;
mod settings;
mod verdict;

pub use address::{Address, ENDPOINTS_MAX};
pub use error::{EtcdError, OpenError};
pub use servers::{ATTEMPT_MAX, CALL_MAX, REQUESTS_MAX};
pub use settings::{CA_FILE, CERT_FILE, Credentials, KEY_FILE, PASSWORD, Settings, USER};

use bytes::Bytes;
use messages::{
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, get, has_value, is_absent, put, range,
};
use servers::{Asked, Servers};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tokio::runtime::{Builder, Handle, Runtime};

/// Bytes of a value at most: two of them, with their keys, are in a request, of which etcd takes 1.5 MiB.
pub const VALUE_MAX: usize = 512 << 10;

/// Values that are read by one request at most.
pub const PAGE_KEYS: usize = 32;

/// Keys without values that are listed by one request.
const LIST_PAGE: i64 = 1000;

/// An object: its key below the prefix, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Its bytes, at most [`VALUE_MAX`].
    pub bytes: Bytes,
}

/// What became of a creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// The object is there, with these bytes.
    Done,
    /// There is another one of that key.
    Taken,
    /// There is none of that key, and the one before it is not as it was.
    SetBack,
}

/// The objects below one prefix of an etcd.
pub struct Etcd {
    servers: Arc<Servers>,
    handle: Handle,
    /// Taken when this is dropped: a runtime must not be dropped where blocking is forbidden.
    runtime: Option<Runtime>,
}

impl Etcd {
    /// Prepares connections; etcd need not be there yet. Has one thread.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(address: Address, settings: Settings) -> Result<Self, OpenError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let entered = handle.enter();
        let servers = Arc::new(Servers::new(address, settings)?);
        drop(entered);
        Ok(Self { servers, handle, runtime: Some(runtime) })
    }

    /// Reads an object; none: there is none of that key.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn get(&self, key: &str) -> Result<Option<Bytes>, EtcdError> {
        let request = TxnRequest { success: vec![get(&self.key(key))], ..TxnRequest::default() };
        let found = first_range(self.txn("get", key, request)?);
        Ok(found.kvs.into_iter().next().map(|kv| kv.value))
    }

    /// Keys of all objects in the directory `under`, in their order.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn list(&self, under: &str) -> Result<Vec<String>, EtcdError> {
        let (mut from, range_end) =
            (self.key(&format!("{under}/")), self.key(&format!("{under}0")));
        let mut keys = Vec::new();
        loop {
            let page = RangeRequest {
                key: from,
                range_end: range_end.clone(),
                limit: LIST_PAGE,
                keys_only: true,
            };
            let request = TxnRequest { success: vec![range(page)], ..TxnRequest::default() };
            let found = first_range(self.txn("list", under, request)?);
            let last = found.kvs.last().map(|kv| kv.key.clone());
            keys.extend(found.kvs.iter().filter_map(|kv| self.below(&kv.key)));
            match last {
                Some(last) if found.more => from = Bytes::from([&last[..], &[0]].concat()),
                _ => return Ok(keys),
            }
        }
    }

    /// Creates an object where there is none of that key, and only if the one `before` is there as it was. `object`'s
    /// bytes must be unique to what it says (hold a random identity): one that is there already counts as created.
    ///
    /// # Errors
    /// [`EtcdError`]: whether it was, or will be, created is not known.
    pub fn create(&self, object: &Object, before: Option<&Object>) -> Result<Creation, EtcdError> {
        let key = self.key(&object.key);
        if object.bytes.len() > VALUE_MAX {
            let (key, bytes) = (told_key(&key), object.bytes.len());
            return Err(EtcdError::TooLarge { key, bytes, max: VALUE_MAX });
        }
        let before = before.map(|before| has_value(&self.key(&before.key), &before.bytes));
        let request = TxnRequest {
            compare: std::iter::once(is_absent(&key)).chain(before).collect(),
            success: vec![put(&key, &object.bytes)],
            failure: vec![get(&key)],
        };
        let answer = self.txn("create", &object.key, request)?;
        if answer.succeeded {
            return Ok(Creation::Done);
        }
        Ok(match first_range(answer).kvs.first() {
            Some(there) if there.value == object.bytes => Creation::Done,
            Some(_) => Creation::Taken,
            None => {
                self.servers.turn();
                Creation::SetBack
            }
        })
    }

    /// Reads up to [`PAGE_KEYS`] objects of the directory of `from`: it and those behind it, in the order of their keys.
    /// None: the object `before` is not there as it was.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn read_on(&self, before: &Object, from: &str) -> Result<Option<Vec<Object>>, EtcdError> {
        let directory = from.rsplit_once('/').map_or("", |(directory, _)| directory);
        let page = RangeRequest {
            key: self.key(from),
            range_end: self.key(&format!("{directory}0")),
            limit: i64::try_from(PAGE_KEYS).expect("a few"),
            keys_only: false,
        };
        let request = TxnRequest {
            compare: vec![has_value(&self.key(&before.key), &before.bytes)],
            success: vec![range(page)],
            failure: Vec::new(),
        };
        let answer = self.txn("read", from, request)?;
        if !answer.succeeded {
            // Another server of the list may not be set back.
            self.servers.turn();
            return Ok(None);
        }
        let object =
            |kv: messages::KeyValue| Some(Object { key: self.below(&kv.key)?, bytes: kv.value });
        Ok(Some(first_range(answer).kvs.into_iter().filter_map(object).collect()))
    }

    fn key(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}/{key}", self.servers.prefix))
    }

    /// A key without the prefix; none: it is no text, so none of ours.
    fn below(&self, key: &Bytes) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        let key = key.strip_prefix(&self.servers.prefix)?.strip_prefix('/')?;
        Some(key.to_owned())
    }

    /// Blocks the calling thread, which may be one of another runtime, no longer than [`CALL_MAX`].
    fn txn(
        &self,
        operation: &'static str,
        key: &str,
        request: TxnRequest,
    ) -> Result<TxnResponse, EtcdError> {
        let (done, answer) = sync_channel(1);
        let servers = Arc::clone(&self.servers);
        let asked = Asked { operation, key: told_key(&self.key(key)) };
        self.handle.spawn(async move {
            let _ = done.send(servers.txn(asked, request).await);
        });
        answer.recv().unwrap_or(Err(EtcdError::Closed))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn told_key(key: &Bytes) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn first_range(answer: TxnResponse) -> RangeResponse {
    answer.responses.into_iter().next().and_then(|first| first.range).unwrap_or_default()
}
