//! A response, and whether it can be believed.

use super::der::{
    Der, ENUMERATED, GENERALIZED_TIME, INTEGER, Malformed, OCTET_STRING, OID, SEQUENCE, explicit,
};
use super::request::SHA1;
use super::signature::{Signed, is_signed_by, key_parts};
use super::{Issuer, Link};
use ring::digest;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates in a response that may have signed it.
const SIGNERS_MAX: usize = 4;
/// Content of the object identifier of a basic response.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const TRUE: &[u8] = &[0xff];
const BOOLEAN: u8 = 0x01;
/// Identifiers of the states: implicit tags.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;
const UNKNOWN: u8 = 0x82;

/// What a responder says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Good,
    Revoked,
    Unknown,
}

impl Status {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }
}

/// A response that is signed by who may sign it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: Status,
    pub(crate) this_update: SystemTime,
    /// `None`: there is newer information at any time.
    pub(crate) next_update: Option<SystemTime>,
}

/// Why a response cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("it is no OCSP response")]
    Malformed,
    #[error("the responder says: {0}")]
    Refused(&'static str),
    #[error("it is of a kind that is not known")]
    Kind,
    #[error("it tells nothing of this certificate")]
    OtherCertificate,
    #[error("it has a critical extension that is not known")]
    Extension,
    #[error("it is not signed by the certificate's authority or whom that has authorized to sign")]
    Signature,
}

impl From<Malformed> for ResponseError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Reads a response for a certificate and checks its signature. Whoever signs for the authority must have a
/// certificate that is valid now.
pub(crate) fn read(raw: &[u8], link: &Link, now: SystemTime) -> Result<Response, ResponseError> {
    read_by(raw, link, Some(now))
}

/// As [`read`], for what was true once: whoever signed for the authority must have had a valid certificate when
/// the response was made.
pub(crate) fn read_past(raw: &[u8], link: &Link) -> Result<Response, ResponseError> {
    read_by(raw, link, None)
}

/// `now`: when the certificate of a delegate must be valid; `None`: at the time that the response is of.
fn read_by(raw: &[u8], link: &Link, now: Option<SystemTime>) -> Result<Response, ResponseError> {
    let mut outer = Der(raw);
    let mut whole = Der(outer.take(SEQUENCE)?);
    if !outer.is_empty() {
        return Err(ResponseError::Malformed);
    }
    match whole.take(ENUMERATED)? {
        [0] => {}
        [1] => return Err(ResponseError::Refused("malformed request")),
        [2] => return Err(ResponseError::Refused("internal error")),
        [3] => return Err(ResponseError::Refused("try later")),
        [5] => return Err(ResponseError::Refused("signature required")),
        [6] => return Err(ResponseError::Refused("unauthorized")),
        _ => return Err(ResponseError::Malformed),
    }
    let mut bytes = Der(Der(whole.take(explicit(0))?).take(SEQUENCE)?);
    if bytes.take(OID)? != BASIC {
        return Err(ResponseError::Kind);
    }
    let basic = Der(bytes.take(OCTET_STRING)?).take(SEQUENCE)?;
    let (signed, mut rest) = Signed::read(basic)?;
    let certificates = match rest.take_if(explicit(0))? {
        Some(list) => Der(list).take(SEQUENCE)?,
        None => &[],
    };
    let response = single(signed.body, link)?;
    let at = now.unwrap_or(response.this_update);
    if is_authorized(&signed, Der(certificates), &link.issuer, at)? {
        Ok(response)
    } else {
        Err(ResponseError::Signature)
    }
}

/// What the signed part says of the certificate.
fn single(body: &[u8], link: &Link) -> Result<Response, ResponseError> {
    let mut data = Der(Der(body).take(SEQUENCE)?);
    data.take_if(explicit(0))?;
    // The name or the key of the responder: the signature tells who it is.
    data.next()?;
    data.take(GENERALIZED_TIME)?;
    let mut responses = Der(data.take(SEQUENCE)?);
    if let Some(extensions) = data.take_if(explicit(1))? {
        refuse_critical(extensions)?;
    }
    while !responses.is_empty() {
        let mut fields = Der(responses.take(SEQUENCE)?);
        if is_of(fields.take(SEQUENCE)?, link)? {
            return state(fields);
        }
    }
    Err(ResponseError::OtherCertificate)
}

/// Whether an id is that of the certificate.
fn is_of(id: &[u8], link: &Link) -> Result<bool, Malformed> {
    let mut fields = Der(id);
    let algorithm = Der(fields.take(SEQUENCE)?).take(OID)?;
    let (name, key) = (fields.take(OCTET_STRING)?, fields.take(OCTET_STRING)?);
    let serial = fields.take(INTEGER)?;
    let Some(algorithm) = hash(algorithm) else { return Ok(false) };
    let is = |hash: &[u8], bytes| digest::digest(algorithm, bytes).as_ref() == hash;
    let issuer = &link.issuer;
    Ok(serial == link.serial && is(name, &issuer.name) && is(key, key_parts(&issuer.key)?.1))
}

fn hash(oid: &[u8]) -> Option<&'static digest::Algorithm> {
    match oid {
        SHA1 => Some(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 1] => Some(&digest::SHA256),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 2] => Some(&digest::SHA384),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 3] => Some(&digest::SHA512),
        _ => None,
    }
}

fn state(mut fields: Der<'_>) -> Result<Response, ResponseError> {
    let status = match fields.next()?.id {
        GOOD => Status::Good,
        REVOKED => Status::Revoked,
        UNKNOWN => Status::Unknown,
        _ => return Err(ResponseError::Malformed),
    };
    let this_update = time(fields.take(GENERALIZED_TIME)?)?;
    let next_update = match fields.take_if(explicit(0))? {
        Some(next) => Some(time(Der(next).take(GENERALIZED_TIME)?)?),
        None => None,
    };
    if let Some(extensions) = fields.take_if(explicit(1))? {
        refuse_critical(extensions)?;
    }
    Ok(Response { status, this_update, next_update })
}

/// None is known here, so a critical one cannot be heeded (RFC 6960, 4.4).
fn refuse_critical(extensions: &[u8]) -> Result<(), ResponseError> {
    let mut extensions = Der(Der(extensions).take(SEQUENCE)?);
    while !extensions.is_empty() {
        let mut extension = Der(extensions.take(SEQUENCE)?);
        extension.take(OID)?;
        if extension.take_if(BOOLEAN)? == Some(TRUE) {
            return Err(ResponseError::Extension);
        }
    }
    Ok(())
}

/// `YYYYMMDDHHMMSSZ`
fn time(text: &[u8]) -> Result<SystemTime, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 14).ok_or(Malformed)?;
    let at = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", digits).map_err(|_| Malformed)?;
    let at = jiff::tz::Offset::UTC.to_timestamp(at).map_err(|_| Malformed)?;
    let seconds = u64::try_from(at.as_second()).map_err(|_| Malformed)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or(Malformed)
}

/// Whether the authority itself has signed, or somebody with a certificate of the authority for that
/// purpose (RFC 6960, 4.2.2.2).
fn is_authorized(
    signed: &Signed<'_>,
    mut certificates: Der<'_>,
    issuer: &Issuer,
    at: SystemTime,
) -> Result<bool, Malformed> {
    if signed.is_of(&issuer.key) {
        return Ok(true);
    }
    for _ in 0..SIGNERS_MAX {
        if certificates.is_empty() {
            break;
        }
        let certificate = certificates.next()?.raw;
        let Some(key) = delegate(certificate, issuer, at) else { continue };
        if signed.is_of(&key) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The key of a certificate that the authority lets sign responses; `None`: it does not.
fn delegate(certificate: &[u8], issuer: &Issuer, at: SystemTime) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = at.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let at = x509_parser::time::ASN1Time::from_timestamp(i64::try_from(at).ok()?).ok()?;
    let uses = parsed.extended_key_usage().ok()??.value;
    let may = uses.ocsp_signing
        && parsed.issuer().as_raw() == issuer.name
        && parsed.validity().is_valid_at(at)
        && is_signed_by(certificate, &issuer.key);
    may.then(|| parsed.public_key().raw.to_vec())
}

#[cfg(test)]
mod tests;
