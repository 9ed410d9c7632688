//! The workloads that the seeds measure. Each can run by itself or as part of a campaign.

pub mod cli;
pub mod latency;
pub mod latency_cli;
pub mod log;
pub mod partitions;
pub mod pubsub;
