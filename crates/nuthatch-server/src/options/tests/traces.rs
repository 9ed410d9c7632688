//! `msg_trace` and `allow_trace`.

use super::{fails_somewhere, options};
use crate::options::MsgTrace;

fn said(account: &str) -> Option<MsgTrace> {
    let options = options(&format!("accounts {{ A {{ {account} }} }}"), "");
    options.accounts[0].msg_trace.clone()
}

#[test]
fn where_messages_with_a_trace_context_are_traced() {
    let to = |dest: &str, sampling| Some(MsgTrace { dest: dest.to_owned(), sampling });
    assert_eq!(said(""), None);
    assert_eq!(said("msg_trace: a.b"), to("a.b", 100));
    assert_eq!(said("trace_dest: a.b"), to("a.b", 100));
    assert_eq!(said("msg_trace: { dest: a }"), to("a", 100));
    assert_eq!(said("msg_trace: { dest: a, sampling: 25 }"), to("a", 25));
    assert_eq!(said("msg_trace: { dest: a, sampling: '1%' }"), to("a", 1));
    assert_eq!(said("msg_trace: { sampling: 10 }"), None, "with a warning");
}

#[test]
fn traces_that_cannot_be() {
    const SHARE: &str =
        "'sampling' is no share of messages: it needs to be 1 to 100, such as \"25%\"";
    const DEST: &str = "'msg_trace' is wrong: Trace destination \"a.*\" is not valid";
    for (account, text) in [
        ("msg_trace: 'a.*'", DEST),
        ("msg_trace: { dest: a, sampling: 0 }", SHARE),
        ("msg_trace: { dest: a, sampling: 101 }", SHARE),
        ("msg_trace: { dest: a, sampling: x }", SHARE),
        (
            "msg_trace: { dest: 3 }",
            "'dest' must be a string, found an integer: put it in quotes, \"3\"",
        ),
        (
            "exports: [{ stream: a, allow_trace: false }]",
            "'stream' takes no 'allow_trace': whoever imports the stream says that",
        ),
        (
            "imports: [{ service: { account: A, subject: a }, allow_trace: true }]",
            "'service' takes no 'allow_trace': whoever exports the service says that",
        ),
    ] {
        fails_somewhere(&format!("accounts {{ A {{ {account} }} }}"), text);
    }
}

#[test]
fn services_and_imports_of_streams_allow_traces() {
    let options = options(
        "accounts {
           A { exports: [{ service: s, allow_trace: true }, { service: t }, { stream: u }] }
           B { imports: [{ stream: { account: A, subject: u }, allow_trace: true }] }
         }",
        "",
    );
    let services = options.accounts[0].exports.iter().filter_map(|export| export.service.as_ref());
    assert_eq!(services.map(|service| service.allow_trace).collect::<Vec<_>>(), [true, false]);
    assert!(options.accounts[1].imports[0].allow_trace);
}
