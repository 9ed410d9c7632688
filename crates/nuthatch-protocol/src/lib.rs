//! What goes over the wire: NATS codec, subjects, headers, configuration syntax, JetStream types.
//!
//! Nothing here performs I/O, reads a clock or starts a task.

pub mod ack;
pub mod config;
pub mod decimal;
pub mod duration;
pub mod greeting;
pub mod headers;
pub mod import;
pub mod js;
pub mod jserror;
pub mod jwt;
pub mod nkey;
pub mod schedule;
pub mod subject;
mod swar;
pub mod transform;
pub mod wire;
