//! The handle of a broker.

use crate::Config;
use crate::life::{Shared, StartError, State, THREAD_NAME, Task};
use nuthatch_client::{Client, ConnectError, ConnectOptions};
use nuthatch_server::RunError;
use nuthatch_server::logging::Logger;
use nuthatch_server::server::Server;
use parking_lot::Mutex;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Why a broker was not opened. What had begun has been undone, but for [`OpenError::NotReady`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log file cannot be opened.
    #[error("could not open log file {}: {source}", file.display())]
    LogFile {
        /// Which one.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server did not start: a port is taken, the store belongs to another one, a log is damaged.
    #[error(transparent)]
    Start(RunError),
    /// It took longer than `ready_timeout`. Nothing is lost. What has begun ends in the background; until then the
    /// store is in use.
    #[error(
        "recovery did not end within the ready_timeout of {limit:?}; nothing is lost: open again with a longer one or \
         without"
    )]
    NotReady {
        /// How long it had.
        limit: Duration,
    },
    /// The system refused a thread or a runtime.
    #[error("can't start the broker's threads: {0}")]
    Threads(io::Error),
    /// A fault of the broker.
    #[error("the broker did not start: {0}")]
    Panic(String),
}

/// Why an open broker does not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// It was closed.
    #[error("the broker is closed")]
    Closed,
    /// It has ended by itself: close it, and open it again if the reason allows.
    #[error("the broker has ended: {0}")]
    Dead(String),
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFailed {
    /// The broker has ended.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The system has no more descriptors.
    #[error("can't make a connection in the process: {0}")]
    System(#[from] io::Error),
    /// The handshake failed: credentials are missing, say.
    #[error(transparent)]
    Client(#[from] ConnectError),
}

/// What did not go well at the end. The broker has ended all the same.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A log did not close cleanly; what was acknowledged is safe.
    #[error("{0}")]
    NotClean(String),
    /// It had ended before, by itself.
    #[error("the broker had ended: {0}")]
    Dead(String),
}

/// A broker in this process. It is closed when it is dropped; handles may be shared by threads.
pub struct Broker {
    shared: Arc<Shared>,
    /// Dropped to stop it.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    port: Option<u16>,
    url: Option<String>,
}

impl Broker {
    /// Opens the store, recovers what is in it, and serves. Waits until that is done.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let Config { mut options, listens, logs_to_stderr } = config;
        let log = match &options.log.file {
            None if !logs_to_stderr => Logger::silent(),
            _ => Logger::new(&options.log).map_err(|source| {
                let file = options.log.file.clone().unwrap_or_default();
                OpenError::LogFile { file, source }
            })?,
        };
        // The wait below is bounded by it, not the start: a start that is cut off would leave logs open.
        let limit = options.ready_timeout.take();
        let server = Server::new(options, log);
        let (held, state) = (Mutex::new(Some(server.clone())), Mutex::new(State::Open));
        let shared = Arc::new(Shared { server: held, state });
        let (started, outcome) = sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let task = Task {
            server: server.clone(),
            shared: shared.clone(),
            listens,
            started,
            stop: stopped,
        };
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || task.run())
            .map_err(OpenError::Threads)?;
        if let Err(error) = wait(&outcome, limit) {
            if !matches!(error, OpenError::NotReady { .. }) {
                // It has ended, or does so now; a panic was noted.
                let _ = thread.join();
            }
            return Err(error);
        }
        let port = listens.then(|| server.client_port.load(Ordering::Relaxed));
        let url = port.map(|port| url_of(&server, port));
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(Self { shared, stop, thread, port, url })
    }

    /// Connects within the process, as a user that needs no credentials.
    ///
    /// # Errors
    /// [`ConnectFailed`].
    pub fn connect(&self) -> Result<Client, ConnectFailed> {
        self.connect_with(&ConnectOptions::in_process())
    }

    /// Connects within the process with these credentials, name and limits; addresses are not used.
    ///
    /// # Errors
    /// [`ConnectFailed`].
    pub fn connect_with(&self, options: &ConnectOptions) -> Result<Client, ConnectFailed> {
        let stream = self.stream()?;
        Ok(Client::over(stream.into(), options)?)
    }

    /// Connects within the process: a stream that speaks the protocol of NATS, for any client library that takes
    /// one. It ends when the broker does.
    ///
    /// # Errors
    /// [`ConnectFailed::Broker`] or [`ConnectFailed::System`].
    pub fn stream(&self) -> Result<UnixStream, ConnectFailed> {
        self.check()?;
        // Not held while it connects: others connect too.
        let server = self.shared.server.lock().clone().ok_or(BrokerError::Closed)?;
        let stream = server.connect_in_process();
        stream.map_err(|error| self.check().err().map_or(error.into(), ConnectFailed::Broker))
    }

    /// The port of clients; `None` without a listener.
    #[must_use]
    pub fn client_port(&self) -> Option<u16> {
        self.port
    }

    /// Where clients of other processes on this machine connect to; `None` without a listener.
    #[must_use]
    pub fn client_url(&self) -> Option<String> {
        self.url.clone()
    }

    /// Why it has ended by itself, if it has.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        match &*self.shared.state.lock() {
            State::Dead(why) => Some(why.clone()),
            State::Open | State::Closed(_) => None,
        }
    }

    /// Stops: clients are closed, then the logs. Waits until nothing of it runs any more; a second call does, too.
    ///
    /// # Errors
    /// [`CloseError`]; it has ended in any case.
    pub fn close(&self) -> Result<(), CloseError> {
        drop(self.stop.lock().take());
        // Two that close at the same time both wait.
        if let Some(thread) = self.thread.lock().take() {
            // A panic on it is in the state.
            let _ = thread.join();
        }
        match &*self.shared.state.lock() {
            State::Dead(why) => Err(CloseError::Dead(why.clone())),
            State::Closed(Some(why)) => Err(CloseError::NotClean(why.clone())),
            State::Closed(None) | State::Open => Ok(()),
        }
    }

    fn check(&self) -> Result<(), BrokerError> {
        if self.stop.lock().is_none() {
            return Err(BrokerError::Closed);
        }
        match &*self.shared.state.lock() {
            State::Open => Ok(()),
            State::Closed(_) => Err(BrokerError::Closed),
            State::Dead(why) => Err(BrokerError::Dead(why.clone())),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Whoever wants to know what went wrong closes it before.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock().clone();
        f.debug_struct("Broker").field("port", &self.port).field("state", &state).finish()
    }
}

/// Where clients of this machine reach a server that listens.
fn url_of(server: &Server, port: u16) -> String {
    let options = server.options();
    let host = match options.host.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => options.host.clone(),
    };
    let scheme = if options.tls.is_some() { "tls" } else { "nats" };
    format!("{scheme}://{host}:{port}")
}

/// Waits for the start, at most so long.
fn wait(
    outcome: &Receiver<Result<(), StartError>>,
    limit: Option<Duration>,
) -> Result<(), OpenError> {
    let told = match limit {
        None => outcome.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(limit) => outcome.recv_timeout(limit),
    };
    match told {
        Ok(Ok(())) => Ok(()),
        Ok(Err(StartError::Run(error))) => Err(OpenError::Start(error)),
        Ok(Err(StartError::System(error))) => Err(OpenError::Threads(error)),
        Ok(Err(StartError::Panic(why))) => Err(OpenError::Panic(why)),
        Err(RecvTimeoutError::Timeout) => {
            Err(OpenError::NotReady { limit: limit.unwrap_or_default() })
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(OpenError::Panic("its thread has ended".to_owned()))
        }
    }
}
