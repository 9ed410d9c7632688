//! Push delivery: interest, heartbeats, flow control, rate limit.

use super::request::go_duration;
use nuthatch_protocol::js::ConsumerConfig;

/// Largest flow control window, bytes (nats-server's `JsFlowControlMaxPending`).
const FLOW_WINDOW_MAX_BYTES: u64 = 32 << 20;
/// First window.
const FLOW_WINDOW_START_BYTES: u64 = FLOW_WINDOW_MAX_BYTES / 16;
/// Bytes that may be sent at once under a rate limit (or the stream's largest message).
const RATE_BURST_BYTES: u64 = 1 << 20;

/// State of a push consumer. `T` is where the deliver subject leads to.
#[derive(Debug)]
pub(super) struct Push<T> {
    /// Subscribers of the deliver subject; `None`: there are none, and nothing is delivered.
    pub target: Option<T>,
    /// Flow control, if configured.
    pub flow: Option<Flow>,
    /// Rate limit, if configured.
    pub rate: Option<Rate>,
    /// When the next idle heartbeat is due; `i64::MAX`: never.
    pub heartbeat_at: i64,
}

impl<T> Push<T> {
    /// For a configuration with a deliver subject.
    pub fn new(config: &ConsumerConfig, max_msg_bytes: i32) -> Self {
        Self {
            target: None,
            flow: config.flow_control.then(Flow::default),
            rate: Rate::new(config.rate_limit_bps, max_msg_bytes),
            heartbeat_at: i64::MAX,
        }
    }
}

/// Window of bytes that may be under way to the client.
#[derive(Debug)]
pub(super) struct Flow {
    window: u64,
    under_way: u64,
    /// Bytes that the outstanding request covers.
    covered: u64,
    /// The outstanding request's reply subject; empty: none.
    pub request: Vec<u8>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { window: FLOW_WINDOW_START_BYTES, under_way: 0, covered: 0, request: Vec::new() }
    }
}

impl Flow {
    /// True if the window is used up.
    pub fn is_stalled(&self) -> bool {
        self.under_way > self.window
    }

    /// Counts a delivery. `true`: ask the client now, which is so at once if it is `urgent`.
    pub fn sent(&mut self, bytes: u64, urgent: bool) -> bool {
        self.under_way += bytes;
        if self.request.is_empty() {
            return urgent || self.under_way > self.window / 2;
        }
        if self.under_way - self.covered >= self.window {
            self.covered += bytes;
        }
        false
    }

    /// A request with this reply subject goes out.
    pub fn ask(&mut self, stream: &[u8], consumer: &[u8], random: u64) {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        self.covered = self.under_way;
        self.request.clear();
        self.request.extend_from_slice(b"$JS.FC.");
        self.request.extend_from_slice(stream);
        self.request.push(b'.');
        self.request.extend_from_slice(consumer);
        self.request.push(b'.');
        let mut rest = random;
        for _ in 0..4 {
            self.request.push(DIGITS[(rest % 62) as usize]);
            rest /= 62;
        }
    }

    /// The client answered; `false`: not the request that is outstanding.
    pub fn answered(&mut self, subject: &[u8]) -> bool {
        if self.request.is_empty() || subject != self.request {
            return false;
        }
        self.window = (self.window * 2).min(FLOW_WINDOW_MAX_BYTES);
        self.under_way = self.under_way.saturating_sub(self.covered);
        self.covered = 0;
        self.request.clear();
        true
    }
}

/// A token bucket, kept as the moment at which it would be full again.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_s: u64,
    burst_bytes: u64,
    full_at: i64,
}

impl Rate {
    /// `bits_per_s` of 0: no limit.
    pub fn new(bits_per_s: u64, max_msg_bytes: i32) -> Option<Self> {
        let burst = u64::try_from(max_msg_bytes).ok().filter(|&bytes| bytes > 0);
        (bits_per_s > 0).then(|| Self {
            bytes_per_s: (bits_per_s / 8).max(1),
            burst_bytes: burst.unwrap_or(RATE_BURST_BYTES),
            full_at: i64::MIN,
        })
    }

    fn nanos(&self, bytes: u64) -> i64 {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }

    /// When this many bytes may go; in the past: now.
    pub fn allowed_at(&self, bytes: u64, now: i64) -> i64 {
        let room = self.nanos(self.burst_bytes.saturating_sub(bytes));
        self.full_at.max(now).saturating_sub(room)
    }

    /// They went.
    pub fn spend(&mut self, bytes: u64, now: i64) {
        self.full_at = self.full_at.max(now).saturating_add(self.nanos(bytes));
    }
}

/// `Exceeded MaxRequestExpires of 30s`.
pub(super) fn exceeded_expires(max: i64) -> String {
    format!("Exceeded MaxRequestExpires of {}", go_duration(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_with_every_answer() {
        let mut flow = Flow::default();
        assert!(!flow.sent(1 << 20, false));
        assert!(flow.sent(1, false));
        flow.ask(b"S", b"C", 61);
        assert_eq!(flow.request, b"$JS.FC.S.C.z000");
        assert!(!flow.sent(1 << 20, true), "one is outstanding");
        assert!(flow.is_stalled());
        assert!(!flow.answered(b"$JS.FC.S.C.0000"));
        assert!(flow.answered(b"$JS.FC.S.C.z000"));
        assert!(!flow.is_stalled());
        assert_eq!((flow.window, flow.under_way), (4 << 20, 1 << 20));
    }

    #[test]
    fn the_rate_allows_a_burst_and_then_the_pace() {
        let mut rate = Rate::new(8_000, 1_000).unwrap_or_else(|| unreachable!("a limit is set"));
        let now = 5_000_000_000;
        assert!(rate.allowed_at(1_000, now) <= now);
        rate.spend(1_000, now);
        assert_eq!(rate.allowed_at(500, now), now + 500_000_000);
        assert_eq!(rate.allowed_at(1_000, now), now + 1_000_000_000);
    }
}
