//! Publishes as clients do by default, and what they would tell their users.

use nuthatch_client::Client;
use std::time::{Duration, Instant};

/// Clients make so many attempts by default where nobody hears a publish, because its log is on its way; here it is for
/// benchmarks to tell how many it takes: a test fails over what is said, and over what is never answered.
const DEFAULT_ATTEMPTS: u32 = 3;
const ATTEMPTS: u32 = 80;

/// The pause between two.
const PAUSE: Duration = Duration::from_millis(250);

/// Who has no answer by then has none.
const ANSWER: Duration = Duration::from_secs(20);

/// What became of some messages.
#[derive(Debug, Default)]
pub struct Load {
    /// Acknowledged in the end.
    pub acked: u64,
    /// What a client would have told its user.
    pub errors: Vec<String>,
    /// Attempts that nobody heard, and that were made again.
    pub unheard: u64,
    /// Messages that took more attempts than clients make by default.
    pub beyond_default: u64,
    /// The longest time until a message was acknowledged.
    pub slowest: Duration,
}

impl Load {
    /// Publishes a message under its id until it is acknowledged, or until then.
    pub fn publish(
        &mut self,
        client: &mut Client,
        (subject, id, body): (&str, &str, &str),
        deadline: Instant,
    ) {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        let (began, mut attempt) = (Instant::now(), 1);
        loop {
            assert!(Instant::now() < deadline, "{id} is not taken: {self:?}");
            let error = match client.request(subject, headers.as_bytes(), body.as_bytes(), ANSWER) {
                Ok(answer) => match String::from_utf8_lossy(&answer.payload) {
                    told if !told.contains("\"error\"") => break,
                    told => told.into_owned(),
                },
                Err(error) => error.to_string(),
            };
            if error.contains("no responders") && attempt < ATTEMPTS {
                self.unheard += 1;
                attempt += 1;
                self.beyond_default += u64::from(attempt == DEFAULT_ATTEMPTS + 1);
                std::thread::sleep(PAUSE);
            } else {
                self.errors.push(error);
                attempt = 1;
            }
        }
        self.acked += 1;
        self.slowest = self.slowest.max(began.elapsed());
    }
}
