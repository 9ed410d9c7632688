//! Whether the certificate of a peer, and those that it comes from, are good (`ocsp_peer`).

use super::flights::{Answer, Flights, Question, Unanswered};
use super::{
    CertificateInfo, Chain, FetchError, Link, PeerCache, Purpose, Response, Status, Way, chains,
    fetch, fingerprint, read, read_past, request,
};
use crate::logging::Logger;
use crate::options::OcspPeer;
use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Responders that are asked at a time about certificates of peers.
pub const ASKED_AT_ONCE_MAX: usize = 64;
/// A peer waits for all that is asked about it so many times `ca_timeout`.
pub const WAITS_PER_PEER: u32 = 4;
/// Timers may be late by some of this.
const SLACK: Duration = Duration::from_millis(100);
const NO_ANSWER: &str = "Failed OCSP response fetch";

/// The checks of a server.
#[derive(Debug)]
pub struct PeerChecks {
    /// Responses that are kept; `None`: none are.
    pub cache: ArcSwapOption<PeerCache>,
    asking: Semaphore,
    flights: Flights,
}

impl Default for PeerChecks {
    fn default() -> Self {
        let asking = Semaphore::new(ASKED_AT_ONCE_MAX);
        Self { cache: ArcSwapOption::default(), asking, flights: Flights::default() }
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
        let response = match self.known(link, (&key, &subject)).await {
            Ok(response) => response,
            Err(Failure::Silent { was_revoked }) if !self.options.warn_only => {
                return self.without_answer(&subject, was_revoked);
            }
            Err(failure) => return self.or_warn(&subject, failure.reason().to_owned()),
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

    /// A response that counts: of the cache, else of a responder.
    async fn known(&self, link: &Link, names: (&str, &str)) -> Result<Response, Failure> {
        let key = names.0;
        let was_revoked = match self.cached(link, key) {
            Cached::Counts(response) => return Ok(response),
            Cached::Revocation => true,
            Cached::Nothing => false,
        };
        let (answer, has_asked) = self.answered(link, names).await;
        match answer {
            Ok(raw) => self.judged(link, names, &raw, has_asked),
            Err(Unanswered::Busy) => Err(Failure::Busy),
            // Another one may have heard of a revocation in the meantime.
            Err(Unanswered::Silent) => match self.kept(key).map(|raw| self.look(link, &raw)) {
                Some(Cached::Counts(response)) => Ok(response),
                Some(Cached::Revocation) => Err(Failure::Silent { was_revoked: true }),
                Some(Cached::Nothing) | None => Err(Failure::Silent { was_revoked }),
            },
        }
    }

    /// What the cache knows.
    fn cached(&self, link: &Link, key: &str) -> Cached {
        let cache = self.checks.cache.load();
        let Some(cache) = &*cache else { return Cached::Nothing };
        let Some(raw) = cache.get(key) else { return Cached::Nothing };
        let found = self.look(link, &raw);
        if !matches!(found, Cached::Counts(_)) {
            self.log.debug(format_args!("Cached OCSP response does not count, key [{key}]"));
            cache.reject(key);
        }
        found
    }

    /// What a response tells that was kept. A revocation that is over is still one.
    fn look(&self, link: &Link, raw: &[u8]) -> Cached {
        let now = SystemTime::now();
        let response = read(raw, link, now).ok();
        if let Some(response) =
            response.filter(|found: &Response| is_current(found, self.options, now))
        {
            return Cached::Counts(response);
        }
        match response.or_else(|| read_past(raw, link).ok()) {
            Some(Response { status: Status::Revoked, .. }) => Cached::Revocation,
            Some(_) | None => Cached::Nothing,
        }
    }

    /// What the cache has, without counting that somebody looks.
    fn kept(&self, key: &str) -> Option<Arc<[u8]>> {
        self.checks.cache.load().as_ref()?.peek(key)
    }

    /// What a responder has answered, and whether it was asked for here.
    async fn answered(&self, link: &Link, (key, subject): (&str, &str)) -> (Answer, bool) {
        let (request, wait) = (request(link), self.options.ca_timeout);
        let question = Question { certificate: key.to_owned(), request, wait };
        let waiting = self.checks.flights.join(question.clone());
        let asked = waiting.answer(self.asked(link, &question.request, (key, subject)));
        // Whoever asks keeps to the time itself; this ends the wait for others who ask.
        let end = self.end + SLACK;
        tokio::time::timeout_at(end, asked).await.unwrap_or((Err(Unanswered::Busy), false))
    }

    /// Asks, unless others are asked about until there is no time left for one responder.
    async fn asked(&self, link: &Link, request: &[u8], (key, subject): (&str, &str)) -> Answer {
        let last = self.end.checked_sub(self.options.ca_timeout).unwrap_or(self.end);
        let permit = tokio::time::timeout_at(last, self.checks.asking.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(Unanswered::Busy) };
        // Other certificates of the chain may have taken the time.
        if Instant::now() > last {
            return Err(Unanswered::Busy);
        }
        if let Some(raw) = self.kept(key)
            && let Cached::Counts(_) = self.look(link, &raw)
        {
            return Ok(raw);
        }
        self.fetched(link, request).await.map(Arc::from).map_err(|error| {
            self.log.warn(format_args!(
                "Attempt to obtain OCSP response from CA responder for [{subject}] failed: \
                 exhausted OCSP responders: {error}"
            ));
            Unanswered::Silent
        })
    }

    /// Whether an answer counts. Whoever has asked for it keeps it.
    fn judged(
        &self,
        link: &Link,
        (key, subject): (&str, &str),
        raw: &[u8],
        has_asked: bool,
    ) -> Result<Response, Failure> {
        let now = SystemTime::now();
        let response = read(raw, link, now).map_err(|error| {
            let line = format_args!("Could not parse OCSP CA response for [{subject}]: {error}");
            self.log.error(line);
            Failure::Response("Failed OCSP response parse")
        })?;
        if is_current(&response, self.options, now) {
            if let Some(cache) = self.checks.cache.load().as_ref().filter(|_| has_asked) {
                cache.put(key.to_owned(), subject.to_owned(), raw, &response);
            }
            return Ok(response);
        }
        let line = format_args!("New OCSP CA response obtained for [{subject}] but not current");
        self.log.warn(line);
        Err(Failure::Response("OCSP response not in effectivity window"))
    }

    /// The answer of the first responder that has one, while there is time.
    async fn fetched(&self, link: &Link, request: &[u8]) -> Result<Vec<u8>, FetchError> {
        let mut last = FetchError::Timeout(self.options.ca_timeout * WAITS_PER_PEER);
        for responder in &link.responders {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.log.debug(format_args!("Trying OCSP responder url [{responder}]"));
            match fetch(responder, request, Way::Get, left.min(self.options.ca_timeout)).await {
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
        Err(NO_ANSWER.to_owned())
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
    Silent {
        /// The cache tells of a revocation.
        was_revoked: bool,
    },
    /// Nobody was asked: that says nothing of the authority, so it lets nobody in.
    Busy,
    /// What was answered is of no use.
    Response(&'static str),
}

impl Failure {
    fn reason(&self) -> &'static str {
        match self {
            Self::Silent { .. } => NO_ANSWER,
            Self::Busy => "Too many OCSP requests under way",
            Self::Response(reason) => reason,
        }
    }
}

/// What the cache knows of a certificate.
enum Cached {
    Counts(Response),
    /// It was revoked, by a response that no longer counts.
    Revocation,
    Nothing,
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
mod tests;
