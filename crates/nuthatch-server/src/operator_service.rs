//! Operator mode at work: accounts are read, put in force as a reload does, and changed by requests
//! in the system account.

use crate::operator::StoreError;
use crate::options::Options;
use crate::server::Server;
use std::sync::Arc;

mod enforce;
mod fetching;
mod http;
mod requests;

/// Reads the accounts, puts them in force, and sees to them from then on. Nothing outside of
/// operator mode.
///
/// # Errors
/// The directory of the accounts cannot be used, or the server that has them not be asked.
pub fn start(server: &Arc<Server>) -> Result<(), StoreError> {
    let Some(operator) = server.operator().cloned() else { return Ok(()) };
    for key in &operator.trust.signers {
        server.log.info(format_args!("Trusted operator key: {key}"));
    }
    let options = server.options();
    read(server, &options)?;
    apply(server);
    server.log.info(format_args!("Accounts of operators: {}", operator.accounts.load().len()));
    requests::install(server, &operator);
    if let Some(mode) = &options.operator {
        fetching::start(server, &operator, mode)?;
    }
    if let Some(runtime) = server.runtime() {
        runtime.spawn(enforce::at_deadlines(Arc::downgrade(server), operator));
    }
    Ok(())
}

/// Reads the accounts anew, as these options say; nothing is in force yet.
///
/// # Errors
/// The directory of the accounts cannot be used; then they are as before.
pub(crate) fn read(server: &Server, options: &Options) -> Result<(), StoreError> {
    let Some(operator) = server.operator() else { return Ok(()) };
    let preload = options.operator.as_ref().map(|mode| &mode.preload);
    for problem in operator.store.load(preload.into_iter().flatten())? {
        server.log.error(format_args!("{problem}"));
    }
    Ok(())
}

/// Puts the accounts in force that were read.
pub(crate) fn apply(server: &Arc<Server>) {
    if let Some(operator) = server.operator() {
        enforce::apply(server, operator);
    }
}
