//! Threads of a node, which live as long as the process.

use std::io;
use std::thread;

/// Starts one.
///
/// # Errors
/// The operating system has none to give.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
