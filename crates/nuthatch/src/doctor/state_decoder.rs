//! Decoding of streams for the doctor: the engine's own knowledge of its records, and a log opened
//! as the server opens it, without clients.

use nuthatch_log::doctor::{DecodedState, StateDecoder, StreamPreview};
use nuthatch_log::env::{SystemClock, SystemEntropy};
use nuthatch_log::{Keys, Log, LogOptions, OwnableDisk, StreamId};
use nuthatch_streams::{Engine, EngineConfig, NullSink, decoded_state};
use std::sync::Arc;

/// Knows what JetStream's records mean.
pub struct StreamStateDecoder {
    /// Keys of what is encrypted.
    pub keys: Keys,
}

impl StateDecoder for StreamStateDecoder {
    fn state(&self, body: &[u8]) -> Option<DecodedState> {
        decoded_state::state(body)
    }

    fn log_state(&self, body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        decoded_state::log_state(body)
    }

    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
        decoded_state::snapshot(snapshot)
    }

    fn is_later(&self, snapshot: &[u8]) -> bool {
        decoded_state::is_later(snapshot)
    }

    fn advance(&self) -> Vec<u8> {
        decoded_state::advance()
    }

    fn orphan(&self, stream: StreamId, last: u64) -> (String, Vec<u8>) {
        decoded_state::orphan(stream, last)
    }

    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String> {
        open_preview(disk, &self.keys)
    }
}

/// Opens the log on `disk`, which may be written to, and tells what streams it holds.
///
/// # Errors
/// Why a server would not open it.
pub fn open_preview(disk: Arc<dyn OwnableDisk>, keys: &Keys) -> Result<Vec<StreamPreview>, String> {
    let engine = Engine::new(EngineConfig::default(), NullSink);
    let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
    let options = LogOptions { keys: keys.clone(), ..LogOptions::default() };
    let (core, _) = Log::open(options, disk, Arc::new(clock), Box::new(entropy), engine)
        .map_err(|error| error.to_string())?;
    Ok(core.machine().previews())
}
