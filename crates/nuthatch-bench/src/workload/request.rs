//! Request and reply, one request at a time per client.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{RunReport, Tally};
use nuthatch_client::{Client, TransportError};

/// How often a responder looks whether the requesters are done.
const RESPONDER_POLL: Duration = Duration::from_millis(50);

/// Queue group of the responders.
const RESPONDER_QUEUE: &str = "bench";

/// The workload.
#[derive(Debug, Clone)]
pub struct RequestReply {
    /// Subject of the requests.
    pub subject: String,
    /// Requests over all clients.
    pub msgs: u64,
    /// Body size of requests, and of the replies of our own responders, in bytes.
    pub size: usize,
    /// Requesters.
    pub clients: usize,
    /// Responders of our own; 0 when somebody else answers.
    pub responders: usize,
}

/// One connection of [`RequestReply`].
enum Role {
    Requester(Client),
    Responder(Client),
}

impl RequestReply {
    /// Runs once.
    ///
    /// # Errors
    /// When the server cannot be reached, or a reply does not come.
    pub fn run(&self, target: &Target) -> Result<RunReport, BenchError> {
        let mut roles = Vec::new();
        for _ in 0..self.responders {
            let mut client = target.connect()?;
            client.subscribe(&self.subject, RESPONDER_QUEUE)?;
            client.round_trip(target.timeout)?;
            roles.push(Role::Responder(client));
        }
        for _ in 0..self.clients {
            let mut client = target.connect()?;
            client.subscribe(&format!("{}.q", client.inbox()), "")?;
            client.round_trip(target.timeout)?;
            roles.push(Role::Requester(client));
        }
        let busy = AtomicUsize::new(self.clients);
        target.measure(roles, |index, role, tally| match role {
            Role::Responder(client) => respond(client, &busy),
            Role::Requester(client) => {
                let result = self.request(index - self.responders, client, target, tally);
                busy.fetch_sub(1, Ordering::Relaxed);
                result
            }
        })
    }

    fn request(
        &self,
        index: usize,
        mut client: Client,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let payload = Payload::new(self.size, index as u64);
        let inbox = format!("{}.q", client.inbox()).into_bytes();
        tally.started = Instant::now();
        for number in 0..share(self.msgs, self.clients, index) {
            let asked = Instant::now();
            let body = payload.get(number);
            client.writer.publish(self.subject.as_bytes(), &inbox, b"", body)?;
            client.writer.flush()?;
            client.pump(target.timeout, |m, _| {
                match m.status() {
                    Some(code) => tally.error(|| format!("status {code} {}", m.status_text())),
                    None => {
                        tally.count(1);
                        tally.bytes += m.payload.len() as u64;
                        tally.latencies.record(asked.elapsed());
                    }
                }
                Ok(ControlFlow::Break(()))
            })?;
        }
        tally.finished = Instant::now();
        Ok(())
    }
}

/// Sends every request back until no requester is left.
fn respond(mut client: Client, busy: &AtomicUsize) -> Result<(), BenchError> {
    while busy.load(Ordering::Relaxed) > 0 {
        let result = client.pump(RESPONDER_POLL, |m, writer| {
            if let Some(reply) = m.reply {
                writer.publish(reply, b"", b"", m.payload)?;
            }
            Ok(ControlFlow::Continue(()))
        });
        match result {
            Ok(()) | Err(TransportError::TimedOut(_)) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}
