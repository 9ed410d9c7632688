//! Keys of encryption at rest, and sealing and opening with them.
//!
//! What is sealed: the records of a frame, a footer, the snapshot of a checkpoint. What is sealed says
//! the id of its key in front, in the clear, so that a key that is not configured is *named* and never
//! taken for damage; checksums are those of the sealed bytes, so that whoever only moves or compares
//! them needs no key.
//!
//! No key is used for two messages with one nonce: each opening of a log draws a random salt, derives
//! a key of its own from it, and counts what it seals.

use crate::env::Entropy;
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// Bytes in front of what is sealed: cipher u8, zero 3 bytes, nonce 12 bytes, salt 16 bytes.
pub const SEAL_HEAD_BYTES: usize = 32;

/// Bytes behind it, by which a change is noticed.
pub const SEAL_TAG_BYTES: usize = 16;

/// Bytes that sealing adds.
pub const SEAL_BYTES: usize = SEAL_HEAD_BYTES + SEAL_TAG_BYTES;

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// Derived keys of other openings that are kept for reading. Each is derived in about a microsecond.
const KEPT_KEYS: usize = 16;

/// Separates these keys from any others that are made of the same text.
const MASTER_LABEL: &[u8] = b"nuthatch log key 1";
const ID_LABEL: &[u8] = b"nuthatch log key id";
const SEAL_LABEL: &[u8] = b"nuthatch log seal 1";

/// How things are sealed. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Cipher {
    /// ChaCha20-Poly1305. The default, as in nats-server.
    #[default]
    ChaCha20Poly1305 = 1,
    /// AES-256-GCM: faster where the processor has instructions for it.
    Aes256Gcm = 2,
}

impl Cipher {
    const fn from_u8(n: u8) -> Option<Self> {
        match n {
            1 => Some(Self::ChaCha20Poly1305),
            2 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    const fn algorithm(self) -> &'static ring::aead::Algorithm {
        match self {
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Self::Aes256Gcm => &AES_256_GCM,
        }
    }
}

/// Name of a key, part of the format: the first four bytes of an HMAC under it, never 0, which stands
/// for "not encrypted". It tells nothing of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyId(pub u32);

impl KeyId {
    /// Not encrypted.
    pub const NONE: Self = Self(0);

    /// True if something is encrypted.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {self}")
    }
}

/// A key. Never printed; its bytes are overwritten when the last copy goes.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    master: Arc<Zeroizing<[u8; 32]>>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.master == other.master
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

impl Key {
    /// The key that a text stands for; `None` of an empty one. It is not stretched: the text itself
    /// must be beyond guessing.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, MASTER_LABEL), text);
        let mut master = Zeroizing::new([0; 32]);
        master.copy_from_slice(tag.as_ref());
        let name = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*master), ID_LABEL);
        let name = name.as_ref();
        let id = KeyId(u32::from_be_bytes([name[0], name[1], name[2], name[3]]).max(1));
        Some(Self { id, master: Arc::new(master) })
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The key of one opening of a log.
    fn derive(&self, cipher: Cipher, salt: &[u8; SALT_BYTES]) -> LessSafeKey {
        let master = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &**self.master);
        let algorithm = cipher.algorithm();
        let info: [&[u8]; 3] = [SEAL_LABEL, &[cipher as u8], salt];
        let derived = master.expand(&info, algorithm).expect("32 bytes are within HKDF's limit");
        LessSafeKey::new(UnboundKey::from(derived))
    }
}

/// The keys of a log, as they are configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Seals whatever is written. `None`: it is not encrypted.
    pub current: Option<Key>,
    /// Open what was written under them; compaction writes it anew.
    pub previous: Vec<Key>,
    /// How things are sealed from now on.
    pub cipher: Cipher,
}

impl Keys {
    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.current.is_none() && self.previous.is_empty()
    }
}

/// Why something sealed was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealFault {
    /// Its key is not configured.
    NoKey(KeyId),
    /// It was sealed in a way that only a later version knows.
    Unknown,
    /// It is not what was sealed under this key, here.
    Broken,
}

/// The keys of an open log, ready for use. Cheap to copy; without keys there is nothing behind it.
#[derive(Clone, Default)]
pub struct Keyring(Option<Arc<Ring>>);

struct Ring {
    keys: Vec<RingKey>,
    current: KeyId,
    cipher: Cipher,
    salt: [u8; SALT_BYTES],
    /// Nonces given out.
    sealed: AtomicU64,
    /// Keys of other openings that were derived for reading, the newest last.
    derived: Mutex<Vec<Derived>>,
}

struct RingKey {
    key: Key,
    sealing: LessSafeKey,
}

struct Derived {
    id: KeyId,
    cipher: Cipher,
    salt: [u8; SALT_BYTES],
    key: Arc<LessSafeKey>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({})", self.names())
    }
}

impl Keyring {
    /// Readies keys for one opening of a log. Without keys nothing is drawn from `entropy`.
    #[must_use]
    pub fn new(keys: &Keys, entropy: &mut dyn Entropy) -> Self {
        if keys.is_empty() {
            return Self::default();
        }
        let (salt, cipher) = (entropy.salt(), keys.cipher);
        let mut ring: Vec<RingKey> = Vec::new();
        for key in keys.current.iter().chain(&keys.previous) {
            if ring.iter().all(|other| other.key.id != key.id) {
                ring.push(RingKey { sealing: key.derive(cipher, &salt), key: key.clone() });
            }
        }
        Self(Some(Arc::new(Ring {
            keys: ring,
            current: keys.current.as_ref().map_or(KeyId::NONE, Key::id),
            cipher,
            salt,
            sealed: AtomicU64::new(0),
            derived: Mutex::default(),
        })))
    }

    /// Name of the key for what is written anew.
    #[must_use]
    pub fn current(&self) -> KeyId {
        self.0.as_ref().map_or(KeyId::NONE, |ring| ring.current)
    }

    /// True if what is under a key can be read, as all can that is not encrypted.
    #[must_use]
    pub fn has(&self, id: KeyId) -> bool {
        !id.is_some() || self.get(id).is_some()
    }

    /// The names of the keys, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        let names = self.0.iter().flat_map(|ring| ring.keys.iter().map(|key| key.key.id));
        let names: Vec<String> = names.map(|id| id.to_string()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// Bytes that sealing under a key adds: none where nothing is sealed.
    #[must_use]
    pub const fn overhead(id: KeyId) -> usize {
        if id.is_some() { SEAL_BYTES } else { 0 }
    }

    fn get(&self, id: KeyId) -> Option<(&Ring, &RingKey)> {
        let ring = self.0.as_deref()?;
        ring.keys.iter().find(|key| key.key.id == id).map(|key| (ring, key))
    }

    /// Encrypts `plain` in place under a key of the ring; returns what stands before and behind it.
    /// `context` must be the same when it is opened.
    ///
    /// # Panics
    /// The key is not in the ring: whoever seals has looked.
    #[must_use]
    pub fn seal(
        &self,
        id: KeyId,
        context: &[u8],
        plain: &mut [u8],
    ) -> ([u8; SEAL_HEAD_BYTES], [u8; SEAL_TAG_BYTES]) {
        let (ring, key) = self.get(id).expect("whoever seals has the key");
        let number = ring.sealed.fetch_add(1, Ordering::Relaxed);
        let mut head = [0; SEAL_HEAD_BYTES];
        head[0] = ring.cipher as u8;
        head[4..12].copy_from_slice(&number.to_le_bytes());
        head[16..].copy_from_slice(&ring.salt);
        let nonce = Nonce::try_assume_unique_for_key(&head[4..16]).expect("twelve bytes");
        let sealed = key.sealing.seal_in_place_separate_tag(nonce, Aad::from(context), plain);
        let tag = sealed.expect("what is sealed here is far below the ciphers' limits");
        let mut tag_bytes = [0; SEAL_TAG_BYTES];
        tag_bytes.copy_from_slice(tag.as_ref());
        (head, tag_bytes)
    }

    /// As [`Keyring::seal`] of bytes from `from` on, which grow by [`SEAL_BYTES`].
    pub fn seal_vec(&self, id: KeyId, context: &[u8], bytes: &mut Vec<u8>, from: usize) {
        let (head, tag) = self.seal(id, context, &mut bytes[from..]);
        bytes.splice(from..from, head);
        bytes.extend_from_slice(&tag);
    }

    /// Decrypts what was sealed, in place: the plain bytes are then at the front. Returns how many.
    ///
    /// # Errors
    /// [`SealFault`]; what `sealed` holds then means nothing.
    pub fn open(&self, id: KeyId, context: &[u8], sealed: &mut [u8]) -> Result<usize, SealFault> {
        let (ring, key) = self.get(id).ok_or(SealFault::NoKey(id))?;
        let head = sealed.first_chunk::<SEAL_HEAD_BYTES>().ok_or(SealFault::Broken)?;
        let cipher = Cipher::from_u8(head[0]).filter(|_| head[1..4] == [0; 3]);
        let cipher = cipher.ok_or(SealFault::Unknown)?;
        let nonce = Nonce::try_assume_unique_for_key(&head[4..16]).expect("twelve bytes");
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&head[16..]);
        let key = ring.derived(&key.key, cipher, salt);
        let opened = key.open_within(nonce, Aad::from(context), sealed, SEAL_HEAD_BYTES..);
        opened.map(|plain| plain.len()).map_err(|_| SealFault::Broken)
    }
}

impl Ring {
    /// The derived key of an opening, which are few.
    fn derived(&self, key: &Key, cipher: Cipher, salt: [u8; SALT_BYTES]) -> Arc<LessSafeKey> {
        let mut kept = self.derived.lock();
        let is_it = |one: &&Derived| (one.id, one.cipher, one.salt) == (key.id, cipher, salt);
        if let Some(found) = kept.iter().find(is_it) {
            return Arc::clone(&found.key);
        }
        let derived = Arc::new(key.derive(cipher, &salt));
        if kept.len() >= KEPT_KEYS {
            kept.remove(0);
        }
        kept.push(Derived { id: key.id, cipher, salt, key: Arc::clone(&derived) });
        derived
    }
}

#[cfg(test)]
mod tests;
