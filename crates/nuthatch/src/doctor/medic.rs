//! What the doctor asks about streams: the engine's own knowledge of its records, and a log opened
//! as the server opens it, with nobody connected.

use nuthatch_log::doctor::{Medic, StateFacts, StreamPreview};
use nuthatch_log::env::{SystemClock, SystemEntropy};
use nuthatch_log::{Disk, Log, LogOptions, StreamId};
use nuthatch_streams::{Engine, EngineConfig, NullSink, facts};
use std::sync::Arc;

/// Knows what JetStream's records mean.
pub struct StreamMedic;

impl Medic for StreamMedic {
    fn state(&self, body: &[u8]) -> Option<StateFacts> {
        facts::state(body)
    }

    fn log_state(&self, body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        facts::log_state(body)
    }

    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, StateFacts)>> {
        facts::snapshot(snapshot)
    }

    fn is_later(&self, snapshot: &[u8]) -> bool {
        facts::is_later(snapshot)
    }

    fn advance(&self) -> Vec<u8> {
        facts::advance()
    }

    fn foundling(&self, stream: StreamId, last: u64) -> (String, Vec<u8>) {
        facts::foundling(stream, last)
    }

    fn preview(&self, disk: Arc<dyn Disk>) -> Result<Vec<StreamPreview>, String> {
        open_preview(disk)
    }
}

/// Opens the log on `disk`, which may be written to, and tells what streams it holds.
///
/// # Errors
/// Why a server would not open it.
pub fn open_preview(disk: Arc<dyn Disk>) -> Result<Vec<StreamPreview>, String> {
    let engine = Engine::new(EngineConfig::default(), NullSink);
    let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
    let options = LogOptions::default();
    let (core, _) = Log::open(options, disk, Arc::new(clock), Box::new(entropy), engine)
        .map_err(|error| error.to_string())?;
    Ok(core.machine().previews())
}
