//! Imports of streams of other servers as step machines, one at each end.
//!
//! The command has an [`Importer`]: it decides which stretch of the stream is brought next, and counts
//! it once all of it is durable here. The server has a table of the imports that are under way
//! ([`Imports`]), with an [`Intake`] for each: batches that came one behind the other are stored in that
//! order, and are confirmed when they are durable. What begins, finishes or gives up an import is a
//! [`Call`] with that table: an import is begun once, takes nothing while it ends, is finished when all of
//! its batches were confirmed, and is shown or forgotten once the log has said so; where the log has not
//! said what became of a step, it is asked before anything else is done.
//!
//! The state of an import is in the stream that it fills: whoever comes back goes on behind its last
//! sequence.

mod call;
mod importer;
mod intake;
mod table;

pub use call::{Action as CallAction, Call, Ended, Happened as CallHappened, Request};
pub use importer::{Action, Happened, Importer};
pub use intake::{Batch, BatchId, Effect, Event, Intake};
pub use table::{IMPORTS_MAX, IMPORTS_OF_ACCOUNT_MAX, Imports, Key, Target};

#[cfg(test)]
mod tests;
