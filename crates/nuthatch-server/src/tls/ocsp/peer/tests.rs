use super::*;
use crate::tls::ocsp::Issuer;
use crate::tls::ocsp::responder::{Answer as Said, Authority};
use rustls::pki_types::pem::PemObject;
use std::time::UNIX_EPOCH;

fn link(authority: &Authority) -> Link {
    let read = |name: &str| CertificateDer::from_pem_file(authority.path(name)).unwrap();
    Link::new(&read("client.pem"), Issuer::of(&read("ca.pem")).unwrap()).unwrap()
}

fn lenient(ca_timeout: Duration) -> OcspPeer {
    OcspPeer { ca_timeout, allow_when_ca_unreachable: true, ..OcspPeer::default() }
}

async fn examined(checks: &PeerChecks, options: &OcspPeer, link: &Link) -> Result<(), String> {
    let log = Logger::silent();
    let end = Instant::now() + options.ca_timeout * WAITS_PER_PEER;
    Check { checks, log: &log, options, end }.examine(link).await
}

/// Whoever brings so many connections that nobody can be asked about one of them gets in with none.
#[tokio::test]
async fn who_could_not_be_asked_about_is_refused() {
    let authority = Authority::new("busy");
    authority.issue("client", 1);
    authority.set(1, Said::Gone);
    let (link, checks) = (link(&authority), PeerChecks::default());
    let options = lenient(Duration::from_millis(100));
    let all = checks.asking.acquire_many(ASKED_AT_ONCE_MAX as u32).await.unwrap();
    let (one, other) =
        tokio::join!(examined(&checks, &options, &link), examined(&checks, &options, &link));
    for refused in [one, other] {
        assert_eq!(refused, Err("Too many OCSP requests under way".to_owned()));
    }
    assert_eq!(authority.count(), 0);
    let warns = OcspPeer { warn_only: true, ..options.clone() };
    assert_eq!(examined(&checks, &warns, &link).await, Ok(()));
    drop(all);
    let (log, end) = (Logger::silent(), Instant::now() + options.ca_timeout / 2);
    let late = Check { checks: &checks, log: &log, options: &options, end };
    assert_eq!(late.examine(&link).await, Err("Too many OCSP requests under way".to_owned()));
    assert_eq!(authority.count(), 0);
    assert_eq!(examined(&checks, &options, &link).await, Ok(()), "it is asked, and says nothing");
}

#[tokio::test]
async fn one_request_for_all_who_want_to_know_the_same() {
    let authority = Authority::new("flight");
    authority.issue("client", 1);
    authority.set(1, Said::Revoked);
    let (link, checks) = (link(&authority), PeerChecks::default());
    let options = lenient(Duration::from_secs(20));
    let examine = || examined(&checks, &options, &link);
    let (a, b, c) = tokio::join!(examine(), examine(), examine());
    for refused in [a, b, c] {
        assert_eq!(refused, Err("Invalid OCSP response status: revoked".to_owned()));
    }
    assert_eq!(authority.count(), 1);
}

/// Another connection may have heard of a revocation while this one waited.
#[tokio::test]
async fn the_cache_is_looked_at_again_after_the_wait() {
    let authority = Authority::new("again");
    authority.issue("client", 1);
    authority.set(1, Said::Gone);
    let (link, checks) = (link(&authority), PeerChecks::default());
    let cache = Arc::new(PeerCache::new(&crate::options::OcspCache::default(), true).unwrap());
    checks.cache.store(Some(cache.clone()));
    let options = lenient(Duration::from_secs(20));
    let all = checks.asking.acquire_many(ASKED_AT_ONCE_MAX as u32).await.unwrap();
    let hears = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let raw = authority.response(&request(&link), Said::Revoked);
        let response = read(&raw, &link, SystemTime::now()).unwrap();
        cache.put(fingerprint(&link.certificate), String::new(), &raw, &response);
        drop(all);
    };
    let (refused, ()) = tokio::join!(examined(&checks, &options, &link), hears);
    assert_eq!(refused, Err("Invalid OCSP response status: revoked".to_owned()));
    assert_eq!(authority.count(), 0);
}

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
