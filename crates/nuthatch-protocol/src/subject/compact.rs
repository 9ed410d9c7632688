//! Short byte strings without an allocation.
//!
//! Tokens and many subjects are at most 22 bytes long (the length of a client's inbox id), so
//! keeping them in place saves an allocation and a cache miss for each.

/// The longest string kept in place, in bytes.
const INLINE_MAX: usize = 22;

/// An immutable byte string of 24 bytes, with its bytes inside when there are at most 22.
#[derive(Clone)]
pub(super) enum CompactBytes {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<CompactBytes>() == 24);

impl CompactBytes {
    pub(super) fn new(source: &[u8]) -> Self {
        if source.len() <= INLINE_MAX {
            let mut bytes = [0; INLINE_MAX];
            bytes[..source.len()].copy_from_slice(source);
            Self::Inline { len: source.len() as u8, bytes }
        } else {
            Self::Heap(source.into())
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len).min(INLINE_MAX)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Bytes allocated besides the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}
