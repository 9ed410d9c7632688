//! Signals of a running server.

use super::lame_duck;
use super::reload;
use crate::server::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// What `-sl clock` sends. Nothing else sends it to a process that has not asked for it, and one that
/// does not know it goes on.
pub(super) const CLOCK_SIGNAL: i32 = libc::SIGURG;

/// How long a signal that was caught may take until it is told of.
const CAUGHT: Duration = Duration::from_millis(20);

/// The signals we handle.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    urgent: Signal,
}

impl Signals {
    /// Starts to receive them.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            urgent: signal(SignalKind::from_raw(CLOCK_SIGNAL))?,
        })
    }

    /// Waits for one that stops the process.
    pub(super) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminated",
        }
    }

    /// True if one that stops the process has come and was not asked for yet. From here on such a signal ends
    /// the process at once, so none that comes before it is replaced by another program is lost.
    pub(super) async fn was_stopped_meanwhile(&mut self) -> bool {
        for number in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the default action of a signal needs nothing of this process.
            let before = unsafe { libc::signal(number, libc::SIG_DFL) };
            assert_ne!(before, libc::SIG_ERR, "both are signals");
        }
        // One that was caught just before is on its way through the runtime.
        tokio::time::timeout(CAUGHT, self.stop()).await.is_ok()
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminated",
            _ = self.hangup.recv() => "hangup",
            _ = self.user1.recv() => "user defined signal 1",
            _ = self.user2.recv() => "user defined signal 2",
            _ = self.urgent.recv() => "clock",
        }
    }
}

/// Handles signals until one of them stops the server, or the lame duck has let go of its clients: then it was
/// told to end, else something has happened that ends it.
pub(super) async fn until_stopped(
    server: &Arc<Server>,
    signals: &mut Signals,
    accepting: &JoinHandle<()>,
) -> bool {
    let mut lame_duck: Option<JoinHandle<()>> = None;
    loop {
        let duck_done = async {
            match &mut lame_duck {
                Some(task) => drop(task.await),
                None => std::future::pending().await,
            }
        };
        let name = tokio::select! {
            name = signals.next() => name,
            () = duck_done => return true,
            () = server.fatal.wait() => return false,
        };
        server.log.info(format_args!("Trapped {name:?} signal"));
        match name {
            "interrupt" => return true,
            "terminated" if !server.lame_duck.load(Ordering::Relaxed) => return true,
            "hangup" => reload::reload(server),
            "user defined signal 1" => reopen(server),
            "clock" => trust_clock(server),
            "user defined signal 2" if lame_duck.is_none() => {
                accepting.abort();
                lame_duck = Some(tokio::spawn(lame_duck::run(server.clone())));
            }
            _ => {}
        }
    }
}

/// An operator says that the clock of this machine is right: a step that is doubted is followed.
fn trust_clock(server: &Server) {
    if server.logs.trust_clock().is_none() {
        server.log.info(format_args!("No step of the clock is doubted"));
    }
}

fn reopen(server: &Server) {
    if server.options().log.file.is_none() {
        server.log.info(format_args!("File log re-open ignored, not a file logger"));
        return;
    }
    match server.log.reopen() {
        Ok(()) => server.log.info(format_args!("File log re-opened")),
        Err(error) => server.log.error(format_args!("File log re-open failed: {error}")),
    }
}
