//! The identity of a log's directory: which log it is a copy of, and which disk this is. It says
//! nothing about what is in the log; a quorum of nodes will tell by it an old or an empty disk from
//! the one that acknowledged. Buckets have none: there is one copy only.

use crate::bytes::{ByteReader, u32_at};
use crate::env::{Disk, Entropy, again, read_exact_at};
use crate::frame::crc;
use crate::later::{Later, Unusable};
use std::io;

/// The file, beside the catalog.
pub const IDENTITY_FILE: &str = "identity";

const MAGIC: [u8; 8] = *b"NUTHIDEN";

/// Version of the format that this code writes, and the only one it reads.
const IDENTITY_VERSION: u32 = 1;

const IDENTITY_BYTES: usize = 64;

/// Content of the identity file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster that the log belongs to; 0: none.
    pub cluster: u128,
    /// The log, the same on every node that keeps it: that of the catalog.
    pub log_id: u64,
    /// Of this directory: random, made with it, never again. A copy of the log that was made anew on
    /// an empty disk has another one.
    pub incarnation: u128,
    /// How often a server began to work on this directory; 0: not counted yet.
    pub boots: u64,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFault {
    /// The disk failed.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file was read and is damaged, or of a later version.
    #[error("{0}")]
    Unusable(Unusable),
}

impl Identity {
    /// The identity of a directory that has none yet.
    pub fn new(log_id: u64, entropy: &mut dyn Entropy) -> Self {
        let incarnation = u128::from(entropy.next()) << 64 | u128::from(entropy.next());
        Self { cluster: 0, log_id, incarnation, boots: 0 }
    }

    /// The file's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(IDENTITY_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&IDENTITY_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.cluster.to_le_bytes());
        out.extend_from_slice(&self.log_id.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.boots.to_le_bytes());
        let sum = crc(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// They are damaged, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unusable> {
        if bytes.len() < 16 || bytes[0..8] != MAGIC {
            return Err(Unusable::Damaged("it does not begin like an identity"));
        }
        let mut unsummed = bytes.to_vec();
        unsummed[12..16].fill(0);
        if crc(&unsummed) != u32_at(bytes, 12) {
            return Err(Unusable::Damaged("its checksum does not fit"));
        }
        if u32_at(bytes, 8) != IDENTITY_VERSION || bytes.len() != IDENTITY_BYTES {
            return Err(Unusable::Later(Later::Version(u32_at(bytes, 8))));
        }
        Self::fields(&bytes[16..]).ok_or(Unusable::Damaged("it is too short"))
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let cluster = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        let log_id = reader.u64()?;
        let incarnation = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        Some(Self { cluster, log_id, incarnation, boots: reader.u64()? })
    }

    /// Reads the identity of a directory; `None` if it has none.
    ///
    /// # Errors
    /// [`IdentityFault`].
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>, IdentityFault> {
        let bytes = again(|| {
            let file = disk.open(IDENTITY_FILE)?;
            let len = file.len()?.min(IDENTITY_BYTES as u64 + 1);
            read_exact_at(&*file, 0, usize::try_from(len).unwrap_or(IDENTITY_BYTES))
        });
        match bytes {
            Ok(bytes) => Self::decode(&bytes).map(Some).map_err(IdentityFault::Unusable),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededEntropy;

    #[test]
    fn an_identity_survives_and_every_flipped_bit_is_noticed() {
        let identity =
            Identity { cluster: 5, boots: 7, ..Identity::new(9, &mut SeededEntropy::new(1)) };
        let bytes = identity.encode();
        assert_eq!(bytes.len(), IDENTITY_BYTES);
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        for bit in 0..bytes.len() * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Identity::decode(&copy), Err(Unusable::Damaged(_))), "bit {bit}");
        }
    }
}
