//! The clock of a server's logs says in the log what it makes of steps.

use nuthatch_server::logs::ServerClock;
use nuthatch_server::server::Server;
use nuthatch_streams::steady::{STEP_LASTS, StepEvent};
use std::sync::Arc;

/// The clock of a server's logs, which says in the log what it makes of steps.
pub(super) fn of(server: &Arc<Server>) -> Arc<ServerClock> {
    let told = Arc::downgrade(server);
    server.logs.clock(Box::new(move |event| {
        if let Some(server) = told.upgrade() {
            say(&server, event);
        }
    }))
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
