//! DER, as far as OCSP needs it.

use x509_parser::asn1_rs::{Any, FromDer};

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;

/// The identifier of a constructed value that the context explains.
pub(super) const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

/// The bytes are no DER, or not what belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// One value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tlv<'a> {
    /// Class, form and tag: those that occur here have one byte.
    pub(super) id: u8,
    pub(super) content: &'a [u8],
    /// With its header.
    pub(super) raw: &'a [u8],
}

/// Values that are read one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn next(&mut self) -> Result<Tlv<'a>, Malformed> {
        let (rest, any) = Any::from_der(self.0).map_err(|_| Malformed)?;
        let raw = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        let id = *raw.first().ok_or(Malformed)?;
        Ok(Tlv { id, content: any.data, raw })
    }

    /// The content of the next value, which has this identifier.
    pub(super) fn take(&mut self, id: u8) -> Result<&'a [u8], Malformed> {
        let found = self.next()?;
        if found.id == id { Ok(found.content) } else { Err(Malformed) }
    }

    /// As [`Der::take`], if the next value has this identifier.
    pub(super) fn take_if(&mut self, id: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.0.first() == Some(&id) { self.take(id).map(Some) } else { Ok(None) }
    }

    /// The octets of a bit string.
    pub(super) fn take_bits(&mut self) -> Result<&'a [u8], Malformed> {
        match self.take(BIT_STRING)?.split_first() {
            Some((0, octets)) => Ok(octets),
            _ => Err(Malformed),
        }
    }
}

/// Writes a value of these parts.
pub(super) fn tlv(id: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![id];
    let bytes = len.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    if len >= 0x80 {
        out.push(0x80 | (bytes.len() - first) as u8);
    }
    out.extend_from_slice(&bytes[first..]);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for len in [0_usize, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7_u8; len];
            let written = tlv(OCTET_STRING, &[&content[..len / 2], &content[len / 2..]]);
            let mut reader = Der(&written);
            assert_eq!(reader.take(OCTET_STRING), Ok(&content[..]), "{len}");
            assert!(reader.is_empty());
            assert!(Der(&written[..written.len() - 1]).take(OCTET_STRING).is_err());
        }
        assert_eq!(Der(&[0x02, 1, 5]).take(OCTET_STRING), Err(Malformed));
        assert_eq!(Der(&[0x03, 2, 3, 8]).take_bits(), Err(Malformed));
    }
}
