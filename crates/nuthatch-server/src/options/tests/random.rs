//! Nothing that a person can write makes the reading of options panic.

use super::super::tables::DOCUMENTED;
use super::{Invocation, command};

/// Values of every type, most of them wrong for most keys.
const VALUES: &[&str] = &[
    "true",
    "0",
    "-1",
    "99999999999",
    "1.5",
    "-2.5",
    "abc",
    "''",
    "'a b'",
    "'10s'",
    "'-1h'",
    "2m",
    "'9T'",
    "[]",
    "[1, a, {}]",
    "{}",
    "{ x: 1 }",
    "{ user: a }",
    "[{ user: a }, {nkey: U}]",
    "2026-01-02T03:04:05Z",
    "'::'",
    "':0'",
    "'[::1]:99999'",
    "$NIX",
    "9223372036854775807",
];

/// Where the keys of each documented table go.
const AROUND: &[&str] = &[
    "K: V",
    "resolver { K: V }",
    "resolver_tls { K: V }",
    "authorization { K: V }",
    "authorization { auth_callout: { K: V } }",
    "authorization { users: [ { user: u, K: V } ] }",
    "proxies { K: V }",
    "proxies { trusted: [ { K: V } ] }",
    "authorization { permissions: { K: V } }",
    "authorization { permissions: { publish: { K: V }, subscribe: { K: V } } }",
    "authorization { permissions: { allow_responses { K: V } } }",
    "accounts { A { K: V } }",
    "accounts { A { limits { K: V } } }",
    "accounts { A { msg_trace { K: V } } }",
    "accounts { A { exports: [ { K: V } ] } }",
    "accounts { A { exports: [ { service: s, latency: { K: V } } ] } }",
    "accounts { A { imports: [ { K: V } ] } }",
    "accounts { A { imports: [ { stream: { K: V } } ] } }",
    "accounts { A { mappings { s: { K: V } } } }",
    "accounts { A { jetstream { K: V } } }",
    "tls { K: V }",
    "tls { certs: [ { K: V } ] }",
    "ocsp { K: V }",
    "tls { ocsp_peer { K: V } }",
    "ocsp_cache { K: V }",
    "websocket { K: V }",
    "websocket { port: 1, no_tls: true, authorization { K: V } }",
    "console { K: V }",
    "otlp { K: V }",
    "cluster { port: 1, K: V }",
    "jetstream { quorum { K: V } }",
    "leafnodes { K: V }",
    "leafnodes { authorization { K: V } }",
    "leafnodes { authorization { users: [ { user: u, K: V } ] } }",
    "leafnodes { compression { K: V } }",
    "leafnodes { remotes: [ { url: 'nats://h', K: V } ] }",
    "leafnodes { remotes: [ { url: 'nats://h', proxy { K: V } } ] }",
    "leafnodes { remotes: [ { url: 'nats://h', proxy { url: 'https://p', tls { K: V } } } ] }",
    "leafnodes { remotes: [ { url: 'nats://h', tls { K: V } } ] }",
    "jetstream { K: V }",
    "jetstream { limits { K: V } }",
    "jetstream { limits { batch { K: V } } }",
    "jetstream { logs { a { K: V } } }",
    "jetstream { tier { K: V } }",
    "jetstream { cache { K: V } }",
];

#[test]
fn every_key_takes_every_value_without_panic() {
    assert_eq!(DOCUMENTED.len(), AROUND.len());
    for ((_, block), around) in DOCUMENTED.iter().zip(AROUND) {
        for name in block.keys.iter().flat_map(|key| key.names) {
            for value in VALUES {
                let conf = around.replace('K', name).replace('V', value);
                let outcome = command(Invocation::NatsServer, &conf, "-c t.conf -t");
                let text = outcome.err().map(|e| e.to_string()).unwrap_or_default();
                let unknown = format!("unknown field \"{name}\"");
                assert!(!text.contains(&unknown), "{conf:?}: {text}");
            }
        }
    }
}

#[test]
fn no_command_line_panics() {
    const WORDS: &[&str] = &[
        "-",
        "--",
        "---",
        "-p",
        "-1",
        "--port=",
        "-=",
        "-js",
        "-js=",
        "=",
        "-tls",
        "-tlscert",
        "x",
        "-sl",
        "reload=",
        "reload=1",
        "-t",
        "-c",
        "t.conf",
        "-DV=0",
        "-T=false",
        "--max_mem",
        "1G",
        "-a=",
        "-é",
        "-m",
        "70000",
        "--sync_interval",
        "-sd",
        "-routes",
        "-v=false",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let mut line = String::new();
        for _ in 0..(state % 6) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            line.push_str(WORDS[(state % WORDS.len() as u64) as usize]);
            line.push(' ');
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = command(Invocation::Nuthatch, "port: 1", &line);
    }
}
