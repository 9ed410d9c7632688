//! The chains that a certificate was verified with: rustls does not tell them.

use super::{Issuer, Link};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::cell::RefCell;
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

/// Chains of one certificate that are looked at.
pub const CHAINS_MAX: usize = 8;

/// From the certificate to the one that a root has issued.
pub(crate) type Chain = Vec<Link>;

/// What the other side has its certificate for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It has connected.
    Client,
    /// We have connected to it.
    Server,
}

/// All chains from what was presented to a root, the best first. A certificate that is a root itself
/// has a chain without links.
///
/// # Errors
/// There is none: it was not verified.
pub(crate) fn chains(
    presented: &[CertificateDer<'_>],
    roots: &RootCertStore,
    purpose: Purpose,
) -> Result<Vec<Chain>, webpki::Error> {
    let (first, others) = presented.split_first().ok_or(webpki::Error::UnknownIssuer)?;
    let certificate = EndEntityCert::try_from(first)?;
    let usage = match purpose {
        Purpose::Client => KeyUsage::client_auth(),
        Purpose::Server => KeyUsage::server_auth(),
    };
    let found = RefCell::new(Vec::new());
    let collect = |path: &VerifiedPath<'_>| {
        let mut found = found.borrow_mut();
        let chain = links(first, path).ok_or(webpki::Error::BadDer)?;
        // A root that is presented too leads by another way to the same.
        if !found.iter().any(|other| is_same(other, &chain)) {
            found.push(chain);
        }
        // Another one is looked for until there are enough.
        if found.len() < CHAINS_MAX { Err(webpki::Error::UnknownIssuer) } else { Ok(()) }
    };
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let now = UnixTime::now();
    let end = certificate.verify_for_usage(
        algorithms,
        &roots.roots,
        others,
        now,
        usage,
        None,
        Some(&collect),
    );
    let last = end.err();
    let found = found.into_inner();
    if found.is_empty() { Err(last.unwrap_or(webpki::Error::UnknownIssuer)) } else { Ok(found) }
}

fn is_same(one: &Chain, other: &Chain) -> bool {
    let same = |(a, b): (&Link, &Link)| a.certificate == b.certificate && a.issuer == b.issuer;
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn links(first: &CertificateDer<'_>, path: &VerifiedPath<'_>) -> Option<Chain> {
    let anchor = path.anchor();
    let root = Issuer::of_anchor(&anchor.subject, &anchor.subject_public_key_info);
    let mut certificates = vec![first.clone()];
    certificates.extend(path.intermediate_certificates().map(|certificate| certificate.der()));
    let mut chain = Vec::with_capacity(certificates.len());
    for (at, certificate) in certificates.iter().enumerate() {
        if Issuer::of(certificate)? == root {
            // It is the root.
            break;
        }
        let issuer = match certificates.get(at + 1) {
            Some(next) => Issuer::of(next)?,
            None => root.clone(),
        };
        chain.push(Link::new(certificate, issuer)?);
    }
    Some(chain)
}
