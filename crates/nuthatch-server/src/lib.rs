//! The server: listeners, connections, accounts, authentication, the JetStream service, monitoring.

pub mod conn;
pub mod jetstream_hook;
pub mod options;
