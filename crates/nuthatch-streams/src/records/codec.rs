//! Little-endian fields, read with bounds and limits.

/// Bytes that do not mean what they should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("the record ends too early")]
    Truncated,
    /// A newer server wrote them.
    #[error("the record has version {version}, this server knows up to {known}")]
    Version {
        /// Version found.
        version: u8,
        /// Newest version known.
        known: u8,
    },
    /// A value cannot be.
    #[error("the record is damaged: {what}")]
    Damaged {
        /// The fault, in words.
        what: &'static str,
    },
    /// A configuration is not valid JSON.
    #[error("the configuration is damaged: {reason}")]
    Config {
        /// The parser's words.
        reason: String,
    },
}

/// Appends a number.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a number.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a number.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a number.
pub fn put_u128(out: &mut Vec<u8>, value: u128) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends bytes with their length (32 bits).
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// Reads fields one after the other.
#[derive(Clone, Debug)]
pub struct FieldReader<'a> {
    left: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// Over everything in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Over what follows the version byte.
    ///
    /// # Errors
    /// [`DecodeError::Version`] if it is 0 or newer than `known`.
    pub fn versioned(bytes: &'a [u8], known: u8) -> Result<Self, DecodeError> {
        let mut reader = Self::new(bytes);
        match reader.u8()? {
            0 => Err(DecodeError::Damaged { what: "version" }),
            version if version > known => Err(DecodeError::Version { version, known }),
            _ => Ok(reader),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.left.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.left = tail;
        Ok(*head)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.take()?))
    }

    /// The next number.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.take()?))
    }

    /// The next bytes with a length.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()? as usize;
        let (head, tail) = self.left.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.left = tail;
        Ok(head)
    }

    /// A count of items that take at least `item_bytes` each: never more than can follow.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.left.len() / item_bytes.max(1) {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    /// Everything that is left.
    #[must_use]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }
}
