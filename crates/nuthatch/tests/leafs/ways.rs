//! The ways between servers, with a nats-server at one end: compressed, over websockets.

use super::{Maker, eventually, free_port, next, publish, until_heard};
use crate::support::{Server, TempDir};
use nuthatch_client::Client;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// One side of a connection: what its configuration says.
#[derive(Clone, Copy)]
struct Way {
    hub: &'static str,
    scheme: &'static str,
    remote: &'static str,
    /// Both sides say that S2 is used.
    packed: bool,
}

const WAYS: &[Way] = &[
    Way {
        hub: "leafnodes { PORT, compression: s2_fast }",
        scheme: "nats-leaf",
        remote: "compression: s2_best",
        packed: true,
    },
    Way {
        hub: "leafnodes { PORT, compression: accept }",
        scheme: "nats-leaf",
        remote: "compression: s2_better",
        packed: true,
    },
    // Every round trip is long enough.
    Way {
        hub: "leafnodes { PORT, compression: { mode: s2_auto, rtt_thresholds: ['0s', '1ns', '10s'] } }",
        scheme: "nats-leaf",
        remote: "compression: s2_auto",
        packed: true,
    },
    Way {
        hub: "leafnodes { PORT, compression: off }",
        scheme: "nats-leaf",
        remote: "compression: s2_auto",
        packed: false,
    },
    Way {
        hub: "leafnodes { port: -1, compression: s2_fast }, websocket { PORT, no_tls: true }",
        scheme: "ws",
        remote: "compression: s2_fast",
        packed: true,
    },
    Way {
        hub: "leafnodes { port: -1, compression: s2_fast }, websocket { PORT, no_tls: true, compression: true }",
        scheme: "ws",
        remote: "compression: s2_fast, ws_compress: true",
        packed: false,
    },
    Way {
        hub: "leafnodes { port: -1 }, websocket { PORT, no_tls: true, compression: true }",
        scheme: "ws",
        remote: "ws_no_masking: true, ws_compress: true",
        packed: false,
    },
];

/// Messages of every size, most of them compressible, some not, in both directions.
fn cross(hub: &Server, leaf: &Server) {
    for (from, to) in [(hub, leaf), (leaf, hub)] {
        let (mut from, mut to): (Client, Client) = (from.connect(), to.connect());
        to.subscribe("crossing", "").expect("subscribe");
        until_heard(&mut from, &mut to, "crossing");
        for size in [0, 1, 100, 70_000, 1_000_000] {
            for factor in [1_u64, 2_654_435_761] {
                let body: Vec<u8> = (0..size as u64)
                    .map(|n| (n.wrapping_mul(n).wrapping_mul(factor) >> 7) as u8)
                    .collect();
                publish(&mut from, "crossing", "", &body);
                let came = eventually("it has crossed", || next(&mut to));
                assert!(came.payload == body, "{size} bytes");
            }
        }
    }
}

/// What the one connection of a server is compressed with, as `/leafz` says.
fn compression(server: &Server) -> String {
    let host = server.monitor_url().trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&host).expect("monitoring answers");
    write!(socket, "GET /leafz HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("a request");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an answer");
    let body = &text[text.find("\r\n\r\n").expect("a body")..];
    let leafz: Value = serde_json::from_str(body).expect("JSON");
    leafz["leafs"][0]["compression"].as_str().unwrap_or_default().to_owned()
}

fn all(hub: Maker, leaf: Maker) {
    for (number, way) in WAYS.iter().enumerate() {
        let (Some(hub_program), Some(leaf_program)) = (hub.program(), leaf.program()) else {
            return;
        };
        let name = format!("ways-{hub:?}-{leaf:?}-{number}");
        let dirs = [TempDir::new(&format!("{name}-hub")), TempDir::new(&format!("{name}-leaf"))];
        let start = |program: &Option<std::path::PathBuf>, dir: &TempDir, config: String| {
            let file = dir.path().join("server.conf");
            std::fs::write(&file, config).expect("configuration");
            let flags = ["-m", "-1", "-c", file.to_str().expect("text")];
            Server::start_program(program.as_deref(), &dir.path().join("store"), &flags)
        };
        let port = free_port();
        let of_hub = way.hub.replace("PORT", &format!("host: '127.0.0.1', port: {port}"));
        let hub = start(&hub_program, &dirs[0], format!("server_name: hub, {of_hub}"));
        let remote = format!("url: '{}://127.0.0.1:{port}', {}", way.scheme, way.remote);
        let config = format!(
            "server_name: leaf, leafnodes {{ reconnect: '200ms', remotes: [ {{ {remote} }} ] }}"
        );
        let leaf = start(&leaf_program, &dirs[1], config);
        println!("{} and {}", way.hub, way.remote);
        cross(&hub, &leaf);
        for server in [&hub, &leaf] {
            let mode = compression(server);
            assert_eq!(
                mode.starts_with("s2_"),
                way.packed,
                "{} and {}: {mode}",
                way.hub,
                way.remote
            );
        }
    }
}

#[test]
fn a_nats_server_is_the_hub() {
    all(Maker::Reference, Maker::Ours);
}

#[test]
fn a_nats_server_is_the_leaf() {
    all(Maker::Ours, Maker::Reference);
}
