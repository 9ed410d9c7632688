//! Where the web console is, and whether.

use super::super::*;
use super::{command, fails};

/// `host:port`, and whether it is there by default, changes nothing, and is warned of.
fn console(invocation: Invocation, conf: &str, line: &str) -> Option<(String, bool, bool, bool)> {
    let options = match command(invocation, conf, &format!("-c t.conf {line}")).unwrap() {
        Command::Serve(options) => *options,
        other => panic!("{other:?}"),
    };
    let exposed = options.console_exposure().is_some();
    let ConsoleOptions { enabled, host, port, by_default, read_only, .. } = options.console;
    enabled.then(|| (format!("{host}:{port}"), by_default, read_only, exposed))
}

#[test]
fn where_the_console_is() {
    use Invocation::{NatsServer, Nuthatch};
    let at = |address: &str| Some((address.to_owned(), false, false, false));
    let default = Some(("127.0.0.1:8280".to_owned(), true, false, false));
    assert_eq!(console(Nuthatch, "debug: false", ""), default);
    assert_eq!(console(NatsServer, "debug: false", ""), None);
    assert_eq!(console(Nuthatch, "debug: false", "--console off"), None);
    assert_eq!(console(Nuthatch, "console { enabled: false }", ""), None);
    assert_eq!(console(Nuthatch, "console { enabled: false, listen: 9000 }", ""), None);
    assert_eq!(console(NatsServer, "console { listen: 9000 }", ""), at("127.0.0.1:9000"));
    assert_eq!(console(NatsServer, "console { enabled: true }", ""), at("127.0.0.1:8280"));
    assert_eq!(console(Nuthatch, "console { listen: 9000 }", "--console :-1"), at("127.0.0.1:0"));
    assert_eq!(console(Nuthatch, "console { listen: 9000 }", "--console off"), None);
    let read_only = Some(("127.0.0.1:8280".to_owned(), true, true, false));
    assert_eq!(console(Nuthatch, "console { read_only: true }", ""), read_only);
    assert_eq!(console(Nuthatch, "debug: false", "--console-read-only"), read_only);
    let exposed = Some(("0.0.0.0:8280".to_owned(), false, false, true));
    assert_eq!(console(Nuthatch, "debug: false", "--console 0.0.0.0:8280"), exposed);
}

#[test]
fn what_is_wrong_with_a_console() {
    let wrong = command(Invocation::Nuthatch, "", "--console nowhere").unwrap_err().to_string();
    assert!(wrong.contains("host:port or off"), "{wrong}");
    fails(
        "console { listn: 9 }",
        "t.conf:1:11: unknown field \"listn\" in 'console': did you mean 'listen'?",
    );
}

#[test]
fn names_of_a_console() {
    let conf = "console { hosts: [console.example, other.example] }";
    let options = super::options(conf, "");
    assert_eq!(options.console.hosts, ["console.example", "other.example"]);
}

#[test]
fn no_console_opens_a_server_without_users_to_the_network() {
    let opens = |conf: &str, line: &str| super::options(conf, line).console_opens_up().is_some();
    let users = "authorization { user: ada, password: birds }";
    let guest = "accounts { A { users: [{ user: ada, password: birds }] } }\nno_auth_user: ada";
    for address in ["0.0.0.0:8280", "[::]:8280", "10.0.0.7:8280", "workshop:8280"] {
        let line = format!("--console {address}");
        assert!(opens("", &line), "{address}");
        assert!(opens(guest, &line), "{address} with no_auth_user");
        assert!(!opens(users, &line), "{address} with users");
        assert!(!opens("", &format!("{line} --console-read-only")), "{address} read-only");
    }
    for address in ["127.0.0.1:8280", "[::1]:8280", "localhost:8280", ":9000", "off"] {
        assert!(!opens("", &format!("--console {address}")), "{address}");
    }
    let why = super::options("", "--console 0.0.0.0:8280").console_opens_up().unwrap();
    assert!(why.contains("configure users") && why.contains("--console-read-only"), "{why}");
}
