//! The thread of a broker: starts its server in a runtime of its own, waits for the end, and stops it.

use nuthatch_server::server::Server;
use nuthatch_server::{Embedded, RunError, Services};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Name of a broker's threads, as debuggers show it.
pub(crate) const THREAD_NAME: &str = "nuthatch";

/// Signals that a thread raises by what it does itself. All others are blocked on a broker's threads: the host's own
/// threads take them, and a client that has gone never ends the host by a SIGPIPE.
const OWN_SIGNALS: [libc::c_int; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPROF,
];

/// What has become of a broker.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// It runs.
    Open,
    /// It was closed; with what did not close cleanly.
    Closed(Option<String>),
    /// It has ended by itself, for this reason.
    Dead(String),
}

/// A broker as its thread and its handles see it.
pub(crate) struct Shared {
    /// Gone once it has ended, and then its memory is.
    pub(crate) server: Mutex<Option<Arc<Server>>>,
    pub(crate) state: Mutex<State>,
}

/// What the thread works with.
pub(crate) struct Task {
    pub(crate) server: Arc<Server>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) listens: bool,
    /// Hears once whether the server has started.
    pub(crate) started: SyncSender<Result<(), StartError>>,
    /// Told, or dropped, when the broker is to be closed.
    pub(crate) stop: oneshot::Receiver<()>,
}

/// Why a server has not started.
#[derive(Debug)]
pub(crate) enum StartError {
    Run(RunError),
    System(io::Error),
    Panic(String),
}

impl Task {
    /// The life of the thread.
    pub(crate) fn run(self) {
        let (shared, started) = (self.shared.clone(), self.started.clone());
        let server = self.server.clone();
        let end = catch_unwind(AssertUnwindSafe(|| self.live()));
        let state = end.unwrap_or_else(|panic| {
            let why = format!("a panic: {}", panic_text(&*panic));
            // Somebody may still wait for the start; after it nobody listens.
            let _ = started.try_send(Err(StartError::Panic(why.clone())));
            State::Dead(why)
        });
        // Connections know their server, which remembers them for monitoring.
        server.connections.forget_all();
        server.leafs.connections.forget_all();
        server.nodes.connections.forget_all();
        shared.server.lock().take();
        *shared.state.lock() = state;
    }

    fn live(self) -> State {
        match prepare() {
            // When the runtime is dropped, its threads have ended.
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => {
                let _ = self.started.send(Err(StartError::System(error)));
                State::Closed(None)
            }
        }
    }

    async fn serve(mut self) -> State {
        // A start that is given up runs to its end and is undone: logs that are open are closed by nothing else.
        let services = Services {
            jetstream: nuthatch_jetstream::start,
            console: nothing,
            telemetry: nothing,
            commit: "",
        };
        let mut embedded = match Embedded::start(&self.server, services, self.listens).await {
            Ok(embedded) => embedded,
            Err(error) => {
                let _ = self.started.send(Err(StartError::Run(error)));
                return State::Closed(None);
            }
        };
        // Whoever waited may have given up meanwhile; then the handle to stop it is gone too.
        let _ = self.started.try_send(Ok(()));
        let fault = tokio::select! {
            _ = &mut self.stop => None,
            fault = embedded.fault() => Some(fault),
        };
        if let Some(why) = fault {
            // Said first: what stops now may take a while, and nothing can be done with the broker any more.
            *self.shared.state.lock() = State::Dead(why.clone());
            self.server.log.error(format_args!("The broker ends: {why}"));
            let _ = embedded.stop().await;
            return State::Dead(why);
        }
        State::Closed(embedded.stop().await.err().map(|error| error.to_string()))
    }
}

/// What does not belong to a broker in another program.
fn nothing(_: &Arc<Server>) -> Result<(), String> {
    Ok(())
}

/// A runtime whose threads inherit what this one blocks.
fn prepare() -> io::Result<Runtime> {
    block_signals()?;
    Builder::new_multi_thread().thread_name(THREAD_NAME).enable_all().build()
}

fn block_signals() -> io::Result<()> {
    // SAFETY: the set is filled before it is used, and only this thread's mask changes.
    let failed = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in OWN_SIGNALS {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
