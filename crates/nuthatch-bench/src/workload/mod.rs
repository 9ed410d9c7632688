//! The workloads, driven by the lean client.

pub mod consumer;
pub mod core;
pub mod js_batch;
pub mod js_pub;
pub mod js_read;
pub mod request;
pub mod stream;
