//! Who a client is: the credentials it shows, and what authentication makes of them.

use crate::options::{ConnectionType, GLOBAL_ACCOUNT};
use crate::tls::peer::PeerCertificate;
use std::net::IpAddr;
use std::sync::Arc;

pub use self::grant::Grant;
pub use self::permissions::{Allowed, Rights, SubjectFilter};

mod grant;
mod permissions;

/// Credentials that a client presents.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `user`.
    pub user: String,
    /// `pass`.
    pub password: String,
    /// `auth_token`.
    pub token: String,
    /// `nkey`.
    pub nkey: String,
    /// `sig`: base64 of the signature over the nonce.
    pub signature: String,
    /// `jwt`.
    pub jwt: String,
    /// `proxy_sig`: base64 of the signature of a proxy over the nonce.
    pub proxy_signature: String,
    /// How it connects.
    pub origin: Origin,
}

/// What the connection shows of a client beside its credentials.
#[derive(Clone, Default)]
pub struct Origin {
    /// It speaks websocket.
    pub is_websocket: bool,
    /// It is another server.
    pub is_leaf: bool,
    /// It comes through a trusted proxy.
    pub is_proxied: bool,
    /// Its address.
    pub address: Option<IpAddr>,
    /// The user of those without credentials, where the listener has one of its own.
    pub no_auth_user: Option<String>,
    /// Whether its certificate names the user (`verify_and_map`).
    pub certificate: CertificateLogin,
}

impl Origin {
    pub(crate) fn kind(&self) -> ConnectionType {
        match (self.is_leaf, self.is_websocket) {
            (true, true) => ConnectionType::LeafnodeWs,
            (true, false) => ConnectionType::Leafnode,
            (false, true) => ConnectionType::Websocket,
            (false, false) => ConnectionType::Standard,
        }
    }
}

/// Whether a client's certificate says who it is.
#[derive(Clone, Default)]
pub enum CertificateLogin {
    /// It does not.
    #[default]
    Unused,
    /// It would, but none was shown.
    Missing,
    /// It does.
    Shown(Arc<PeerCertificate>),
}

impl Credentials {
    pub(crate) fn is_empty(&self) -> bool {
        self.user.is_empty()
            && self.password.is_empty()
            && self.token.is_empty()
            && self.nkey.is_empty()
    }
}

/// An authenticated identity.
#[derive(Clone, Default)]
pub struct Identity {
    /// User name or public nkey; empty without authentication. Tokens are not shown.
    pub user: String,
    /// Name of its account.
    pub account: String,
    /// Its permissions; `None`: unrestricted.
    pub rights: Option<Arc<Rights>>,
    /// Content of its token; `None` outside of operator mode.
    pub grant: Option<Arc<Grant>>,
}

impl Identity {
    /// A user of the global account.
    pub(crate) fn global(user: &str) -> Self {
        let (user, account) = (user.to_owned(), GLOBAL_ACCOUNT.to_owned());
        Self { user, account, ..Self::default() }
    }
}
