//! Reading the configuration again.

use crate::listener;
use crate::ocsp_service;
use crate::options::{Command, Invocation, Options, ReloadPlan};
use crate::server::{Reload, Server};
use std::sync::Arc;

/// Source of the options.
pub(super) struct Source {
    pub(super) invocation: Invocation,
    pub(super) args: Vec<String>,
}

/// Reads the configuration again and says what is wrong with it, if anything.
pub(super) fn reload(server: &Arc<Server>) {
    if let Err(why) = server.reload() {
        // One problem a line.
        for problem in why.lines() {
            server.log.error(format_args!("Failed to reload server configuration: {problem}"));
        }
    }
}

impl Reload for Source {
    fn apply(&self, server: &Arc<Server>) -> Result<(), String> {
        try_reload(server, self)
    }

    fn preview(&self, server: &Server) -> Result<ReloadPlan, String> {
        Ok(read(&server.options(), self)?.1)
    }
}

/// The options as they are written now, and what differs from those in force.
fn read(old: &Options, source: &Source) -> Result<(Options, ReloadPlan), String> {
    let mut new = match old.load_again(source.invocation, &source.args) {
        Ok(Command::Serve(options)) => *options,
        Ok(_) => return Err("the arguments no longer start a server".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(file) = new.auth.token_file.as_ref().filter(|file| !file.exists()) {
        return Err(format!("the token file {} is gone", file.display()));
    }
    if let Some(why) = new.opens_up(old) {
        return Err(why);
    }
    if new.operator.is_some() {
        // They come from tokens, which are read below.
        new.accounts.clone_from(&old.accounts);
    }
    let plan = old.reload_diff(&new);
    Ok((new, plan))
}

/// Reads the configuration again and adopts what may change while running. If anything is wrong,
/// or something changed that needs a restart, nothing changes.
fn try_reload(server: &Arc<Server>, source: &Source) -> Result<(), String> {
    let (new, plan) = read(&server.options(), source)?;
    if !plan.restart.is_empty() {
        return Err(format!("config reload not supported for {}", plan.restart.join(", ")));
    }
    // Certificates may have changed although their file names have not.
    let tls = crate::tls::Loaded::read(&new).map_err(|error| error.to_string())?;
    ocsp_service::prepare(server, &tls).map_err(|error| error.to_string())?;
    crate::operator_service::read(server, &new).map_err(|error| error.to_string())?;
    server.log.reconfigure(&new.log).map_err(|error| error.to_string())?;
    for key in &plan.now {
        server.log.info(format_args!("Reloaded: {key}"));
    }
    let auth_changed =
        ["authorization", "accounts", "proxies"].iter().any(|key| plan.now.contains(key));
    let pending = new.limits.max_pending_bytes;
    let (old_auth, old) = (server.auth(), server.options());
    server.set_options(new);
    // What is known of revocations is there before new connections are checked.
    ocsp_service::restart_cache(server, &old);
    ocsp_service::restart(server, &tls);
    tls.install(&server.tls);
    for conn in server.connections.open() {
        conn.outbox().set_limit(pending);
    }
    if auth_changed {
        server.recheck(&old_auth);
    }
    for conn in server.leafs.connections.open() {
        conn.outbox().set_limit(pending);
    }
    if plan.now.contains(&"max_connections") {
        listener::close_surplus(server);
    }
    if auth_changed {
        crate::leaf::reauthenticate(server);
    }
    crate::operator_service::apply(server);
    server.log.info(format_args!("Reloaded server configuration"));
    Ok(())
}
