//! A lean blocking NATS client: one thread, one socket, no allocation per message.
//!
//! Shared by the command line and the load generator, which talk to any NATS server. [`Client`] is a
//! connection; [`js`] asks the JetStream API; [`connect`] holds the options that client commands
//! share, with their environment variables and contexts.

mod client;
pub mod connect;
pub mod frame;
pub mod js;
pub mod log;
pub mod nkey;
pub mod socket;
pub mod transport;
pub mod units;
pub mod url;

pub use client::{
    Client, ConnectError, ConnectOptions, DEFAULT_INBOX_PREFIX, Identity, OwnedMessage,
    RequestError, ServerInfo, random_u64,
};
pub use frame::{Event, Message};
pub use transport::{Reader, TransportError, Writer};
pub use url::{Credentials, ServerUrl, UrlError};
