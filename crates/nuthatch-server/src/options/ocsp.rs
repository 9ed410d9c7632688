//! Reads `ocsp`, `ocsp_cache` and `ocsp_peer`.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Node, Value};

use super::Options;
use super::read::ConfigReader;
use super::tables::{OCSP, OCSP_CACHE, OCSP_PEER};

/// Responders that `urls` may name.
const URLS_MAX: usize = 8;
/// Shortest [`OcspCache::save_interval`].
const SAVE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest [`OcspPeer::ca_timeout`].
const CA_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// Largest [`OcspPeer::allowed_clockskew`].
const CLOCKSKEW_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest [`OcspPeer::unset_ttl`] and [`OcspCache::save_interval`].
const LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Stapling of OCSP responses to the certificates of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ocsp {
    /// For which certificates, and what follows.
    pub mode: OcspMode,
    /// Responders to ask instead of those that a certificate names; empty: those.
    pub urls: Vec<String>,
}

/// When responses are stapled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OcspMode {
    /// To certificates that demand it.
    #[default]
    Auto,
    /// To all; a revoked one stops the server.
    Always,
    /// To none.
    Never,
    /// To certificates that demand it; a revoked one stops the server.
    Must,
}

/// Checks of certificates of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspPeer {
    /// Longest wait for a responder.
    pub ca_timeout: Duration,
    /// How far the clocks may be apart.
    pub allowed_clockskew: Duration,
    /// A certificate that fails is only logged.
    pub warn_only: bool,
    /// The state unknown counts as good.
    pub unknown_is_good: bool,
    /// If no responder answers, a certificate that is not known to be revoked counts as good.
    pub allow_when_ca_unreachable: bool,
    /// How long a response counts that does not say it.
    pub unset_ttl: Duration,
}

impl Default for OcspPeer {
    fn default() -> Self {
        Self {
            ca_timeout: Duration::from_secs(2),
            allowed_clockskew: Duration::from_secs(30),
            warn_only: false,
            unknown_is_good: false,
            allow_when_ca_unreachable: false,
            unset_ttl: Duration::from_secs(3600),
        }
    }
}

/// Where responses about certificates of the other side are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OcspCacheKind {
    /// Nowhere.
    None,
    /// In memory and in a file.
    #[default]
    Local,
}

/// The cache of such responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspCache {
    /// Where they are kept.
    pub kind: OcspCacheKind,
    /// Directory of the file.
    pub local_store: PathBuf,
    /// Revocations stay when they are over.
    pub preserve_revoked: bool,
    /// How often the file is written.
    pub save_interval: Duration,
}

impl Default for OcspCache {
    fn default() -> Self {
        Self {
            kind: OcspCacheKind::default(),
            local_store: PathBuf::from("_rc_"),
            preserve_revoked: false,
            save_interval: Duration::from_secs(300),
        }
    }
}

impl Options {
    /// True if anybody's certificate is checked by OCSP.
    pub fn checks_peers(&self) -> bool {
        self.ocsp_peers().next().is_some()
    }

    /// True if anybody is let in whose responder does not answer, unless a revocation is known: those must stay
    /// known when they are over.
    pub(crate) fn needs_revocations(&self) -> bool {
        self.ocsp_peers().any(|check| check.allow_when_ca_unreachable)
    }

    /// The checks of all listeners and remotes.
    fn ocsp_peers(&self) -> impl Iterator<Item = &OcspPeer> {
        let websocket = self.websocket.as_ref().and_then(|ws| ws.tls.as_ref());
        let leafs = self.leafnodes.as_ref();
        let own = leafs.and_then(|leafs| leafs.tls.as_ref());
        let listeners = [self.tls.as_ref(), websocket, own].into_iter().flatten();
        let remotes = leafs.into_iter().flat_map(|leafs| &leafs.remotes);
        let remotes = remotes.filter_map(|remote| remote.tls.as_ref()?.ocsp_peer.as_ref());
        listeners.filter_map(|tls| tls.ocsp_peer.as_ref()).chain(remotes)
    }
}

const MODES: &[&str] = &["auto", "always", "never", "must"];

/// A boolean, a mode, or `{ mode, urls }`.
pub(super) fn ocsp(r: &mut ConfigReader, value: &Value) -> Option<Ocsp> {
    let mut options = Ocsp::default();
    match &value.node {
        Node::Bool(true) => {}
        Node::Bool(false) => options.mode = OcspMode::Never,
        Node::Str(_) => options.mode = mode(r, "ocsp", value)?,
        _ => {
            let map = r.map("ocsp", value)?;
            r.walk(&OCSP, map, |r, key, entry| match key {
                "mode" => options.mode = mode(r, key, &entry.value).unwrap_or_default(),
                "urls" | "url" => options.urls = urls(r, key, &entry.value),
                _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
            });
        }
    }
    Some(options)
}

fn mode(r: &mut ConfigReader, key: &str, value: &Value) -> Option<OcspMode> {
    const WANTED: &str = "'auto', 'always', 'must' or 'never'";
    Some(match r.choice(key, value, MODES, WANTED)? {
        0 => OcspMode::Auto,
        1 => OcspMode::Always,
        2 => OcspMode::Never,
        _ => OcspMode::Must,
    })
}

fn urls(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<String> {
    let found = r.texts(key, value).unwrap_or_default();
    if found.is_empty() || found.len() > URLS_MAX {
        r.invalid(&value.pos, key, format!("must hold 1 to {URLS_MAX} addresses"));
        return Vec::new();
    }
    let is_web = |url: &String| {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        rest.is_some_and(|rest| !rest.is_empty() && !url.contains(char::is_whitespace))
    };
    if let Some(bad) = found.iter().find(|url| !is_web(url)) {
        let what = format!("holds {bad:?}, which begins with neither http:// nor https://");
        r.invalid(&value.pos, key, what);
    }
    found
}

/// A boolean, or a map; `None`: there is no check.
pub(super) fn ocsp_peer(r: &mut ConfigReader, key: &str, value: &Value) -> Option<OcspPeer> {
    let mut options = OcspPeer::default();
    if let Node::Bool(on) = value.node {
        return on.then_some(options);
    }
    let map = r.map(key, value)?;
    let mut is_on = false;
    r.walk(&OCSP_PEER, map, |r, key, entry| {
        let value = &entry.value;
        let mut seconds = |place: &mut Duration, longest| {
            if let Some(time) =
                r.timeout(key, value).and_then(|time| within(r, (key, value), time, longest))
            {
                *place = time;
            }
        };
        match key {
            "allowed_clockskew" => return seconds(&mut options.allowed_clockskew, CLOCKSKEW_MAX),
            "ca_timeout" => return seconds(&mut options.ca_timeout, CA_TIMEOUT_MAX),
            "cache_ttl_when_next_update_unset" => {
                options.unset_ttl = lifetime(r, key, value).unwrap_or(options.unset_ttl);
                return;
            }
            _ => {}
        }
        let Some(on) = r.boolean(key, value) else { return };
        match key {
            "verify" => is_on = on,
            "warn_only" => options.warn_only = on,
            "unknown_is_good" => options.unknown_is_good = on,
            "allow_when_ca_unreachable" => options.allow_when_ca_unreachable = on,
            _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
        }
    });
    if options.ca_timeout.is_zero() {
        options.ca_timeout = OcspPeer::default().ca_timeout;
    }
    if !is_on {
        r.warn(&value.pos, "'ocsp_peer' is off: it needs 'verify: true'");
    }
    is_on.then_some(options)
}

fn within(
    r: &mut ConfigReader,
    (key, value): (&str, &Value),
    time: Duration,
    longest: Duration,
) -> Option<Duration> {
    if time <= longest {
        return Some(time);
    }
    r.invalid(&value.pos, key, format!("must be at most {} seconds", longest.as_secs()));
    None
}

/// Seconds, or a duration; it may well be hours.
fn lifetime(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Duration> {
    let time = match &value.node {
        Node::Int(n) if *n >= 0 => Some(Duration::from_secs(n.unsigned_abs())),
        Node::Float(n) => match Duration::try_from_secs_f64(*n) {
            Ok(time) => Some(time),
            Err(_) => {
                r.invalid(&value.pos, key, "must be a number of seconds, not negative");
                None
            }
        },
        _ => r.duration(key, value),
    }?;
    within(r, (key, value), time, LIFETIME_MAX)
}

/// A boolean, a type, or a map.
pub(super) fn ocsp_cache(r: &mut ConfigReader, value: &Value) -> Option<OcspCache> {
    let mut options = OcspCache::default();
    match &value.node {
        Node::Bool(true) => {}
        Node::Bool(false) => options.kind = OcspCacheKind::None,
        Node::Str(_) => options.kind = kind(r, "ocsp_cache", value)?,
        _ => {
            let map = r.map("ocsp_cache", value)?;
            r.walk(&OCSP_CACHE, map, |r, key, entry| {
                let value = &entry.value;
                match key {
                    "type" => options.kind = kind(r, key, value).unwrap_or_default(),
                    "local_store" => {
                        if let Some(directory) = r.word(key, value) {
                            options.local_store = PathBuf::from(directory);
                        }
                    }
                    "preserve_revoked" => {
                        options.preserve_revoked = r.boolean(key, value).unwrap_or_default();
                    }
                    "save_interval" => {
                        if let Some(time) = lifetime(r, key, value) {
                            options.save_interval = time.max(SAVE_INTERVAL_MIN);
                        }
                    }
                    _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
                }
            });
        }
    }
    Some(options)
}

fn kind(r: &mut ConfigReader, key: &str, value: &Value) -> Option<OcspCacheKind> {
    let kinds = [OcspCacheKind::None, OcspCacheKind::Local];
    Some(kinds[r.choice(key, value, &["none", "local"], "'none' or 'local'")?])
}
