//! Puts accounts in force: the same way as a reload of the configuration, and then for those who
//! are connected.

use crate::close_reason::CloseReason;
use crate::operator::derive::derive;
use crate::operator::{NEVER, Operator, seconds};
use crate::server::Server;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

/// A clock that was set is noticed after so long, at the latest.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// Makes the accounts of the store those in force. Blocks; changes are one after the other.
pub(super) fn apply(server: &Arc<Server>, operator: &Operator) {
    let mut said = operator.changing.lock();
    let now = seconds(SystemTime::now());
    let comes_later = operator.store.is_directory() || operator.store.fetches();
    let bootstrap =
        (comes_later && operator.trust.operators == 1).then_some(operator.system_account.as_str());
    let derived = derive(&operator.store.snapshot(), &operator.trust, bootstrap, now);
    say(server, &mut said, derived.problems);
    operator.accounts.store(Arc::new(derived.states));
    if server.options().accounts != derived.configured {
        server.set_accounts(derived.configured);
    }
    let deadline = derived.deadline.unwrap_or(NEVER);
    if operator.deadline.swap(deadline, Ordering::AcqRel) != deadline {
        operator.rescheduled.notify_one();
    }
    for conn in server.connections.open().iter().chain(&server.leafs.connections.open()) {
        server.recheck_grant(conn);
    }
    close_surplus(server);
}

/// Each problem once, for as long as it lasts.
fn say(server: &Server, said: &mut BTreeSet<String>, problems: Vec<String>) {
    for problem in problems.iter().filter(|problem| !said.contains(*problem)) {
        server.log.error(format_args!("{problem}"));
    }
    *said = problems.into_iter().collect();
}

/// Closes the newest connections of accounts that have more than they may have now.
fn close_surplus(server: &Server) {
    let mut counts: FxHashMap<_, usize> = FxHashMap::default();
    for conn in server.connections.open() {
        let session = conn.session();
        if session.grant.is_none() || !conn.is_open() {
            continue;
        }
        let count = counts.entry(session.account.id).or_default();
        *count += 1;
        let max = session.account.limits.load().max_connections;
        if max.is_some_and(|max| *count > max as usize) {
            let text = "maximum account active connections exceeded";
            conn.close(CloseReason::MaxAccountConnectionsExceeded, Some(text));
        }
    }
}

/// Applies what happens by itself: accounts and activations that begin or end.
pub(super) async fn at_deadlines(server: Weak<Server>, operator: Arc<Operator>) {
    loop {
        let deadline = operator.deadline.load(Ordering::Acquire);
        match until(deadline, SystemTime::now()) {
            _ if deadline == NEVER => operator.rescheduled.notified().await,
            Duration::ZERO => {
                let Some(server) = server.upgrade() else { return };
                let operator = operator.clone();
                let applied = tokio::task::spawn_blocking(move || apply(&server, &operator));
                if applied.await.is_err() {
                    return;
                }
            }
            rest => {
                let rescheduled = operator.rescheduled.notified();
                // Either way it is looked at again.
                let _ = tokio::time::timeout(rest.min(CLOCK_CHECK), rescheduled).await;
            }
        }
        if server.strong_count() == 0 {
            return;
        }
    }
}

fn until(deadline: i64, now: SystemTime) -> Duration {
    let deadline = Duration::from_secs(u64::try_from(deadline).unwrap_or_default());
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    deadline.saturating_sub(now)
}
