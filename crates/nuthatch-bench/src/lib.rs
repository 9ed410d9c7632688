//! Load generator and workloads for NATS servers, with their own lean client.
//!
//! Everything here talks to a server through its protocol alone, so the same measurement runs
//! against any NATS server; only `catalog` writes a log itself, because publishing so much would take
//! too long. The command line of the `nuthatch` binary shares [`client`] and [`js`].

#[cfg(feature = "async-nats")]
mod async_driver;
mod campaign;
mod catalog;
pub mod cli;
pub mod client;
mod compare;
pub mod connect;
mod driver;
mod harness;
pub mod js;
mod meter;
mod mq;
mod objects;
mod payload;
mod peers;
mod picture;
mod plot;
pub mod process;
pub mod queue;
mod relocate;
pub mod report;
mod requests;
mod scale;
mod table;
pub mod units;
mod workbench;
mod workload;
