//! A shared write-ahead log: many streams, one order, one fsync per group commit.
//!
//! The log knows records, frames, segments and durability. It knows nothing of NATS, accounts or
//! consumers: what records *mean* is decided by a [`Machine`], which runs on the sequencer thread.
//!
//! [`Log::open_local`] or [`Log::open_memory`] recovers a log into a machine, [`LogCore::spawn`]
//! moves it to threads of its own, and the [`LogHandle`] takes events from anywhere.

mod bytes;
mod cache;
mod catalog;
mod checkpoint;
mod compaction;
pub mod doctor;
pub mod env;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod index;
pub mod keys;
mod later;
pub mod machine;
mod options;
pub mod record;
mod recovery;
pub mod rules;
mod sealed_segments;
mod segment;
mod sequencer;
pub mod state_part;
pub mod stats;
mod store;
mod stream_map;
pub mod types;

pub use catalog::CatalogError;
pub use doctor::{InspectError, Inspection, SegmentInspection};
pub use env::{Clock, Disk, Entropy, OwnableDisk};
pub use frame::{FrameFault, MAX_FRAME_BYTES, MAX_RECORD_BYTES};
pub use keys::{Cipher, Key, KeyId, Keyring, Keys};
pub use later::Later;
pub use machine::{
    AppendError, Appended, IndexedMessage, LogAccess, Machine, Read, SnapshotError, Space,
    StatesError, StoredMessage, Urgency,
};
pub use options::{Compression, LogOptions, Reporter, SyncPolicy};
pub use record::{RecordKind, RecordRef};
pub use recovery::standby::{Standby, StandbyError, StandbyLog, StandbyReader};
pub use recovery::{DamageKind, Log, OpenError, RecoveryReport};
pub use sealed_segments::{Chain, SealedSegment};
pub use sequencer::{CloseError, LOST, LogCore, LogHandle, LogInner, SendError, Turn};
pub use stats::{LogStats, StatsSnapshot};
pub use stream_map::StreamMap;
pub use types::{Epoch, Lsn, Seq, StreamId, Timestamp};
