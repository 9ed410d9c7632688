//! The workloads, driven by the lean client.

pub mod js_pub;
pub mod stream;
