//! What is signed: certificates and responses have the same form.

use super::der::{Der, Malformed, SEQUENCE};
use rustls::crypto::ring;

/// Something, the algorithm, and the signature.
pub(super) struct Signed<'a> {
    /// What is signed, with its header.
    pub(super) body: &'a [u8],
    /// Content of the AlgorithmIdentifier.
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    /// Reads the first three fields of a sequence; returns the rest too.
    pub(super) fn read(content: &'a [u8]) -> Result<(Self, Der<'a>), Malformed> {
        let mut fields = Der(content);
        let body = fields.next()?;
        if body.id != SEQUENCE {
            return Err(Malformed);
        }
        let algorithm = fields.take(SEQUENCE)?;
        let signature = fields.take_bits()?;
        Ok((Self { body: body.raw, algorithm, signature }, fields))
    }

    /// True if the signature is right and of the holder of this SubjectPublicKeyInfo.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        let Ok((kind, bits)) = key_parts(key) else { return false };
        let known = ring::default_provider().signature_verification_algorithms.all;
        known
            .iter()
            .filter(|known| known.signature_alg_id().as_ref() == self.algorithm)
            .filter(|known| known.public_key_alg_id().as_ref() == kind)
            .any(|known| known.verify_signature(bits, self.body, self.signature).is_ok())
    }
}

/// Content of the AlgorithmIdentifier of a SubjectPublicKeyInfo, and the key.
pub(super) fn key_parts(key: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut fields = Der(Der(key).take(SEQUENCE)?);
    let kind = fields.take(SEQUENCE)?;
    Ok((kind, fields.take_bits()?))
}

/// True if a certificate is signed by the holder of this SubjectPublicKeyInfo.
pub(crate) fn is_signed_by(certificate: &[u8], key: &[u8]) -> bool {
    let content = Der(certificate).take(SEQUENCE);
    content.and_then(Signed::read).is_ok_and(|(signed, _)| signed.is_of(key))
}
