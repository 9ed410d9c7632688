//! What is in a store, and changes to it behind everybody's back.
#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::future::Future;

fn wait<T>(work: impl Future<Output = object_store::Result<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work).expect("memory does not fail")
}

/// Every object, by key.
pub fn all(store: &InMemory) -> BTreeMap<String, Bytes> {
    let listed: Vec<_> = wait(store.list(None).try_collect());
    let keys = listed.into_iter().map(|meta| meta.location.to_string());
    keys.map(|key| (key.clone(), get(store, &key))).collect()
}

pub fn get(store: &InMemory, key: &str) -> Bytes {
    wait(async { store.get(&Path::from(key)).await?.bytes().await })
}

pub fn put(store: &InMemory, key: &str, bytes: impl Into<Bytes>) {
    wait(store.put(&Path::from(key), bytes.into().into()));
}

pub fn delete(store: &InMemory, key: &str) {
    wait(store.delete(&Path::from(key)));
}

/// A store with these objects.
pub fn store_of(objects: &BTreeMap<String, Bytes>) -> InMemory {
    let store = InMemory::new();
    for (key, bytes) in objects {
        put(&store, key, bytes.clone());
    }
    store
}

pub fn crc(bytes: &[u8]) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "a sum of 32 bits")]
    {
        checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
}

/// A copy that says it is of another version of the format, with every checksum right: magic of 8
/// bytes, version, checksum of `summed` bytes with this field zero.
pub fn of_version(bytes: &[u8], version: u32, summed: usize) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    copy[8..12].copy_from_slice(&version.to_le_bytes());
    copy[12..16].fill(0);
    let sum = crc(&copy[..summed]);
    copy[12..16].copy_from_slice(&sum.to_le_bytes());
    copy
}
