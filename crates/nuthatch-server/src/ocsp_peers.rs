//! OCSP of the other side's certificates: a connection whose handshake has succeeded waits for it before
//! anything of it is taken. Others do not wait.

use crate::options::OcspPeer;
use crate::server::Server;
use crate::tls::ocsp::Purpose;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::fmt::Display;

/// The kind of a connection, as events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    Client,
    /// A leaf node that has connected.
    Leaf,
    /// A server that we have connected to as a leaf node.
    Remote,
}

impl PeerKind {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "Client",
            Self::Leaf | Self::Remote => "Leafnode",
        }
    }

    fn purpose(self) -> Purpose {
        match self {
            Self::Client | Self::Leaf => Purpose::Client,
            Self::Remote => Purpose::Server,
        }
    }
}

/// Why the other side is not let in.
pub(crate) fn rejection(kind: PeerKind) -> &'static str {
    match kind.purpose() {
        Purpose::Client => "client not OCSP valid",
        Purpose::Server => "server not OCSP valid",
    }
}

/// True if the other side may go on. What is wrong is logged and published.
pub(crate) async fn admits(
    server: &Server,
    who: &(dyn Display + Sync),
    kind: PeerKind,
    options: Option<&OcspPeer>,
    (roots, presented): (&RootCertStore, Option<&[CertificateDer<'static>]>),
) -> bool {
    let Some(options) = options else { return true };
    let checks = &server.tls.peers;
    let presented = presented.unwrap_or_default();
    let verdict = checks.check(&server.log, presented, (roots, kind.purpose()), options).await;
    if let Some(peer) = &verdict.peer {
        for (link, reason) in &verdict.invalid {
            server.system().ocsp_link_invalid(peer, link, reason);
        }
        if !verdict.is_valid {
            server.system().ocsp_rejected(kind.name(), peer, rejection(kind));
        }
    }
    if !verdict.is_valid {
        server.log.error(format_args!("{who} - TLS handshake error: {}", rejection(kind)));
    }
    verdict.is_valid
}
