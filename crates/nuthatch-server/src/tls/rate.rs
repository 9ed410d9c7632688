//! How many handshakes a second may begin (`connection_rate_limit`).

use parking_lot::Mutex;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// Counts handshakes.
#[derive(Debug, Default)]
pub struct RateLimit(Mutex<Option<(Instant, u32)>>);

impl RateLimit {
    /// True if one more may begin now, with so many in every second.
    pub fn allows(&self, limit: u32, now: Instant) -> bool {
        let mut window = self.0.lock();
        match &mut *window {
            Some((began, count)) if now.duration_since(*began) < WINDOW => {
                *count = count.saturating_add(1);
                *count <= limit
            }
            _ => {
                *window = Some((now, 1));
                limit > 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_second() {
        let (rate, now) = (RateLimit::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        let allowed: Vec<bool> = (0..4).map(|n| rate.allows(2, at(n * 10))).collect();
        assert_eq!(allowed, [true, true, false, false]);
        assert!(rate.allows(2, at(1001)));
    }
}
