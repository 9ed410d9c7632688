//! Imports of streams of other servers as step machines, one at each end.
//!
//! The command has an [`Importer`]: it decides which stretch of the stream is brought next, and counts
//! it once all of it is durable here. The server has an [`Intake`] for each import: batches that came
//! one behind the other are stored in that order, and are confirmed when they are durable. The state of
//! an import is in the stream that it fills: whoever comes back goes on behind its last sequence.

mod importer;
mod intake;

pub use importer::{Action, Happened, Importer};
pub use intake::{BatchId, Effect, Event, Intake};

#[cfg(test)]
mod tests;
