//! Clients of the core protocol.

use crate::rig::{Rig, scaled};
use crate::support::TIMEOUT;
use crate::wire::Raw;
use crate::{Attack, Outcome};
use std::time::Duration;

/// Subscriptions take about this much each, in any server.
const SUBSCRIPTION_BYTES: u64 = 600;
/// What waits for a client that does not read (`max_pending`), and its way there.
const PENDING_BYTES: u64 = 128 << 20;

pub const ATTACKS: &[Attack] = &[
    Attack::new("subscriptions-million", a_million_subscriptions)
        .costs(million() as u64 * SUBSCRIPTION_BYTES),
    Attack::new("reader-that-does-not-read", slow_reader).costs(PENDING_BYTES),
    Attack::new("connections-churn", churn),
];

const fn million() -> usize {
    scaled(1_000_000, 100_000)
}

/// All of them, or a refusal; either way they are gone with the connection.
fn a_million_subscriptions(rig: &Rig) -> Outcome {
    let mut raw = Raw::client(&rig.address(), "attacker");
    let mut lines = Vec::new();
    for sid in 0..million() {
        lines.extend_from_slice(format!("SUB many.{sid}.of.them {sid}\r\n").as_bytes());
        if lines.len() > 256 << 10 {
            if !raw.send(&lines) {
                return Ok(format!("refused after {sid}"));
            }
            lines.clear();
        }
    }
    let told = raw.exchange(&[&lines[..], b"PING\r\n"].concat(), b"PONG\r\n", TIMEOUT);
    if told.ends_with(b"PONG\r\n") {
        return Ok("taken".to_owned());
    }
    let told = String::from_utf8_lossy(&told).into_owned();
    let error = told.lines().find(|line| line.starts_with("-ERR"));
    error.map(str::to_owned).ok_or_else(|| "no answer".to_owned())
}

/// Listens to what it sends itself, and reads nothing.
fn slow_reader(rig: &Rig) -> Outcome {
    let mut silent = Raw::client(&rig.address(), "attacker");
    silent.send(b"SUB flood 1\r\n");
    let mut raw = Raw::client(&rig.address(), "attacker");
    let message = [b"PUB flood 100000\r\n".as_slice(), &[b'x'; 100_000], b"\r\n"].concat();
    for _ in 0..scaled(5000, 1500) {
        raw.send(&message);
    }
    let told = raw.exchange(b"PING\r\n", b"PONG\r\n", TIMEOUT);
    if !told.ends_with(b"PONG\r\n") {
        return Err("who sends is not answered".to_owned());
    }
    let closed = silent.is_closed_within(Duration::from_secs(20));
    if closed { Ok("closed".to_owned()) } else { Err("it is not closed".to_owned()) }
}

/// Connections that come, say one thing, and go.
fn churn(rig: &Rig) -> Outcome {
    let address = rig.address();
    let count = scaled(5000, 1000);
    for n in 0..count {
        let mut raw = Raw::open(&address);
        match n % 4 {
            0 => {}
            1 => drop(raw.send(b"CONNECT {\"user\":\"nobody\",\"pass\":\"nothing\"}\r\nPING\r\n")),
            2 => drop(raw.send(b"PUB a 1000000\r\n")),
            _ => drop(raw.send(
                b"CONNECT {\"user\":\"attacker\",\"pass\":\"attacker\"}\r\nPUB a 10\r\nhalf",
            )),
        }
    }
    Ok(format!("{count} connections"))
}
