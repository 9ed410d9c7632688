//! Resident memory of a process, from outside.

use crate::MEMORY_SLACK_BYTES;
use crate::rig::Rig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(20);

/// Resident bytes; 0 for a process that is gone.
pub fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Looks all the time.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    pub fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, peak) = (stop.clone(), AtomicU64::new(0));
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                peak.fetch_max(resident(pid), Ordering::Relaxed);
                thread::sleep(PERIOD);
            }
            peak.into_inner()
        });
        Self { stop, thread }
    }

    /// The most that was seen, in bytes.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only reads a file")
    }
}

/// Waits until the server's memory is near what it was before, or for so long; what it has beyond.
pub fn settled(rig: &Rig, before_bytes: u64, limit: Duration) -> u64 {
    let deadline = Instant::now() + limit;
    loop {
        let beyond = resident(rig.pid()).saturating_sub(before_bytes);
        if beyond <= MEMORY_SLACK_BYTES || Instant::now() > deadline {
            return beyond;
        }
        thread::sleep(PERIOD);
    }
}
