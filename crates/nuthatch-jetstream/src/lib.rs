//! The JetStream service: registry of streams, API calls, and the seam to the engines.

mod api;
pub mod audit;
mod banner;
mod core_port;
pub mod registry;
pub mod service;
mod startup_hints;
mod step_down;

pub mod handle;
pub mod moves;
mod open;

mod account;
mod account_table;
mod across;
mod admission;
mod changing;
mod clock;
mod consumers;
mod copy_tasks;
mod durable_logs;
mod engine;
mod engines;
mod envelope;
mod foreign;
mod import_table;
mod imports;
mod known_logs;
mod lists;
mod load;
mod log_calls;
mod log_names;
mod log_table;
mod logs_port;
mod move_table;
mod outcome;
mod owned_logs;
mod pending_changes;
mod placing;
mod replicas;
mod replication;
mod request;
mod restore;
mod routing;
mod settings;
mod snapshot;
mod stream_subjects;
mod stream_table;
mod streams;
mod view;
mod writers;

pub use core_port::CorePort;
pub use engines::Engines;
pub use foreign::Foreign;
pub use handle::JetStreamHandle;
pub use log_table::{AttachError, AttachedLog};
pub use logs_port::{LogsPort, NotTaken};
pub use open::start;
pub use registry::Registry;
pub use service::{AccountLimits, JetStream, Settings};

#[cfg(test)]
mod tests;
