//! The server: listeners, connections, accounts, authentication, the JetStream service, monitoring.

pub mod account;
pub mod account_imports;
pub mod auth;
mod buffers;
pub mod conn;
pub mod connections;
pub mod egress;
mod greeting;
pub mod info;
pub mod interest;
pub mod jetstream;
pub mod jetstream_port;
pub mod leaf;
pub mod listener;
pub mod logging;
pub mod mapping;
mod meaning;
pub mod monitor;
pub mod operator;
pub mod options;
pub mod outbox;
pub mod process;
pub mod route;
pub mod server;
mod shares;
mod signature;
pub mod sink;
mod slice;
pub mod subscription;
pub mod system;
pub mod tls;
mod trim;
mod user_info;
pub mod websocket;

pub use process::{StartJetStream, StartedJetStream, run};
