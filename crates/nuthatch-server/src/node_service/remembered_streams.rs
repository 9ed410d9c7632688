//! What each node remembers on its disk of streams that are in logs of just one other node
//! ([`crate::served::Served::to_remember`]): should that node be away after this one was started, its names are not given
//! away.
//!
//! It is written down a moment after it was told, and nothing is agreed upon: a stream that was created just before both
//! nodes lost their power is not known here until its node is back.

use super::kept_file::KeptFile;
use crate::account::RememberedStreams;
use crate::served::OFFLINE_STREAMS_MAX;
use crate::server::Server;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where it is, in our directory of the store.
const DIR: &str = "other-nodes";
const FILE: &str = "streams";

/// Changes that come within this are written together: each write is of all.
const SETTLE: Duration = Duration::from_millis(250);

/// Of the time a write takes at most a part of so many.
const SHARE: u32 = 20;

/// Between two writes at most, however long one took.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// After this what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);

fn file(server: &Server) -> KeptFile {
    KeptFile::of(server, DIR, FILE)
}

/// Reads what this node remembered.
///
/// # Errors
/// A sentence: it cannot be read. Whatever is there stays.
pub(crate) fn load(server: &Server) -> Result<(), String> {
    let read = file(server).read::<RememberedStreams>().map_err(|error| {
        format!(
            "{error}. The file says which streams only one other node has; without it (remove it) they are known once \
             that node was there"
        )
    });
    if let Some(streams) = read? {
        server.accounts.set_remembered(streams);
    }
    Ok(())
}

/// True if both say the same of the same logs, whenever that was.
fn is_like(one: &RememberedStreams, other: &RememberedStreams) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((account, logs), (of_other, others))| {
            account == of_other
                && logs.len() == others.len()
                && logs.iter().zip(others).all(|(log, other)| log.is_like(other))
        })
}

/// Writes down what is told of such streams.
pub(crate) async fn keep(server: Arc<Server>) {
    let mut changes = server.nodes.table_changes();
    // What is in the file; none: not known.
    let (mut seen, mut written) = (Vec::new(), None);
    let (mut told, mut pause) = (String::new(), SETTLE);
    loop {
        let wait = if told.is_empty() { Duration::MAX } else { RETRY };
        if let Ok(Err(_ended)) = tokio::time::timeout(wait, changes.changed()).await {
            return;
        }
        tokio::time::sleep(pause).await;
        changes.mark_unchanged();
        let accounts = server.accounts.all();
        let versions = accounts.iter().map(|one| one.served.remembered());
        let versions: Vec<u64> = versions.chain([server.accounts.given_up()]).collect();
        if versions == seen && told.is_empty() {
            continue;
        }
        seen = versions;
        let (began, of_server) = (Instant::now(), server.clone());
        // There may be many.
        let gathered = tokio::task::spawn_blocking(move || {
            let streams = of_server.accounts.remembered();
            let is_same = written.as_ref().is_some_and(|written| is_like(&streams, written));
            if is_same { (written, None) } else { (None, Some(streams)) }
        });
        let mut failure = beyond(&server);
        written = match gathered.await {
            Ok((same, None)) => same,
            Ok((_, Some(streams))) => match file(&server).write(streams.clone()).await {
                Ok(()) => Some(streams),
                Err(error) => {
                    failure = error;
                    None
                }
            },
            Err(panic) => {
                failure = panic.to_string();
                None
            }
        };
        pause = (began.elapsed() * SHARE).clamp(SETTLE, PAUSE_MAX);
        if !failure.is_empty() && failure != told {
            server.log.warn(format_args!(
                "Streams that are on one other node only cannot all be remembered while it is away: {failure}"
            ));
        }
        told = failure;
    }
}

/// What there is no room for.
fn beyond(server: &Server) -> String {
    let counts = server.accounts.all().into_iter().map(|one| one.served.offline_left_out());
    match counts.sum::<usize>() {
        0 => String::new(),
        more => format!("there are {more} more than {OFFLINE_STREAMS_MAX} of an account"),
    }
}
