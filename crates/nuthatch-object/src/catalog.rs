//! The log's catalog as numbered objects, each made by conditional creation: of two owners that
//! would change it at the same time one is refused. A new owner writes a version before it reads
//! anything else (it *claims* the catalog), so that no other owner's change can come after what it
//! has read.

use crate::bucket::{Bucket, BucketError};
use crate::manifest::{LATER_VERSION, crc};
use crate::names::{CATALOGS, catalog, catalog_key};
use crate::numbered::numbered;
use crate::owner::Owner;
use crate::rules;
use bytes::Bytes;
use nuthatch_log::Entropy;
use nuthatch_log::env::SeededEntropy;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"NUTHOCAT";

/// Version of the format that this code writes, and the only one it reads.
const VERSION: u32 = 1;

const HEADER_BYTES: usize = 48;

/// Versions kept; older ones are removed. An owner that sleeps may create a removed number again,
/// which is why it looks for the fence after each creation, and why the newest number counts.
const KEPT_VERSIONS: u64 = 8;

/// The versions of a catalog, for their owner.
pub struct CatalogVersions {
    bucket: Arc<Bucket>,
    owner: Arc<Owner>,
    state: Mutex<State>,
}

struct State {
    newest: u64,
    oldest: u64,
    body: Bytes,
    nonces: SeededEntropy,
}

impl CatalogVersions {
    /// Reads the newest version and writes it again as the owner's.
    ///
    /// # Errors
    /// The store's; `InvalidData` if the newest version is damaged; [`crate::Fenced`].
    pub fn claim(bucket: Arc<Bucket>, owner: Arc<Owner>, seed: u64) -> io::Result<Self> {
        Self::claim_with(bucket, owner, seed, |bucket, numbers| {
            numbers.last().map_or_else(|| Ok(Bytes::new()), |newest| Ok(read(bucket, *newest)?.1))
        })
    }

    /// As [`CatalogVersions::claim`] of the newest version that can be read.
    ///
    /// # Errors
    /// The store's; `InvalidData` if a version is of a later format; [`crate::Fenced`].
    pub fn claim_readable(bucket: Arc<Bucket>, owner: Arc<Owner>, seed: u64) -> io::Result<Self> {
        Self::claim_with(bucket, owner, seed, |bucket, numbers| {
            Ok(newest_readable(bucket, numbers)?.body.unwrap_or_default())
        })
    }

    fn claim_with(
        bucket: Arc<Bucket>,
        owner: Arc<Owner>,
        seed: u64,
        body_of: impl Fn(&Bucket, &[u64]) -> io::Result<Bytes>,
    ) -> io::Result<Self> {
        let mut nonces = SeededEntropy::new(seed);
        loop {
            let numbers = numbers(&bucket)?;
            let (oldest, newest) =
                (numbers.first().copied().unwrap_or(1), numbers.last().copied().unwrap_or(0));
            let body = body_of(&bucket, &numbers)?;
            let object = encode(owner.epoch(), &mut nonces, &body);
            if !rules::CATALOG_CLAIMED.holds() {
                let state = State { newest, oldest, body, nonces };
                return Ok(Self { bucket, owner, state: Mutex::new(state) });
            }
            match bucket.create(&catalog(newest + 1), &object) {
                Ok(()) => {
                    let state = State { newest: newest + 1, oldest, body, nonces };
                    return Ok(Self { bucket, owner, state: Mutex::new(state) });
                }
                // Its last owner was still at work, or the next one is.
                Err(BucketError::Exists { .. }) => owner.check()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The epoch of the owner that wrote the newest version; 0: there is none. Every owner
    /// writes one before anything else.
    ///
    /// # Errors
    /// The store's; `InvalidData` if the newest version is damaged.
    pub fn newest_epoch(bucket: &Bucket) -> io::Result<u32> {
        numbers(bucket)?.last().map_or(Ok(0), |newest| Ok(read(bucket, *newest)?.0))
    }

    /// Key of the version that was written last, and of the one that the next change makes.
    pub fn keys(&self) -> (String, String) {
        let newest = self.state.lock().newest;
        (catalog(newest), catalog(newest + 1))
    }

    /// The newest content as it is, for reading only.
    ///
    /// # Errors
    /// The store's; `InvalidData` if the newest version is damaged.
    pub fn peek(bucket: &Bucket) -> io::Result<Option<Bytes>> {
        let newest = numbers(bucket)?.last().copied();
        let body = newest.map(|number| read(bucket, number)).transpose()?.map(|(_, body)| body);
        Ok(body.filter(|body| !body.is_empty()))
    }

    /// The newest content; `None` if there was never any.
    #[must_use]
    pub fn body(&self) -> Option<Bytes> {
        let body = self.state.lock().body.clone();
        (!body.is_empty()).then_some(body)
    }

    /// Replaces the content.
    ///
    /// An attempt that failed may have taken effect, or take effect yet: nobody relies on its content
    /// then, and the next one settles it. Who creates the number that the failed one tried to has kept
    /// it from arriving later; if it is there, the next number follows it.
    ///
    /// # Errors
    /// [`crate::Fenced`] if another owner has written a version, or exists; the store's.
    pub fn publish(&self, body: Bytes) -> io::Result<()> {
        let mut state = self.state.lock();
        let number = self.make(&mut state, &body)?;
        // The number is taken, whatever the look for a later owner says: should that fail for a
        // moment only, the next change takes the next one.
        state.newest = number;
        if rules::LOOK_AFTER_CATALOG.holds() {
            self.owner.check()?;
        }
        state.body = body;
        self.trim(&mut state);
        Ok(())
    }

    /// Makes the next version; returns its number.
    fn make(&self, state: &mut State, body: &Bytes) -> io::Result<u64> {
        let object = encode(self.owner.epoch(), &mut state.nonces, body);
        loop {
            let number = state.newest + 1;
            let made = if rules::CATALOG_CREATED.holds() {
                self.bucket.create(&catalog(number), &object)
            } else {
                self.bucket.put(&catalog(number), object.clone().into())
            };
            match made {
                Ok(()) => return Ok(number),
                Err(BucketError::Exists { key }) => {
                    self.owner.check()?;
                    // Of our epoch: an earlier attempt of this owner, which had no answer.
                    let maker = read(&self.bucket, number)?.0;
                    if maker != self.owner.epoch() || !rules::UNANSWERED_SETTLED.holds() {
                        let text = format!("{key} was written by somebody else");
                        return Err(io::Error::other(text));
                    }
                    state.newest = number;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn trim(&self, state: &mut State) {
        if state.newest - state.oldest < 2 * KEPT_VERSIONS {
            return;
        }
        let keep_from = state.newest - KEPT_VERSIONS;
        let old = (state.oldest..keep_from).map(catalog).collect();
        match self.bucket.delete_all(old) {
            Ok(()) => state.oldest = keep_from,
            Err(error) => self.bucket.report(&format!("old catalogs stay for now: {error}")),
        }
    }
}

/// Numbers of the versions that are there, ascending.
///
/// # Errors
/// The store's; `InvalidData` if a version has a number that this program cannot count to.
pub fn numbers(bucket: &Bucket) -> io::Result<Vec<u64>> {
    Ok(numbered(bucket, CATALOGS, "version of the catalog", catalog_key)?.0)
}

/// The newest version that can be read, and those above it.
#[derive(Default, Debug)]
pub struct Readable {
    /// Its content; `None` if there is none.
    pub body: Option<Bytes>,
    /// Its key.
    pub key: Option<String>,
    /// Epoch of its writer.
    pub epoch: Option<u32>,
    /// Keys of newer versions, the newest first, and what is wrong with each.
    pub damaged: Vec<(String, &'static str)>,
}

/// Looks for the newest version that can be read.
///
/// # Errors
/// The store's; `InvalidData` if a version is of a later format.
pub fn survey(bucket: &Bucket) -> io::Result<Readable> {
    newest_readable(bucket, &numbers(bucket)?)
}

fn newest_readable(bucket: &Bucket, numbers: &[u64]) -> io::Result<Readable> {
    let mut found = Readable::default();
    for key in numbers.iter().rev().map(|number| catalog(*number)) {
        match decode(&bucket.get(&key)?) {
            Ok((epoch, body)) => {
                found.epoch = Some(epoch);
                found.body = (!body.is_empty()).then_some(body);
                found.key = Some(key);
                return Ok(found);
            }
            Err(what) if what == LATER_VERSION => return Err(unusable(bucket, &key, what)),
            Err(what) => found.damaged.push((key, what)),
        }
    }
    Ok(found)
}

/// An object that describes the log and cannot be used.
pub fn unusable(bucket: &Bucket, key: &str, what: &str) -> io::Error {
    let is = if what == LATER_VERSION { "cannot be used" } else { "is damaged" };
    let text = format!("{key} in {} {is}: {what}", bucket.label());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A version: the epoch of its writer, and the content.
fn read(bucket: &Bucket, number: u64) -> io::Result<(u32, Bytes)> {
    let key = catalog(number);
    let bytes = bucket.get(&key)?;
    decode(&bytes).map_err(|what| unusable(bucket, &key, what))
}

/// An object: header, then the content. The nonce makes each creation recognisable.
fn encode(epoch: u32, nonces: &mut SeededEntropy, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&u64::from(epoch).to_le_bytes());
    out.extend_from_slice(&nonces.next().to_le_bytes());
    out.extend_from_slice(&nonces.next().to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(body);
    let sum = crc(&out);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    Bytes::from(out)
}

fn decode(bytes: &Bytes) -> Result<(u32, Bytes), &'static str> {
    if bytes.len() < HEADER_BYTES || bytes[0..8] != MAGIC {
        return Err("it does not begin like a catalog");
    }
    let mut unsummed = bytes.to_vec();
    unsummed[12..16].fill(0);
    if rules::CATALOG_SUM.holds() && crc(&unsummed).to_le_bytes() != bytes[12..16] {
        return Err("its checksum does not fit");
    }
    if rules::LATER_VERSION_REFUSED.holds() && bytes[8..12] != VERSION.to_le_bytes() {
        return Err(LATER_VERSION);
    }
    let epoch = u64::from_le_bytes(bytes[16..24].try_into().unwrap_or_default());
    let epoch = u32::try_from(epoch).map_err(|_| "its epoch makes no sense")?;
    Ok((epoch, bytes.slice(HEADER_BYTES..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(3, &mut SeededEntropy::new(1), b"content");
        assert_eq!(decode(&bytes), Ok((3, Bytes::from_static(b"content"))));
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes.to_vec();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&Bytes::from(copy)).is_err(), "bit {bit}");
        }
    }

    fn two_owners() -> (Arc<Bucket>, CatalogVersions, CatalogVersions) {
        let store = Arc::new(object_store::memory::InMemory::new());
        let prefix = object_store::path::Path::from("log");
        let options = crate::BucketOptions::default();
        let bucket = Bucket::new(store, prefix, "memory".to_owned(), options).expect("threads");
        let bucket = Arc::new(bucket);
        let take = |nonce| {
            let owner = Owner::take(Arc::clone(&bucket), "", nonce, 0).expect("takes");
            let owner = Arc::new(owner);
            CatalogVersions::claim(Arc::clone(&bucket), owner, nonce as u64).expect("claims")
        };
        let first = take(1);
        first.publish(Bytes::from_static(b"of the first")).expect("is the owner");
        let second = take(2);
        (bucket, first, second)
    }

    /// An owner that was replaced makes no version over the newer owner's, and none that the newer
    /// one would collide with.
    #[test]
    fn an_owner_that_was_replaced_changes_no_version() {
        let (bucket, first, second) = two_owners();
        let before: Vec<_> = numbers(&bucket).expect("lists");
        let newest = bucket.get(&catalog(before[before.len() - 1])).expect("is there");
        assert!(first.publish(Bytes::from_static(b"too late")).is_err());
        assert_eq!(numbers(&bucket).expect("lists"), before);
        assert_eq!(bucket.get(&catalog(before[before.len() - 1])).expect("is there"), newest);
        second.publish(Bytes::from_static(b"of the second")).expect("is the owner");
        let peeked = CatalogVersions::peek(&bucket).expect("reads");
        assert_eq!(peeked, Some(Bytes::from_static(b"of the second")));
    }

    /// Its next number was taken and removed again while it slept: it can be created, and must not
    /// pass for published, since inputs of a compaction would be removed then.
    #[test]
    fn an_owner_that_slept_for_long_publishes_nothing() {
        let (bucket, first, second) = two_owners();
        for n in 0..3 * KEPT_VERSIONS {
            second.publish(Bytes::copy_from_slice(&n.to_le_bytes())).expect("is the owner");
        }
        let (_, next) = first.keys();
        assert!(!bucket.exists(&next).expect("answers"));
        assert!(first.publish(Bytes::from_static(b"too late")).is_err());
        let last = (3 * KEPT_VERSIONS - 1).to_le_bytes();
        assert_eq!(CatalogVersions::peek(&bucket).expect("reads").as_deref(), Some(&last[..]));
    }
}
