//! Export of metrics and traces beside a server, in builds that have it.

use std::sync::Arc;

use nuthatch_server::server::Server;

/// Starts the export, if the options say so.
///
/// # Errors
/// It cannot start, or this build does not have it.
#[cfg(feature = "otlp")]
pub fn start(server: &Arc<Server>) -> Result<(), String> {
    nuthatch_otlp::start(server)
}

/// Refuses what this build does not have.
///
/// # Errors
/// The options ask for it.
#[cfg(not(feature = "otlp"))]
pub fn start(server: &Arc<Server>) -> Result<(), String> {
    match server.options().otlp {
        None => Ok(()),
        Some(_) => Err("this build has no OTLP: remove the block 'otlp', or build with \
                        `cargo build --release --features otlp` (release artefacts have it)"
            .to_owned()),
    }
}
