//! The server: listeners, connections, accounts, authentication, the JetStream service, monitoring.

pub mod account;
pub mod account_id;
pub mod account_imports;
pub mod advisories;
pub mod auth;
mod buffers;
pub mod change_log;
mod cipher_suites;
pub mod close_reason;
pub mod conn;
pub mod connections;
pub mod credentials;
pub mod egress;
pub mod fatal;
mod greeting;
pub mod identity;
pub mod info;
pub mod interest;
pub mod jetstream_port;
pub mod large_answers;
mod latency;
pub mod leaf;
pub mod leaf_service;
mod leaf_table;
pub mod leafs;
pub mod link;
pub mod listener;
pub mod log_id;
pub mod logging;
pub mod logs;
pub mod mapping;
mod meaning;
pub mod member_rng;
pub mod monitor;
pub mod operator;
pub mod operator_service;
pub mod options;
pub mod outbox;
pub mod outlet;
pub mod own_publishes;
pub mod peer;
pub mod private_files;
pub mod process;
mod quote;
pub mod random;
#[doc(hidden)]
pub mod reader;
pub mod route;
pub mod server;
pub mod shares;
mod signature;
pub mod sink;
mod slice;
pub mod socket;
pub mod subscription;
pub mod system;
pub mod system_port;
pub mod tls;
pub mod trim;
pub mod version;
pub mod wall_time;
pub mod websocket;
mod writer;

pub use process::{
    Embedded, RunError, Services, StartConsole, StartJetStream, StartedJetStream, run,
};
