//! A lean blocking NATS client: one thread, one socket, no allocation per message.
//!
//! For any NATS server; the command line, the web console, the workbench and embedded brokers use it. [`Client`] is a
//! connection (TLS, nkeys, credentials, [`Client::reconnect`]); [`js`] is JetStream with its types
//! ([`js::JetStream`], [`js::KeyValue`], [`js::ObjectStore`]); [`service`] answers requests and tells of itself;
//! [`log`] is a log's own interface; [`connect`] holds the options that client commands share, with their environment
//! variables and contexts.

mod client;
pub mod connect;
pub mod frame;
pub mod js;
pub mod log;
pub mod nkey;
pub mod service;
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
