//! Configurations of the streams in the log in memory, which each node keeps on its disk: when too few nodes have that log
//! any more and it begins anew, its streams come back with them, empty.
//!
//! The node that serves the log tells the others, as it tells what streams there are, and each writes it down a moment
//! later. While nobody serves it nothing is written: what was told last counts. Nothing is agreed upon, so what was created
//! or deleted a moment before the loss, or while the next owner was away, may be missing or come back.

use super::kept_file::KeptFile;
use crate::nodes::MemoryStreams;
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Where they are, in our directory of the store.
const DIR: &str = "memory-quorum";
const FILE: &str = "streams";

/// Streams of which a node keeps the configuration; of further ones it keeps none, and says so.
pub const KEPT_MAX: usize = 16 * 1024;

/// Changes that come within this are written together: each write is of all.
const SETTLE: Duration = Duration::from_millis(250);

/// After this what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);

fn file(server: &Server) -> KeptFile {
    KeptFile::of(server, DIR, FILE)
}

/// Reads what this node kept.
///
/// # Errors
/// A sentence: it cannot be read. Whatever is there stays.
pub(crate) fn load(server: &Server) -> Result<(), String> {
    if let Some(streams) = file(server).read::<MemoryStreams>()? {
        server.nodes.set_memory_streams(streams);
    }
    Ok(())
}

/// Writes down what is told of such streams.
pub(crate) async fn keep(server: Arc<Server>) {
    let mut changes = server.nodes.table_changes();
    let (mut told, mut written) = (String::new(), server.nodes.memory_streams());
    loop {
        let wait = if told.is_empty() { Duration::MAX } else { RETRY };
        if let Ok(Err(_ended)) = tokio::time::timeout(wait, changes.changed()).await {
            return;
        }
        tokio::time::sleep(SETTLE).await;
        changes.mark_unchanged();
        let mut streams = server.nodes.memory_streams();
        for account in server.accounts.all() {
            if let Some(of_account) = account.served.memory_streams() {
                streams.insert(account.name.clone(), of_account);
            }
        }
        streams.retain(|_, of_account| !of_account.is_empty());
        let left_out = bound(&mut streams);
        if streams == written {
            continue;
        }
        server.nodes.set_memory_streams(streams.clone());
        let done = file(&server).write(streams.clone()).await;
        if done.is_ok() {
            written = streams;
        }
        let failure = match done {
            Ok(()) if left_out == 0 => String::new(),
            Ok(()) => format!("there are {left_out} more than {KEPT_MAX}, which are not kept"),
            Err(error) => error,
        };
        if !failure.is_empty() && failure != told {
            server.log.warn(format_args!(
                "Streams of the log in memory cannot all come back should it begin anew: {failure}"
            ));
        }
        told = failure;
    }
}

/// Leaves out what is more than is kept; how many that are.
fn bound(streams: &mut MemoryStreams) -> usize {
    let (mut room, mut left_out) = (KEPT_MAX, 0);
    for of_account in streams.values_mut() {
        left_out += of_account.len().saturating_sub(room);
        of_account.truncate(room);
        room -= of_account.len();
    }
    left_out
}
