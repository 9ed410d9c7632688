//! Peers that speak as leaf nodes: loops, floods of interest, and what they may not send.

use crate::rig::{Rig, scaled};
use crate::support::TIMEOUT;
use crate::wire::Raw;
use crate::{Attack, Outcome};
use std::time::Duration;

/// Subscriptions take about this much each, in any server.
const SUBSCRIPTION_BYTES: u64 = 1000;

pub const ATTACKS: &[Attack] = &[
    Attack::new("leaf-loop", loops),
    Attack::new("leaf-interest", interest).costs(flood() as u64 * SUBSCRIPTION_BYTES),
    Attack::new("leaf-stranger", strangers),
];

const fn flood() -> usize {
    scaled(200_000, 40_000)
}

fn address(rig: &Rig) -> String {
    format!("127.0.0.1:{}", rig.leaf_port)
}

/// A server that says it is called so and has joined; the subject that finds loops.
fn join(rig: &Rig, name: &str) -> Result<(Raw, String), String> {
    let mut raw = Raw::open(&address(rig));
    raw.read_until(b"\r\n", TIMEOUT);
    let connect = format!(
        "CONNECT {{\"user\":\"attacker\",\"pass\":\"attacker\",\"name\":\"{name}\",\"server_id\":\"{name}\",\
         \"headers\":true,\"protocol\":1}}\r\nPING\r\n"
    );
    let told = raw.exchange(connect.as_bytes(), b"PONG\r\n", TIMEOUT);
    let told = String::from_utf8_lossy(&told).into_owned();
    let mut lines = told.lines().filter_map(|line| line.strip_prefix("LS+ "));
    let subject = lines.find(|subject| subject.starts_with("$LDS."));
    subject.map(|subject| (raw, subject.to_owned())).ok_or(told)
}

/// What the server says of itself comes back to it: it ends that connection, however often.
fn loops(rig: &Rig) -> Outcome {
    for round in 0..10 {
        let (mut raw, subject) = join(rig, &format!("LOOP{round}"))?;
        raw.send(format!("LS+ {subject}\r\nPING\r\n").as_bytes());
        let (told, closed) = raw.read_until(b"", Duration::from_secs(5));
        let told = String::from_utf8_lossy(&told).into_owned();
        if !closed && !told.contains("Loop") {
            return Err(format!("round {round}: no loop was found: {told}"));
        }
    }
    Ok("closed".to_owned())
}

fn interest(rig: &Rig) -> Outcome {
    let (mut raw, _) = join(rig, "FLOOD")?;
    let mut lines = Vec::new();
    for n in 0..flood() {
        lines.extend_from_slice(format!("LS+ flood.{n}.of.interest\r\n").as_bytes());
    }
    for piece in lines.chunks(256 << 10) {
        if !raw.send(piece) {
            return Ok("refused".to_owned());
        }
    }
    let told = raw.exchange(b"PING\r\n", b"PONG\r\n", TIMEOUT);
    if told.ends_with(b"PONG\r\n") { Ok("taken".to_owned()) } else { Err("no answer".to_owned()) }
}

/// Whoever is not let in hears nothing of what is listened to.
fn strangers(rig: &Rig) -> Outcome {
    let words: [&[u8]; 5] = [
        b"CONNECT {\"name\":\"x\"}\r\nPING\r\n",
        b"CONNECT {\"user\":\"attacker\",\"pass\":\"wrong\",\"name\":\"x\"}\r\nPING\r\n",
        b"LS+ >\r\nLMSG tick.x 2\r\nhi\r\nPING\r\n",
        b"INFO {\"connect_info\":true,\"server_id\":\"x\"}\r\nLS+ >\r\nPING\r\n",
        b"CONNECT {\"user\":\"attacker\",\"pass\":\"attacker\",\"remote_account\":\"CANARY\",\"name\":\"y\"}\r\nLS+ >\r\nPING\r\n",
    ];
    for word in words {
        let mut raw = Raw::open(&address(rig));
        raw.read_until(b"\r\n", TIMEOUT);
        raw.send(word);
        let (told, _) = raw.read_until(b"", Duration::from_secs(1));
        let told = String::from_utf8_lossy(&told).into_owned();
        if told.contains("LMSG tick") || told.contains("private") {
            return Err(format!("{}: {told}", word.escape_ascii()));
        }
    }
    Ok("told nothing".to_owned())
}
