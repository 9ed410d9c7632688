//! A small machine for tests of the log: streams with a message limit, deletes, purges; and a rig
//! that drives a log step by step.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod bytes;
mod history;
mod toy;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub use history::History;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub use toy::{Event, Outcome, Outputs, Toy, ToyStream};

use nuthatch_log::env::{ManualClock, SeededEntropy};
use nuthatch_log::{
    Cipher, Compression, Key, Keys, Log, LogCore, LogHandle, LogOptions, OpenError, OwnableDisk,
    RecoveryReport, Standby, StreamId, SyncPolicy,
};
use std::sync::Arc;
use std::time::Duration;

/// A log under test, driven on the calling thread with a clock that stands still.
pub struct Rig {
    pub core: LogCore<Toy>,
    pub handle: LogHandle<Event>,
    pub clock: Arc<ManualClock>,
    pub outputs: Outputs,
    pub report: RecoveryReport,
}

/// Options with everything small, so that boundaries are met constantly.
pub fn tiny() -> LogOptions {
    LogOptions {
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(0),
        checkpoint_bytes: 32 * 1024,
        ..LogOptions::default()
    }
}

/// Tiny options with parts smaller than most states of these tests, so that a state takes many
/// records, and some states take many frames.
pub fn tiny_parts() -> LogOptions {
    LogOptions { state_part_bytes: 20, ..tiny() }
}

/// Tiny options of a log that merges, sorts and compresses whatever is sealed, with hardly any
/// memory for it.
pub fn tiny_cold() -> LogOptions {
    LogOptions {
        merge: true,
        compression: Compression::Zstd,
        cold_after_ms: 0,
        own_segment_bytes: 1500,
        segment_frames: 20,
        compact_memory_bytes: 2000,
        ..tiny_parts()
    }
}

/// Keys by the texts that they are made of.
pub fn keys(current: Option<&str>, previous: &[&str]) -> Keys {
    let key = |text: &str| Key::of_text(text.as_bytes()).expect("not empty");
    Keys {
        current: current.map(key),
        previous: previous.iter().map(|text| key(text)).collect(),
        cipher: Cipher::ChaCha20Poly1305,
    }
}

/// The same options of a log that is encrypted.
pub fn encrypted(options: LogOptions) -> LogOptions {
    LogOptions { keys: keys(Some("a key of these tests"), &[]), ..options }
}

/// Tiny options with another sync policy.
pub fn tiny_sync(sync: SyncPolicy) -> LogOptions {
    LogOptions { sync, ..tiny() }
}

impl Rig {
    pub fn open(options: LogOptions, disk: Arc<dyn OwnableDisk>) -> Result<Self, OpenError> {
        Self::open_seeded(options, disk, 1)
    }

    pub fn open_seeded(
        options: LogOptions,
        disk: Arc<dyn OwnableDisk>,
        seed: u64,
    ) -> Result<Self, OpenError> {
        Self::open_from(options, disk, seed, (None, Outputs::default()))
    }

    /// With what a standby has read, whose machine has these outputs.
    pub fn open_from(
        options: LogOptions,
        disk: Arc<dyn OwnableDisk>,
        seed: u64,
        (standby, outputs): (Option<Standby<Toy>>, Outputs),
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let entropy = Box::new(SeededEntropy::new(seed));
        let from = (standby, || Toy::new(outputs.clone()));
        let (core, report) = Log::open_from(options, disk, clock.clone(), entropy, from)?;
        let handle = core.handle();
        Ok(Self { core, handle, clock, outputs, report })
    }

    /// Sends an event and lets the log work until nothing is left to do at this moment.
    pub fn run(&mut self, event: Event) {
        self.send(event);
        self.settle();
    }

    pub fn send(&mut self, event: Event) {
        let weight = event.weight();
        assert!(self.handle.send(event, weight).is_ok(), "the queue has room");
    }

    pub fn settle(&mut self) {
        while self.core.turn().progress {}
    }

    pub fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    pub fn publish(&mut self, stream: u32, body: &[u8]) -> Outcome {
        let token = self.outputs.token();
        self.run(Event::Publish { stream: StreamId(stream), body: body.to_vec(), token });
        self.outputs.take(token)
    }

    pub fn read(&mut self, stream: u32, seq: u64) -> Outcome {
        let token = self.outputs.token();
        self.run(Event::Read { stream: StreamId(stream), seq, token });
        self.outputs.take(token)
    }

    pub fn create(&mut self, stream: u32, max_messages: u64) {
        self.run(Event::Create { stream: StreamId(stream), max_messages });
    }
}
