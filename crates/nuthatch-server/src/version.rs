//! Versions that a server tells of itself.

pub use nuthatch_protocol::js::API_LEVEL;

/// The NATS version we claim: clients switch features on by it.
pub const NATS_VERSION: &str = "2.15.2";

/// Our own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
