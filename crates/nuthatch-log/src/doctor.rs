//! Inspection, diagnosis and repair of a log.
//!
//! [`Inspection`] shows what there is. [`diagnose`] finds every kind of damage and mends it *in
//! memory*, on an [`OverlayDisk`], where the mended log is also opened once: what it reports is what
//! would happen. [`Diagnosis::apply`] then writes those changes down and keeps every file that they
//! replace.

mod apply;
mod bit_flip;
mod chain_repair;
mod checkpoints;
mod examine;
mod finding;
mod inspect;
mod inventory;
mod rebuild;
mod repair_segment;
mod salvage;
mod segments;

pub use apply::{Applied, KEPT_DIR};
pub use examine::{Diagnosis, DoctorError, DoctorOptions, diagnose};
pub use finding::{Finding, Kind, Severity};
pub use inspect::{
    CheckpointInspection, FrameView, InspectError, Inspection, Seen, SegmentInspection,
    walk_segment, walk_segment_with,
};
pub use inventory::{Lost, Uncertain};

use crate::env::OwnableDisk;
use crate::types::StreamId;
use std::sync::Arc;

/// What a stream's decoded state says about its messages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DecodedState {
    /// The stream's name.
    pub name: String,
    /// Nothing below this sequence lives.
    pub floor: u64,
    /// The sequence of the next message.
    pub next: u64,
    /// Sequences from the floor to the last that do not live: ascending ranges.
    pub deleted: Vec<(u64, u64)>,
}

/// A stream as a server would show it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamPreview {
    /// Its id.
    pub id: StreamId,
    /// Its name.
    pub name: String,
    /// First sequence.
    pub first: u64,
    /// Last sequence.
    pub last: u64,
    /// Live messages.
    pub messages: u64,
    /// Bytes that they take in the log.
    pub bytes: u64,
    /// Consumers.
    pub consumers: usize,
    /// Sequences of its live messages: ascending ranges.
    pub live: Vec<(u64, u64)>,
}

/// Decodes the records of the layer above, which the log itself does not understand.
pub trait StateDecoder {
    /// Decodes the body of a `StreamState` record; `None` if it is malformed.
    fn state(&self, body: &[u8]) -> Option<DecodedState>;

    /// The first stream id never used, and the streams that exist, as a `LogState` says.
    fn log_state(&self, body: &[u8]) -> Option<(StreamId, Vec<StreamId>)>;

    /// The streams in a checkpoint's snapshot; `None` if it makes no sense.
    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, DecodedState)>>;

    /// True if a snapshot, or something in it, is of a later version: nothing is mended then.
    fn is_later(&self, snapshot: &[u8]) -> bool;

    /// Body of an `Advance` record, which uses up sequences.
    fn advance(&self) -> Vec<u8>;

    /// Name and `StreamState` body for a stream whose configuration is lost, with sequences up to
    /// `last`.
    fn orphan(&self, stream: StreamId, last: u64) -> (String, Vec<u8>);

    /// Opens the log on `disk` (which may be changed) as a server does, and tells what is in it.
    ///
    /// # Errors
    /// Why it does not open.
    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String>;
}

/// For fuzzers: salvages a segment's bytes; how many frames were found.
pub(crate) fn fuzz_salvage(
    image: Vec<u8>,
    header: crate::segment::SegmentHeader,
    end: Option<crate::Lsn>,
) -> usize {
    let keys = crate::keys::Keyring::default();
    let known = salvage::Expected { limit: image.len() as u64, end, likely: true, keys: &keys };
    let found = salvage::salvage(image, header, known);
    let is_frame = |piece: &&salvage::Piece| matches!(piece, salvage::Piece::Frame { .. });
    found.pieces.iter().filter(is_frame).count()
}
