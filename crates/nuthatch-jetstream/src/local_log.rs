//! The log of just this node of a cluster: what it had as a server that was alone (its default log then), and streams of one
//! replica whose placement only some nodes match. Streams are on this node only until they are moved, or are to have several
//! replicas.

use crate::known_logs::{has_log, is_known};
use crate::registry::{DEFAULT_LOG, LOCAL_LOG};
use nuthatch_server::options::Options;
use nuthatch_server::private_files::OUR_DIRECTORY;
use std::path::PathBuf;

/// The directory of the log; `None`: there is none, or the server is alone.
pub(super) fn local_log_dir(options: &Options) -> Option<PathBuf> {
    let is_node = options.cluster.is_some() && options.jetstream.enabled;
    let dir = dir_of(options);
    // One that was there and is not is missed, as any log of the store.
    let is_there = is_node && (has_log(&dir) || is_known(&options.jetstream.store_dir, LOCAL_LOG));
    is_there.then_some(dir)
}

/// Where it is: a server that is alone finds it as its default log.
pub(super) fn dir_of(options: &Options) -> PathBuf {
    options.jetstream.store_dir.join(OUR_DIRECTORY).join(DEFAULT_LOG)
}

/// Whether the configuration has no other log of this name.
///
/// # Errors
/// A sentence: it has.
pub(super) fn check_name(options: &Options) -> Result<(), String> {
    let is_named = options.jetstream.logs.iter().any(|log| log.name == LOCAL_LOG);
    if !is_named || local_log_dir(options).is_none() {
        return Ok(());
    }
    Err(format!(
        "jetstream.logs: this server was alone before it was a node of a cluster, and the log that it had is called \
         {LOCAL_LOG:?} now: give the log of that name another one"
    ))
}

/// What the log of the server says of it at a start; `None`: there is none.
pub(super) fn line(options: &Options) -> Option<String> {
    let dir = local_log_dir(options)?;
    Some(format!(
        "Log {LOCAL_LOG}:       streams of this node only, such as what this server had before it was a node of a cluster ({}): \
         `nats stream edit STREAM --replicas 3` brings one to all",
        dir.display()
    ))
}
