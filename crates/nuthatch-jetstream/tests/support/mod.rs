//! The scripted peers of the server's tests, and a server with the JetStream service.
#![allow(dead_code, reason = "not every test file uses every helper")]

use nuthatch_server::options::Options;

#[path = "../../../nuthatch-server/tests/support/mod.rs"]
mod core;

#[allow(unused_imports, reason = "not every test file uses every helper")]
pub use core::*;

/// A server with JetStream, whose store goes with it.
pub fn with_jetstream(options: Options) -> TestServer {
    TestServer::with_service(options, nuthatch_jetstream::start)
}
