//! Publishes as clients do by default, and what they would tell their users.

use nuthatch_client::Client;
use serde_json::Value;
use std::time::{Duration, Instant};

/// What nats.go does by default where nobody hears a publish, because its log is on its way: two retries, 250 ms apart
/// (`DefaultPubRetryAttempts` and `DefaultPubRetryWait` in `jetstream/publish.go` and `js.go`, 1.55.0). nats-py 2.16.0 makes
/// one attempt and tells its user (`js/client.py`, `NoStreamResponseError`): that is what [`Load::unheard`] counts.
const DEFAULT_ATTEMPTS: u32 = 3;
/// The pause between two.
const PAUSE: Duration = Duration::from_millis(250);

/// Here they go on, so that what was published is known in the end. How long it takes is for benchmarks to tell.
const ATTEMPTS: u32 = 80;

/// Who has no answer by then has none.
const ANSWER: Duration = Duration::from_secs(20);

/// What became of some messages.
#[derive(Debug, Default)]
pub struct Load {
    /// Acknowledged in the end.
    pub acked: u64,
    /// What a client would have told its user, beside that nobody heard it.
    pub errors: Vec<String>,
    /// Attempts that nobody heard, and that were made again.
    pub unheard: u64,
    /// Messages that took more attempts than clients make by default.
    pub beyond_default: u64,
    /// Messages of which a client with default retries would have told its user an error.
    pub failed: u64,
    /// The longest time until a message was acknowledged.
    pub slowest: Duration,
}

impl Load {
    /// Publishes a message under its id until it is acknowledged, or until then; its sequence in the stream.
    pub fn publish(
        &mut self,
        client: &mut Client,
        (subject, id, body): (&str, &str, &str),
        deadline: Instant,
    ) -> u64 {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        let (began, mut attempt, mut has_failed) = (Instant::now(), 1, false);
        let seq = loop {
            assert!(Instant::now() < deadline, "{id} is not taken: {self:?}");
            let error = match client.request(subject, headers.as_bytes(), body.as_bytes(), ANSWER) {
                Ok(answer) => match sequence(&answer.payload) {
                    Some(seq) => break seq,
                    None => String::from_utf8_lossy(&answer.payload).into_owned(),
                },
                Err(error) => error.to_string(),
            };
            if error.contains("no responders") && attempt < ATTEMPTS {
                self.unheard += 1;
                attempt += 1;
                let is_beyond = attempt == DEFAULT_ATTEMPTS + 1;
                self.beyond_default += u64::from(is_beyond);
                has_failed |= is_beyond;
                std::thread::sleep(PAUSE);
            } else {
                self.errors.push(error);
                (attempt, has_failed) = (1, true);
            }
        };
        self.acked += 1;
        self.failed += u64::from(has_failed);
        self.slowest = self.slowest.max(began.elapsed());
        seq
    }

    /// What is planned fails nothing: all was acknowledged, within the retries that clients make by default.
    pub fn assert_fine(&self, said: impl Fn() -> String) {
        assert!(self.acked > 0, "nothing was published: {self:?}\n{}", said());
        assert!(
            self.errors.is_empty() && self.failed == 0,
            "of {} messages {} failed for clients that make {DEFAULT_ATTEMPTS} attempts, {PAUSE:?} apart: {self:?}\n\
             {} times an owner was followed that was not heard: only a machine that stood still excuses that\n{}",
            self.acked,
            self.failed,
            unheard_owners(&said()),
            said()
        );
    }

    /// What is not planned fails what was in flight: of a publisher that waits for each acknowledgement one message each time.
    pub fn assert_in_flight_only(&self, losses: u64, said: impl Fn() -> String) {
        assert!(self.acked > losses, "nothing was published: {self:?}\n{}", said());
        assert!(
            self.failed <= losses,
            "of {} messages {} failed, and one was in flight at each of {losses} losses: {self:?}\n{}",
            self.acked,
            self.failed,
            said()
        );
    }
}

/// How often a log was taken over because its owner was not heard any more, by what nodes have said.
fn unheard_owners(said: &str) -> usize {
    let lost = |line: &&str| line.contains("by=loss") && !line.contains(" detection_ms=0.0 ");
    said.lines().filter(lost).count()
}

/// The sequence in an acknowledgement; none: it is an error.
fn sequence(payload: &[u8]) -> Option<u64> {
    let told: Value = serde_json::from_slice(payload).ok()?;
    if told["error"].is_null() { told["seq"].as_u64() } else { None }
}
