//! Whether the certificate of a peer, and those that it comes from, are good (`ocsp_peer`).

use super::{
    CertificateInfo, Chain, FetchError, Link, PeerCache, Purpose, Response, Status, Way, chains,
    fetch, fingerprint, read, request,
};
use crate::logging::Logger;
use crate::options::OcspPeer;
use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Responders that are asked at a time about certificates of peers.
pub const ASKED_AT_ONCE_MAX: usize = 64;
/// A peer waits for all that is asked about it so many times `ca_timeout`.
pub const WAITS_PER_PEER: u32 = 4;

/// The checks of a server.
#[derive(Debug)]
pub struct PeerChecks {
    /// Responses that are kept; `None`: none are.
    pub cache: ArcSwapOption<PeerCache>,
    asking: Semaphore,
}

impl Default for PeerChecks {
    fn default() -> Self {
        let asking = Semaphore::new(ASKED_AT_ONCE_MAX);
        Self { cache: ArcSwapOption::default(), asking }
    }
}

/// What came of a check.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) is_valid: bool,
    /// The peer's certificate.
    pub(crate) peer: Option<CertificateInfo>,
    /// Certificates that a chain fails by, and why.
    pub(crate) invalid: Vec<(CertificateInfo, String)>,
}

/// A check of one peer.
struct Check<'a> {
    checks: &'a PeerChecks,
    log: &'a Logger,
    options: &'a OcspPeer,
    /// When nobody is asked any more.
    end: Instant,
}

impl PeerChecks {
    /// Looks at the chains of a peer's certificate, whose handshake has succeeded.
    pub(crate) async fn check(
        &self,
        log: &Logger,
        presented: &[CertificateDer<'_>],
        (roots, purpose): (&RootCertStore, Purpose),
        options: &OcspPeer,
    ) -> Verdict {
        let Some(first) = presented.first() else {
            log.error(format_args!("Peer certificate is nil, rejecting OCSP peer"));
            return Verdict::default();
        };
        let peer = Some(CertificateInfo::of(first));
        let found = match chains(presented, roots, purpose) {
            Ok(found) => found,
            Err(error) => {
                // The handshake found one, so a certificate has ended since.
                log.error(format_args!("OCSP peer without a chain, rejecting: {error}"));
                return Verdict { peer, ..Verdict::default() };
            }
        };
        let end = Instant::now() + options.ca_timeout * WAITS_PER_PEER;
        let check = Check { checks: self, log, options, end };
        let mut invalid = Vec::new();
        for chain in &found {
            match check.first_invalid(chain).await {
                None => return Verdict { is_valid: true, peer, invalid },
                Some((link, reason)) => {
                    log.debug(format_args!("{reason}"));
                    invalid.push((CertificateInfo::of(&link.certificate), reason));
                }
            }
        }
        log.debug(format_args!("No OCSP valid chains, thus peer is invalid"));
        Verdict { is_valid: false, peer, invalid }
    }
}

impl Check<'_> {
    /// The first certificate of a chain that is not good, and why. Those that name no responder are.
    async fn first_invalid<'c>(&self, chain: &'c Chain) -> Option<(&'c Link, String)> {
        for link in chain.iter().filter(|link| !link.responders.is_empty()) {
            if let Err(reason) = self.examine(link).await {
                return Some((link, reason));
            }
        }
        None
    }

    async fn examine(&self, link: &Link) -> Result<(), String> {
        let subject = CertificateInfo::of(&link.certificate).subject;
        let key = fingerprint(&link.certificate);
        let (cached, was_revoked) = self.cached(link, &key);
        let response = match cached {
            Some(response) => response,
            None => match self.asked(link, &subject).await {
                Ok((raw, response)) => {
                    if let Some(cache) = &*self.checks.cache.load() {
                        cache.put(key, subject.clone(), &raw, &response);
                    }
                    response
                }
                Err(Failure::Fetch) if !self.options.warn_only => {
                    return self.without_answer(&subject, was_revoked);
                }
                Err(Failure::Fetch) => return self.or_warn(&subject, String::new()),
                Err(Failure::Response(reason)) => return self.or_warn(&subject, reason.to_owned()),
            },
        };
        let is_good = match response.status {
            Status::Good => true,
            Status::Revoked => false,
            Status::Unknown => self.options.unknown_is_good,
        };
        if is_good {
            self.log.debug(format_args!("OCSP verify pass for [{subject}]"));
            return Ok(());
        }
        let status = response.status.text();
        let warn = format_args!("OCSP verify fail for [{subject}] with CA status [{status}]");
        self.log.warn(warn);
        self.or_warn(&subject, format!("Invalid OCSP response status: {status}"))
    }

    /// A response of the cache that counts, and whether one there tells of a revocation.
    fn cached(&self, link: &Link, key: &str) -> (Option<Response>, bool) {
        let cache = self.checks.cache.load();
        let Some(cache) = &*cache else { return (None, false) };
        let Some(raw) = cache.get(key) else { return (None, false) };
        let now = SystemTime::now();
        match read(&raw, link, now) {
            Ok(response) if is_current(&response, self.options, now) => (Some(response), false),
            Ok(response) => {
                cache.reject(key);
                (None, response.status == Status::Revoked)
            }
            Err(error) => {
                let line = format_args!("Invalid cached OCSP response, key [{key}]: {error}");
                self.log.debug(line);
                cache.reject(key);
                (None, false)
            }
        }
    }

    /// What a responder says now.
    async fn asked(&self, link: &Link, subject: &str) -> Result<(Vec<u8>, Response), Failure> {
        let raw = match self.fetched(link).await {
            Ok(raw) => raw,
            Err(error) => {
                self.log.warn(format_args!(
                    "Attempt to obtain OCSP response from CA responder for [{subject}] failed: \
                     exhausted OCSP responders: {error}"
                ));
                return Err(Failure::Fetch);
            }
        };
        let now = SystemTime::now();
        let response = read(&raw, link, now).map_err(|error| {
            let line = format_args!("Could not parse OCSP CA response for [{subject}]: {error}");
            self.log.error(line);
            Failure::Response("Failed OCSP response parse")
        })?;
        if is_current(&response, self.options, now) {
            return Ok((raw, response));
        }
        let line = format_args!("New OCSP CA response obtained for [{subject}] but not current");
        self.log.warn(line);
        Err(Failure::Response("OCSP response not in effectivity window"))
    }

    /// The answer of the first responder that has one, while there is time.
    async fn fetched(&self, link: &Link) -> Result<Vec<u8>, FetchError> {
        let late = || FetchError::Timeout(self.options.ca_timeout * WAITS_PER_PEER);
        let permit = tokio::time::timeout_at(self.end, self.checks.asking.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(late()) };
        let message = request(link);
        let mut last = late();
        for responder in &link.responders {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.log.debug(format_args!("Trying OCSP responder url [{responder}]"));
            match fetch(responder, &message, Way::Get, left.min(self.options.ca_timeout)).await {
                Ok(raw) => return Ok(raw),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// No responder has answered.
    fn without_answer(&self, subject: &str, was_revoked: bool) -> Result<(), String> {
        let what = format!("Failed to obtain OCSP CA response for [{subject}]");
        match (self.options.allow_when_ca_unreachable, was_revoked) {
            (true, false) => {
                self.log.warn(format_args!(
                    "{what} but AllowWhenCAUnreachable set; no cached revocation so allowing"
                ));
                return Ok(());
            }
            (true, true) => self.log.warn(format_args!(
                "{what} but AllowWhenCAUnreachable set; cached revocation exists so rejecting"
            )),
            (false, _) => {}
        }
        Err("Failed OCSP response fetch".to_owned())
    }

    /// The reason, unless a warning is enough.
    fn or_warn(&self, subject: &str, reason: String) -> Result<(), String> {
        if !self.options.warn_only {
            return Err(reason);
        }
        let line =
            format_args!("OCSP verify fail for [{subject}] but WarnOnly is true so allowing");
        self.log.warn(line);
        Ok(())
    }
}

/// Why there is no response to go by.
enum Failure {
    /// Nobody answers.
    Fetch,
    /// What was answered is of no use.
    Response(&'static str),
}

/// True if a response counts now.
fn is_current(response: &Response, options: &OcspPeer, now: SystemTime) -> bool {
    let skew = options.allowed_clockskew;
    let end = response.next_update.or(response.this_update.checked_add(options.unset_ttl));
    let after = |at: SystemTime, time: Duration| at.checked_add(time);
    let is_over = end.and_then(|end| after(end, skew)).is_some_and(|end| end < now);
    let has_begun = after(now, skew).is_none_or(|later| response.this_update <= later);
    !is_over && has_begun
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn when_a_response_counts() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let options = OcspPeer {
            allowed_clockskew: Duration::from_secs(30),
            unset_ttl: Duration::from_secs(100),
            ..OcspPeer::default()
        };
        for (from, until, now, expected) in [
            (1000, Some(2000), 1500, true),
            (1000, Some(2000), 2030, true),
            (1000, Some(2000), 2031, false),
            (1000, Some(2000), 970, true),
            (1000, Some(2000), 969, false),
            (1000, None, 1130, true),
            (1000, None, 1131, false),
        ] {
            let (this_update, next_update) = (at(from), until.map(at));
            let response = Response { status: Status::Good, this_update, next_update };
            let found = is_current(&response, &options, at(now));
            assert_eq!(found, expected, "{from} {until:?} {now}");
        }
    }
}
