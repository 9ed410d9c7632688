//! Trusted proxies: who comes through one shows its signature of the nonce, and some users have to.

use super::Authenticator;
use crate::identity::Credentials;
use crate::options::TrustedProxy;
use crate::signature;

/// What a client shows of the proxy that it came through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proxied {
    /// Nothing that counts: no signature, or no proxy is trusted.
    No,
    /// The signature of a trusted one, with this key.
    By(String),
    /// Another one's signature.
    Untrusted,
}

impl Authenticator {
    /// The proxy whose signature of the nonce this is.
    #[must_use]
    pub fn proxied(&self, signature: &str, nonce: &str) -> Proxied {
        if signature.is_empty() || self.proxies.is_empty() {
            return Proxied::No;
        }
        let signed = |proxy: &&TrustedProxy| signature::verify_nonce(&proxy.key, nonce, signature);
        match self.proxies.iter().find(signed) {
            Some(proxy) => Proxied::By(proxy.public.clone()),
            None => Proxied::Untrusted,
        }
    }

    /// True if a proxy with this key is trusted.
    #[must_use]
    pub fn trusts_proxy(&self, public: &str) -> bool {
        self.proxies.iter().any(|proxy| proxy.public == public)
    }

    /// True if a client has to come through a trusted proxy, and has not.
    pub(super) fn lacks_proxy(&self, credentials: &Credentials) -> bool {
        if credentials.origin.is_proxied {
            return false;
        }
        match self.named(credentials).and_then(|name| self.entry(name)) {
            Some(entry) => entry.proxied_only,
            // The one user, or the one with the token.
            None => self.users.is_empty() && self.nkeys.is_empty() && self.single_proxied_only,
        }
    }
}
