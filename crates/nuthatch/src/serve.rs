//! `nuthatch serve`, and the same when the binary is started through a link named `nats-server`.
//!
//! The arguments follow Go's flag rules, so they come here as they were typed.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use nuthatch_server::Services;
use nuthatch_server::options::{Command, Invocation, Options};

/// The name under which the whole command line belongs to the server.
const SERVER_NAME: &str = "nats-server";

/// The server's arguments, when the command line asks for the server.
pub fn arguments(mut argv: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = argv.next()?;
    if Path::new(&program).file_name().is_some_and(|name| name == SERVER_NAME) {
        return Some(argv.collect());
    }
    (argv.next()? == "serve").then(|| argv.collect())
}

/// Runs the server until it is told to stop.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args: Vec<String> =
        args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let program = std::env::args_os().next();
    let is_link = program
        .as_ref()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name == SERVER_NAME);
    let invocation = if is_link { Invocation::NatsServer } else { Invocation::Nuthatch };
    let services = Services {
        jetstream: nuthatch_jetstream::start,
        console: crate::console::start,
        telemetry: crate::telemetry::start,
        commit: env!("NUTHATCH_COMMIT"),
    };
    nuthatch_server::run(invocation, &args, services)
}

/// The text of `nuthatch serve --help`.
pub fn help() -> String {
    match Options::load(Invocation::Nuthatch, &["--help".to_owned()]) {
        Ok(Command::Help(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argv: &[&str], expected: Option<&[&str]>) {
        let found = arguments(argv.iter().map(OsString::from));
        let expected: Option<Vec<OsString>> =
            expected.map(|args| args.iter().map(OsString::from).collect());
        assert_eq!(found, expected, "{argv:?}");
    }

    #[test]
    fn who_gets_the_arguments() {
        check(&["/usr/bin/nats-server", "-p", "-1", "--js"], Some(&["-p", "-1", "--js"]));
        check(&["nats-server"], Some(&[]));
        check(&["./nuthatch", "serve", "-sd=x", "--help"], Some(&["-sd=x", "--help"]));
        check(&["nuthatch", "pub", "serve"], None);
        check(&["nuthatch"], None);
        check(&[], None);
    }
}
