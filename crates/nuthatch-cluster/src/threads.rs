//! Threads of a node, which live as long as the process.

use nuthatch_catalog_group::LogNumber;
use std::io;
use std::thread;

/// Starts one.
///
/// # Errors
/// The operating system has none to give.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Starts one of a log. Its name says so; Linux shows 15 bytes of it.
///
/// # Errors
/// The operating system has none to give.
pub fn spawn_of(
    log: LogNumber,
    role: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    match log {
        LogNumber::FIRST => spawn(&format!("node-{role}"), work),
        LogNumber(other) => spawn(&format!("node-{role}-{other}"), work),
    }
}
