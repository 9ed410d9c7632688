//! The port from connections to the service of the system account.

use crate::account::Account;
use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::tls::ocsp::CertificateInfo;
use std::sync::Arc;

/// A request of a client about its own account.
#[derive(Clone, Copy, Debug)]
pub struct OwnRequest<'a> {
    /// The document that it asks for.
    pub document: &'static str,
    /// Reply subject.
    pub reply: &'a [u8],
    /// Body.
    pub body: &'a [u8],
}

/// The service of the system account as connections use it. All methods are called from connection
/// tasks and must neither block nor wait.
pub trait SystemPort: Send + Sync + 'static {
    /// A client was let in.
    fn connected(&self, conn: &Connection);

    /// Another server has joined an account.
    fn leaf_connected(&self, conn: &Connection);

    /// A client has gone.
    fn disconnected(&self, conn: &Connection, reason: CloseReason);

    /// A client was not let in.
    fn refused(&self, conn: &Connection, reason: CloseReason);

    /// A connection was refused for what OCSP says of the other side's certificate.
    fn ocsp_rejected(&self, kind: &str, peer: &CertificateInfo, reason: &str);

    /// OCSP says that a certificate is not good by which the other side's is verified.
    fn ocsp_link_invalid(&self, peer: &CertificateInfo, link: &CertificateInfo, reason: &str);

    /// Answers a request about `account`, of which the client is.
    fn own_request(&self, account: Arc<Account>, request: &OwnRequest<'_>);
}

/// The document of its own account that a client outside of the system account asks for on this
/// subject; `None`: the subject is no such request.
#[must_use]
pub fn own_document(subject: &[u8]) -> Option<&'static str> {
    match subject {
        b"$SYS.REQ.ACCOUNT.PING.CONNZ" | b"$SYS.REQ.SERVER.PING.CONNZ" => Some("CONNZ"),
        b"$SYS.REQ.ACCOUNT.PING.STATZ" => Some("STATZ"),
        _ => None,
    }
}

/// The service of a server that has no listeners yet: it hears nothing.
pub(crate) struct NoSystem;

impl SystemPort for NoSystem {
    fn connected(&self, _conn: &Connection) {}

    fn leaf_connected(&self, _conn: &Connection) {}

    fn disconnected(&self, _conn: &Connection, _reason: CloseReason) {}

    fn refused(&self, _conn: &Connection, _reason: CloseReason) {}

    fn ocsp_rejected(&self, _kind: &str, _peer: &CertificateInfo, _reason: &str) {}

    fn ocsp_link_invalid(&self, _peer: &CertificateInfo, _link: &CertificateInfo, _reason: &str) {}

    fn own_request(&self, _account: Arc<Account>, _request: &OwnRequest<'_>) {}
}
