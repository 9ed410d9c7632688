//! Listeners without an address of their own.

use super::*;
use crate::options::{Command, Invocation, load_again, load_with};
use nuthatch_protocol::config::{Loader, Source};

struct Text(String);

impl Loader for Text {
    fn load(&mut self, path: &str, _from: &str) -> Result<Source, String> {
        Ok(Source { name: path.to_owned(), text: self.0.clone() })
    }
    fn env(&self, _name: &str) -> Option<String> {
        None
    }
}

fn load(invocation: Invocation, text: &str, flags: &[&str], old: Option<&Options>) -> Options {
    let args: Vec<String> = ["-c", "x"].iter().chain(flags).map(|&arg| arg.to_owned()).collect();
    let mut loader = Text(text.to_owned());
    let command = match old {
        None => load_with(invocation, &args, &mut loader),
        Some(old) => load_again(invocation, &args, &mut loader, old),
    };
    match command {
        Ok(Command::Serve(options)) => *options,
        other => panic!("{other:?}"),
    }
}

const ALL: &str = "http: 8222, websocket { port: -1, no_tls: true }, leafnodes { port: -1 }";
const USERS: &str = "authorization { user: a, password: b }";
const ANYBODY: &str = "authorization { users: [{user: a, password: b}] }, no_auth_user: a";

/// Where clients, monitoring, websockets and leaf nodes are served.
fn hosts(options: &Options) -> [&str; 4] {
    let websocket = &options.websocket.as_ref().unwrap().host;
    [&options.host, &options.monitor.host, websocket, &options.leafnodes.as_ref().unwrap().host]
}

#[test]
fn without_users_only_this_machine_is_served() {
    use Invocation::{NatsServer, Nuthatch};
    let (here, all) = ("127.0.0.1", "0.0.0.0");
    let check = |invocation, text: &str, flags: &[&str], wanted: [&str; 4], warns: Option<&str>| {
        let options = load(invocation, &format!("{ALL}, {text}"), flags, None);
        assert_eq!(hosts(&options), wanted, "{text} {flags:?}");
        let said = options.exposure();
        match warns {
            None => assert_eq!(said, None, "{text} {flags:?}"),
            Some(part) => {
                assert!(said.as_ref().is_some_and(|line| line.contains(part)), "{said:?}")
            }
        }
    };
    check(Nuthatch, "", &[], [here; 4], Some("listening on 127.0.0.1 only"));
    check(Nuthatch, USERS, &[], [all, here, all, all], None);
    check(
        Nuthatch,
        "accounts { A { users: [{user: a, password: b}] } }",
        &[],
        [all, here, all, all],
        None,
    );
    check(Nuthatch, ANYBODY, &[], [here; 4], Some("no_auth_user lets everybody in as \"a\""));
    check(Nuthatch, ANYBODY, &["-a", "0.0.0.0"], [all; 4], None);
    check(NatsServer, ANYBODY, &[], [all; 4], None);
    check(Nuthatch, "", &["-a", "0.0.0.0"], [all; 4], Some("may do everything"));
    check(Nuthatch, "net: 10.0.0.1", &[], ["10.0.0.1"; 4], Some("may do everything"));
    check(Nuthatch, "host: 127.0.0.2", &[], ["127.0.0.2"; 4], None);
    check(NatsServer, "", &[], [all; 4], Some("may do everything"));
    check(NatsServer, "host: 127.0.0.1", &[], [here, here, all, all], None);
    let leafs = "leafnodes { port: -1, authorization { user: l, password: p } }";
    let options =
        load(Nuthatch, &format!("websocket {{ port: -1, no_tls: true }}, {leafs}"), &[], None);
    assert_eq!(hosts(&options), [here, here, here, all]);
}

#[test]
fn a_reload_moves_no_listener_and_opens_none() {
    let of = |text: &str, old| load(Invocation::Nuthatch, &format!("{ALL}, {text}"), &[], old);
    let alone = of("", None);
    let with_users = of(USERS, Some(&alone));
    assert_eq!(hosts(&with_users), ["127.0.0.1"; 4]);
    assert_eq!(with_users.opens_up(&alone), None);
    let open = of(USERS, None);
    let without = of("", Some(&open));
    assert_eq!(without.host, "0.0.0.0");
    assert!(without.opens_up(&open).is_some_and(|why| why.contains("0.0.0.0")));
    let with_anybody = of(ANYBODY, Some(&open));
    assert!(with_anybody.opens_up(&open).is_some());
}

#[test]
fn a_token_file_is_a_user_and_its_token_is_made_if_there_is_none() {
    let path = std::env::temp_dir().join(format!("nuthatch-listen-token-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let text = format!("{ALL}, authorization {{ token_file: '{}' }}", path.display());
    let of = || load(Invocation::Nuthatch, &text, &[], None);
    let token = |options: &Options| options.auth.token.as_ref().unwrap().expose().to_owned();
    let (one, other) = (of(), of());
    assert_eq!(one.host, "0.0.0.0");
    assert!(token(&one).len() == 32 && token(&one) != token(&other));
    std::fs::write(&path, "of-my-own\n").unwrap();
    let given = of();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(token(&given), "of-my-own");
}
