//! `bench mq`: the mqperf method (seed 004). Sender nodes and receiver nodes, each a process with
//! threads; batches of random size 1 to 10; receive, then acknowledge; at least once.

pub mod cli;
pub mod metrics;
pub mod node;
pub mod processes;
pub mod result;
pub mod seen;
pub mod stamp;
#[cfg(test)]
mod tests;
