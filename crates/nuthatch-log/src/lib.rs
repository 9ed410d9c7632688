//! A shared write-ahead log: many streams, one order, one fsync per group commit.
//!
//! The log knows records, frames, segments and durability. It knows nothing of NATS, accounts or
//! consumers: what records *mean* is decided by a [`Machine`], which runs on the sequencer thread.

pub mod machine;
pub mod record;
pub mod types;

pub use machine::{
    AppendError, Appended, IndexedMessage, LogAccess, Machine, Read, SnapshotError, Space,
    StoredMessage, Urgency,
};
pub use record::{RecordKind, RecordRef};
pub use types::{Epoch, Lsn, Seq, StreamId, Timestamp};
