//! The time that all logs of a server live by: the machine's, of which large steps are doubted.

use crate::server::Server;
use nuthatch_streams::steady::{STEP_LASTS, SteadyClock, StepEvent, TimeSource};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clocks of this machine.
pub struct Machine(Instant);

impl TimeSource for Machine {
    fn wall_nanos(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// See [`SteadyClock`].
pub type ServerClock = SteadyClock<Machine>;

/// The clock of a server's logs, which says in the log what it makes of steps.
pub(super) fn of(server: &Arc<Server>) -> Arc<ServerClock> {
    let make = || {
        let told = Arc::downgrade(server);
        let tell = Box::new(move |event| {
            if let Some(server) = told.upgrade() {
                say(&server, event);
            }
        });
        Arc::new(SteadyClock::new(Machine(Instant::now()), tell))
    };
    server.log_clock.get_or_init(make).clone()
}

fn say(server: &Server, event: StepEvent) {
    let log = &server.log;
    match event {
        StepEvent::Doubted { ahead } => log.warn(format_args!(
            "The clock of this machine has stepped ahead by {ahead:?}. Nothing expires by that, and \
             no timestamp shows it, until it has lasted {STEP_LASTS:?}; the signal 'clock' (nuthatch \
             serve -sl clock) says that it is right"
        )),
        StepEvent::TakenBack => log.info(format_args!(
            "The clock of this machine is back where it was: nothing was lost by its step"
        )),
        StepEvent::Followed { ahead } => log.warn(format_args!(
            "Streams follow the step of this machine's clock by {ahead:?}: what is too old by it goes"
        )),
    }
}
