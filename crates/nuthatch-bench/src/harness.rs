//! Runs a workload with several clients at once and measures what it costs.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::process::{self, ProcessCost, Usage};
use crate::report::{RunReport, Tally, Watched};
use nuthatch_client::js::JsError;
use nuthatch_client::{Client, ConnectError, ConnectOptions, RequestError, TransportError};

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection failed during the run.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// JetStream refused the preparation.
    #[error(transparent)]
    Js(#[from] JsError),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The async-nats client failed.
    #[error("async-nats: {0}")]
    AsyncNats(String),
    /// A queue of the workbench failed.
    #[cfg(feature = "workbench")]
    #[error(transparent)]
    Queue(#[from] crate::queue_error::QueueError),
    /// A server address is unusable.
    #[error(transparent)]
    Url(#[from] nuthatch_client::UrlError),
    /// An address, a context or a file with credentials is unusable.
    #[error(transparent)]
    Settings(#[from] nuthatch_client::connect::SettingsError),
    /// Invalid usage.
    #[error("{0}")]
    Usage(String),
    /// The measurement could not be completed.
    #[error("{0}")]
    Failed(String),
    /// A measurement took longer than its limit, so its server was ended.
    #[error("took longer than {0:?} and was ended")]
    TooLong(std::time::Duration),
    /// A client's thread panicked.
    #[error("a client thread panicked")]
    Panicked,
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    File {
        /// The operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Target and settings of a measurement.
#[derive(Debug, Clone)]
pub struct Target {
    /// How to reach the server.
    pub options: ConnectOptions,
    /// The server's process, when it runs here.
    pub server_pid: Option<u32>,
    /// Limit for single requests and for the wait for the next message.
    pub timeout: Duration,
    /// Who watches how far a run is.
    pub watched: Option<Arc<Watched>>,
}

impl Target {
    /// A new connection.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn connect(&self) -> Result<Client, ConnectError> {
        Client::connect(&self.options)
    }

    /// Runs `work` for each of `states` in a thread of its own, all starting together, and
    /// measures from that moment to the end of the last.
    ///
    /// # Errors
    /// The first error of any client.
    pub fn measure<S: Send>(
        &self,
        states: Vec<S>,
        work: impl Fn(usize, S, &mut Tally) -> Result<(), BenchError> + Sync,
    ) -> Result<RunReport, BenchError> {
        let clients = states.len();
        let barrier = Barrier::new(clients + 1);
        let (barrier, work) = (&barrier, &work);
        thread::scope(|scope| {
            let start_one = |(index, state)| {
                scope.spawn(move || {
                    barrier.wait();
                    let mut tally = Tally::watched_by(self.watched.clone());
                    work(index, state, &mut tally).map(|()| tally)
                })
            };
            let threads: Vec<_> = states.into_iter().enumerate().map(start_one).collect();
            let probe = Probe::start(self.server_pid);
            barrier.wait();
            let mut sum: Option<Tally> = None;
            let mut failure = None;
            for thread in threads {
                match thread.join().map_err(|_| BenchError::Panicked).and_then(|result| result) {
                    Ok(tally) => match &mut sum {
                        Some(sum) => sum.merge(tally),
                        None => sum = Some(tally),
                    },
                    Err(err) => failure = failure.or(Some(err)),
                }
            }
            match failure {
                Some(err) => Err(err),
                None => Ok(probe.finish(&sum.unwrap_or_default(), clients)),
            }
        })
    }
}

/// A measurement in progress.
#[derive(Debug)]
pub struct Probe {
    own_cpu: Duration,
    server: Option<(u32, Usage, bool)>,
}

impl Probe {
    /// Notes where everything stands now.
    pub fn start(server_pid: Option<u32>) -> Self {
        let server = server_pid.and_then(|pid| {
            let reset = process::reset_peak(pid);
            Some((pid, process::usage(pid)?, reset))
        });
        Self { own_cpu: process::own_cpu(), server }
    }

    /// What has been used since, per counted message.
    pub fn finish(&self, tally: &Tally, clients: usize) -> RunReport {
        let own = process::own_cpu().saturating_sub(self.own_cpu);
        let server = self.server.and_then(|(pid, before, reset)| {
            let after = process::usage(pid)?;
            let cpu_s = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            Some(ProcessCost {
                pid,
                cpu_us_per_msg: cpu_s * 1e6 / tally.msgs.max(1) as f64,
                cpu_s,
                user_s: after.user.saturating_sub(before.user).as_secs_f64(),
                system_s: after.system.saturating_sub(before.system).as_secs_f64(),
                rss_bytes: after.rss_bytes,
                peak_rss_bytes: after.peak_rss_bytes,
                peak_is_of_this_run: reset,
            })
        });
        RunReport::new(tally, clients, own, server)
    }
}

/// The part of `total` that client `index` of `clients` does.
pub fn share(total: u64, clients: usize, index: usize) -> u64 {
    let clients = clients as u64;
    total / clients + u64::from((index as u64) < total % clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_up() {
        for clients in 1..7 {
            assert_eq!((0..clients).map(|index| share(20, clients, index)).sum::<u64>(), 20);
        }
    }
}
