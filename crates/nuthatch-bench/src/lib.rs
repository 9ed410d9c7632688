//! Load generator and workloads for NATS servers.
//!
//! Everything here talks to a server through its protocol alone, so the same measurement runs
//! against any NATS server; only `catalog` writes a log itself, because publishing so much would take
//! too long. The `nuthatch` binary has the load generator ([`cli`]). The workbench (other systems, campaigns, plots) is a binary of its own,
//! `nuthatch-bench`, behind the feature `workbench`.

#[cfg(feature = "async-nats")]
mod async_driver;
#[cfg(feature = "workbench")]
mod campaign;
#[cfg(feature = "workbench")]
mod catalog;
pub mod cli;
#[cfg(feature = "workbench")]
mod compare;
mod driver;
mod harness;
#[cfg(feature = "workbench")]
mod meter;
#[cfg(feature = "workbench")]
mod migration;
#[cfg(feature = "workbench")]
mod mq;
#[cfg(feature = "workbench")]
mod objects;
#[cfg(feature = "workbench")]
mod own;
mod payload;
#[cfg(feature = "workbench")]
mod peers;
#[cfg(feature = "workbench")]
mod picture;
#[cfg(feature = "workbench")]
mod plot;
pub mod process;
#[cfg(feature = "workbench")]
pub mod program;
#[cfg(feature = "workbench")]
pub mod queue;
#[cfg(feature = "workbench")]
pub mod queue_error;
pub mod report;
#[cfg(feature = "workbench")]
mod requests;
#[cfg(feature = "workbench")]
mod scale;
#[cfg(feature = "workbench")]
mod table;
#[cfg(feature = "workbench")]
mod workbench;
mod workload;
