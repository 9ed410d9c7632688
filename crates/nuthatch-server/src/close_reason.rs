//! Reasons for closing connections, in the words of `/connz`.

/// Why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the texts below say it")]
pub enum CloseReason {
    ClientClosed,
    AuthenticationTimeout,
    AuthenticationViolation,
    TlsHandshakeError,
    SlowConsumerPendingBytes,
    SlowConsumerWriteDeadline,
    WriteError,
    ReadError,
    ParseError,
    StaleConnection,
    ProtocolViolation,
    BadClientProtocolVersion,
    MaxConnectionsExceeded,
    MaxAccountConnectionsExceeded,
    MaxPayloadExceeded,
    MaxControlLineExceeded,
    ServerShutdown,
    Kicked,
    AuthenticationExpired,
    Revoked,
    MissingAccount,
    NoRespondersRequiresHeaders,
    WrongPort,
    DuplicateLeaf,
    MinimumVersionRequired,
    ProxyNotTrusted,
    ProxyRequired,
    NodeRemoved,
    InternalError,
}

impl CloseReason {
    /// The text in `/connz` and in log lines.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ClientClosed => "Client Closed",
            Self::AuthenticationTimeout => "Authentication Timeout",
            Self::AuthenticationViolation => "Authentication Failure",
            Self::TlsHandshakeError => "TLS Handshake Failure",
            Self::SlowConsumerPendingBytes => "Slow Consumer (Pending Bytes)",
            Self::SlowConsumerWriteDeadline => "Slow Consumer (Write Deadline)",
            Self::WriteError => "Write Error",
            Self::ReadError => "Read Error",
            Self::ParseError => "Parse Error",
            Self::StaleConnection => "Stale Connection",
            Self::ProtocolViolation => "Protocol Violation",
            Self::BadClientProtocolVersion => "Bad Client Protocol Version",
            Self::MaxConnectionsExceeded => "Maximum Connections Exceeded",
            Self::MaxAccountConnectionsExceeded => "Maximum Account Connections Exceeded",
            Self::MaxPayloadExceeded => "Maximum Message Payload Exceeded",
            Self::MaxControlLineExceeded => "Maximum Control Line Exceeded",
            Self::Kicked => "Kicked",
            Self::ServerShutdown => "Server Shutdown",
            Self::AuthenticationExpired => "Authentication Expired",
            Self::Revoked => "Credentials Revoked",
            Self::MissingAccount => "Missing Account",
            Self::NoRespondersRequiresHeaders => "No Responders Requires Headers",
            Self::WrongPort => "Incorrect Port",
            Self::DuplicateLeaf => "Duplicate Remote LeafNode Connection",
            Self::MinimumVersionRequired => "Minimum Version Required",
            Self::ProxyNotTrusted => "Proxy Not Trusted",
            Self::ProxyRequired => "Proxy Required",
            Self::NodeRemoved => "Node Removed",
            Self::InternalError => "Internal Error",
        }
    }

    /// True if the client did not read as fast as it was sent to.
    #[must_use]
    pub const fn is_slow_consumer(self) -> bool {
        matches!(self, Self::SlowConsumerPendingBytes | Self::SlowConsumerWriteDeadline)
    }

    /// True if the client was not let in.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::AuthenticationTimeout
                | Self::AuthenticationViolation
                | Self::MissingAccount
                | Self::ProxyNotTrusted
                | Self::ProxyRequired
        )
    }

    /// True if the peer may be writing still what it was closed for: it is told by a reset, as the
    /// end of the other direction is nothing that a writer sees.
    #[must_use]
    pub const fn resets_writers(self) -> bool {
        matches!(self, Self::MaxPayloadExceeded)
    }

    /// True if what waits for the client is thrown away instead of written.
    #[must_use]
    pub const fn drops_pending(self) -> bool {
        matches!(
            self,
            Self::SlowConsumerPendingBytes
                | Self::SlowConsumerWriteDeadline
                | Self::WriteError
                | Self::ReadError
                | Self::ClientClosed
                | Self::InternalError
        )
    }
}
