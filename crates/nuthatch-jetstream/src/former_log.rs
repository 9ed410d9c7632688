//! What a node of a cluster had as a server that was alone: its default log, which is a local log of the node now. Its
//! streams are on this node only until they are moved, or are to have several replicas.

use crate::known_logs::has_log;
use crate::registry::{DEFAULT_LOG, FORMER_LOG};
use nuthatch_server::options::Options;
use nuthatch_server::private_files::OUR_DIRECTORY;
use std::path::PathBuf;

/// The directory of the log; `None`: there is none, or the server is alone.
pub(super) fn former_log(options: &Options) -> Option<PathBuf> {
    let is_node = options.cluster.is_some() && options.jetstream.enabled;
    let dir = options.jetstream.store_dir.join(OUR_DIRECTORY).join(DEFAULT_LOG);
    (is_node && has_log(&dir)).then_some(dir)
}

/// Whether the configuration has no other log of this name.
///
/// # Errors
/// A sentence: it has.
pub(super) fn check_name(options: &Options) -> Result<(), String> {
    let is_named = options.jetstream.logs.iter().any(|log| log.name == FORMER_LOG);
    if !is_named || former_log(options).is_none() {
        return Ok(());
    }
    Err(format!(
        "jetstream.logs: this server was alone before it was a node of a cluster, and the log that it had is called \
         {FORMER_LOG:?} now: give the log of that name another one"
    ))
}

/// What the log of the server says of it at a start; `None`: there is none.
pub(super) fn line(options: &Options) -> Option<String> {
    let dir = former_log(options)?;
    Some(format!(
        "Log {FORMER_LOG}:       what this server had before it was a node of a cluster ({}). Its streams are on this node only: \
         `nats stream edit STREAM --replicas 3` brings one to all",
        dir.display()
    ))
}
