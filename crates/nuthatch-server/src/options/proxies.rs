//! `proxies`: whom a signature of the nonce makes a trusted proxy.

use nuthatch_protocol::config::Value;
use nuthatch_protocol::nkey::{KeyKind, decode};

use super::auth::TrustedProxy;
use super::read::ConfigReader;
use super::tables::{PROXIES, TRUSTED_PROXY};

/// Proxies that are trusted: a signature is compared with each key.
const PROXIES_MAX: usize = 64;

pub(super) fn proxies(r: &mut ConfigReader, value: &Value) -> Vec<TrustedProxy> {
    let mut found = Vec::new();
    let Some(map) = r.map("proxies", value) else { return found };
    r.walk(&PROXIES, map, |r, key, entry| {
        let wanted = "an array of proxies: [ { key: NABC… }, … ]";
        let items = r.array(key, &entry.value, wanted).unwrap_or_default();
        if items.len() > PROXIES_MAX {
            r.invalid(&entry.value.pos, key, format!("holds more than {PROXIES_MAX} proxies"));
        }
        found = items.iter().filter_map(|item| proxy(r, item)).collect();
    });
    found
}

fn proxy(r: &mut ConfigReader, item: &Value) -> Option<TrustedProxy> {
    let map = r.map("trusted", item)?;
    let before = r.problems.len();
    let mut found = None;
    r.walk(&TRUSTED_PROXY, map, |r, key, entry| {
        let Some(public) = r.word(key, &entry.value) else { return };
        match decode(public).filter(|(kind, _)| *kind != KeyKind::Curve) {
            Some((_, key)) => found = Some(TrustedProxy { public: public.to_owned(), key }),
            None => r.invalid(&entry.value.pos, key, format!("is no public nkey: {public:?}")),
        }
    });
    if found.is_none() && r.problems.len() == before {
        r.invalid(&item.pos, "trusted", "entry needs its 'key'");
    }
    found
}
