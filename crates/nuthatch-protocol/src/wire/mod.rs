//! The NATS client protocol on bytes: parsers for both directions and encoders.
//!
//! Parsers work on whatever is in the caller's buffer, borrow from it and allocate nothing.
//! They hold no state between calls: an operation that is not complete is reported as
//! `Incomplete { need }`, and the caller comes back when it holds that many bytes.

pub mod client;
pub mod leaf;
pub mod parse;
mod scan;
pub mod write;

pub use client::{ServerOp, ServerStep, parse_server_op};
pub use leaf::{LeafMessage, LeafOp, LeafParseError, LeafStep, parse_leaf_op};
pub use parse::{Limits, Op, ParseError, Parsed, Publish, Step, parse_op};
