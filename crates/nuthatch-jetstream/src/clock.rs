//! The clock of a server's logs says in the log what it makes of steps.

use nuthatch_log::Timestamp;
use nuthatch_server::logs::ServerClock;
use nuthatch_server::server::Server;
use nuthatch_streams::steady::{STEP_LASTS, StepEvent};
use std::sync::Arc;
use std::time::Duration;

/// How long the first word of others on the clock is waited for when a log is opened.
const AGREEMENT_WAIT: Duration = Duration::from_secs(1);

/// The clock of a server's logs, which says in the log what it makes of steps.
pub(super) fn of(server: &Arc<Server>) -> Arc<ServerClock> {
    server.logs.clock(teller(server))
}

fn teller(server: &Arc<Server>) -> Box<dyn Fn(StepEvent) + Send + Sync> {
    let told = Arc::downgrade(server);
    Box::new(move |event| {
        if let Some(server) = told.upgrade() {
            say(&server, event);
        }
    })
}

/// The clock of the logs of a node that owns a quorum log: it goes by the machine's while a majority of the nodes
/// agrees with that.
pub(super) fn of_owner(server: &Arc<Server>, number: u8) -> Arc<ServerClock> {
    let clock = server.logs.owners_clock(teller(server));
    let cluster = server.cluster.get().expect("it runs before its log is opened");
    let log = &cluster.logs()[usize::from(number)];
    let last =
        Timestamp(i64::try_from(log.last_stamp().0.saturating_mul(1000)).unwrap_or(i64::MAX));
    log.wait_for_clock(AGREEMENT_WAIT);
    let judging = Arc::clone(log);
    clock.judged_by(Box::new(move || judging.clock_is_agreed()), last);
    clock
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
        StepEvent::NotAgreed => log.warn(format_args!(
            "No majority of the nodes agrees with the clock of this machine (2 s): nothing expires by it, and timestamps \
             go on from the last ones, until one does"
        )),
        StepEvent::Agreed => log.info(format_args!(
            "A majority of the nodes agrees with the clock of this machine again: streams follow it"
        )),
        StepEvent::Followed { ahead } => log.warn(format_args!(
            "Streams follow the step of this machine's clock by {ahead:?}: what is too old by it goes"
        )),
    }
}
