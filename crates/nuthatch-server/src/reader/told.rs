//! Addresses of its cluster that another server tells to those that have connected to it as leaf nodes.

use crate::options::leaf_remotes::{URLS_MAX, told};
use crate::options::{LeafUrl, RemoteOptions};
use parking_lot::Mutex;

/// Addresses that a remote has told, beside the configured ones.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// A configured address: login and TLS are as for that.
    like: Option<LeafUrl>,
    urls: Mutex<Vec<LeafUrl>>,
}

impl Told {
    /// None yet.
    pub(crate) fn new(remote: &RemoteOptions) -> Self {
        // Websockets are told in another list, and are reached by way of what is configured.
        let is_used = !remote.ignores_told && remote.urls.iter().all(|url| url.websocket.is_none());
        let with_login = remote.urls.iter().find(|url| url.user.is_some());
        let like = with_login.or(remote.urls.first()).filter(|_| is_used).cloned();
        Self { like, urls: Mutex::default() }
    }

    /// Takes the newest list in place of the one before; without one that stays.
    pub(crate) fn learn(&self, remote: &RemoteOptions, list: Option<&[String]>) {
        let (Some(like), Some(list)) = (&self.like, list) else { return };
        let is_new = |url: &LeafUrl| {
            !remote.urls.iter().any(|own| (&own.host, own.port) == (&url.host, url.port))
        };
        let found = list.iter().filter_map(|text| told(text, like)).filter(is_new);
        *self.urls.lock() = found.take(URLS_MAX).collect();
    }

    /// The address to try next: each in its turn, those that were told first.
    pub(crate) fn address(&self, own: &[LeafUrl], turn: usize) -> LeafUrl {
        let urls = self.urls.lock();
        let at = turn % (urls.len() + own.len());
        urls.get(at).unwrap_or_else(|| &own[at - urls.len()]).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{LeafCompression, Secret};

    fn remote(ignores_told: bool) -> RemoteOptions {
        let url = LeafUrl {
            host: "hub.example".to_owned(),
            port: 7422,
            tls: true,
            websocket: None,
            tls_name: None,
            user: Some("u".to_owned()),
            password: Some(Secret::new("p")),
        };
        RemoteOptions {
            urls: vec![url],
            account: String::new(),
            credentials: None,
            seed: None,
            tls: None,
            deny_imports: Vec::new(),
            deny_exports: Vec::new(),
            hub: false,
            no_randomize: false,
            disabled: false,
            first_info_timeout: std::time::Duration::from_secs(1),
            dial_timeout: None,
            isolated: false,
            request_isolation: false,
            compression: LeafCompression::Off,
            ignores_told,
            proxy: None,
            websocket_compression: false,
            websocket_unmasked: false,
        }
    }

    #[test]
    fn the_newest_list_counts() {
        let remote = remote(false);
        let told = Told::new(&remote);
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        told.learn(&remote, Some(&list(&["10.0.0.1:7422", "hub.example:7422", "bad host:1"])));
        let seen = |turn| told.address(&remote.urls, turn);
        assert_eq!(seen(0).to_string(), "10.0.0.1:7422");
        assert_eq!((seen(1).to_string(), seen(2)), ("hub.example:7422".to_owned(), seen(0)));
        let learned = seen(0);
        assert!(learned.tls && learned.user.as_deref() == Some("u"));
        assert_eq!(learned.tls_name.as_deref(), Some("hub.example"));
        told.learn(&remote, None);
        assert_eq!(seen(0).to_string(), "10.0.0.1:7422");
        let many: Vec<String> = (0..200).map(|n| format!("host{n}:1")).collect();
        told.learn(&remote, Some(&many));
        assert_eq!(told.urls.lock().len(), URLS_MAX);
        told.learn(&remote, Some(&[]));
        assert_eq!(seen(0).to_string(), "hub.example:7422");
        let ignoring = self::remote(true);
        let told = Told::new(&ignoring);
        told.learn(&ignoring, Some(&many));
        assert_eq!(told.address(&ignoring.urls, 0).to_string(), "hub.example:7422");
    }
}
