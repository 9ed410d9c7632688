//! A request for the state of one certificate.

use super::Link;
use super::der::{INTEGER, OCTET_STRING, OID, SEQUENCE, tlv};
use super::signature::key_parts;
use ring::digest;

/// Content of the object identifier of SHA-1.
pub(super) const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const NULL: &[u8] = &[0x05, 0x00];

/// The request in DER, without a nonce: a responder may answer with what it has signed before.
pub(crate) fn request(link: &Link) -> Vec<u8> {
    // Most responders know a certificate by SHA-1 only (RFC 5019): it names, and protects nothing.
    let hash = |bytes: &[u8]| digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    let key = key_parts(&link.issuer.key).map(|(_, key)| key).unwrap_or_default();
    let algorithm = tlv(SEQUENCE, &[&tlv(OID, &[SHA1]), NULL]);
    let certificate = tlv(
        SEQUENCE,
        &[
            &algorithm,
            &tlv(OCTET_STRING, &[hash(&link.issuer.name).as_ref()]),
            &tlv(OCTET_STRING, &[hash(key).as_ref()]),
            &tlv(INTEGER, &[&link.serial]),
        ],
    );
    let list = tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&certificate])]);
    tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&list])])
}
