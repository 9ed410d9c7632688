//! Pages of monitoring: large ones, many at a time, and readers who do not read.

use crate::rig::{Rig, call, scaled};
use crate::support::TIMEOUT;
use crate::wire::{Raw, get};
use crate::{Attack, Outcome};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// Connections that the pages tell of.
const CONNECTIONS: usize = 50;
/// Readers who do not read.
const SILENT: usize = 128;
/// Subscriptions take about this much each, in any server.
const SUBSCRIPTION_BYTES: u64 = 600;
/// All pages under way together, beside the subscriptions that they tell of.
const PAGES_BYTES: u64 = 64 << 20;
const BUDGET_BYTES: u64 =
    PAGES_BYTES + CONNECTIONS as u64 * subscriptions() as u64 * SUBSCRIPTION_BYTES;

pub const ATTACKS: &[Attack] = &[
    Attack::new("connz-subs-8", |rig| with_crowd(rig, eight_requests)).costs(BUDGET_BYTES),
    Attack::new("connz-subs-http-30", |rig| with_crowd(rig, thirty_pages)).costs(BUDGET_BYTES),
    Attack::new("http-silent-128", |rig| with_crowd(rig, silent_readers)).costs(BUDGET_BYTES),
];

/// Subscriptions of each connection.
const fn subscriptions() -> usize {
    scaled(4000, 400)
}

/// Runs it beside connections with many subscriptions.
fn with_crowd(rig: &Rig, attack: fn(&Rig) -> Outcome) -> Outcome {
    let mut crowd = Vec::new();
    for n in 0..CONNECTIONS {
        let mut raw = Raw::client(&rig.address(), "attacker");
        let mut lines = Vec::new();
        for sid in 0..subscriptions() {
            lines.extend_from_slice(format!("SUB crowd.{n}.subject.{sid} {sid}\r\n").as_bytes());
        }
        lines.extend_from_slice(b"PING\r\n");
        let told = raw.exchange(&lines, b"PONG\r\n", TIMEOUT);
        if !told.ends_with(b"PONG\r\n") {
            return Err(format!("subscribing: {}", told.escape_ascii()));
        }
        crowd.push(raw);
    }
    attack(rig)
}

fn eight_requests(rig: &Rig) -> Outcome {
    let body = json!({"subscriptions": true, "subscriptions_detail": true, "limit": 10_000});
    let answers: Vec<Result<_, String>> = thread::scope(|scope| {
        let ask = |_| {
            let mut client = rig.client("attacker");
            let body = &body;
            scope.spawn(move || call(&mut client, "$SYS.REQ.ACCOUNT.PING.CONNZ", body))
        };
        let asked: Vec<_> = (0..8).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let count = answers.into_iter().collect::<Result<Vec<_>, _>>()?.len();
    Ok(format!("{count} answers"))
}

fn thirty_pages(rig: &Rig) -> Outcome {
    let address = rig.http();
    let answers: Vec<Result<(u16, Vec<u8>), String>> = thread::scope(|scope| {
        let ask = |_| scope.spawn(|| get(&address, "/connz?subs=detail&limit=10000", TIMEOUT));
        let asked: Vec<_> = (0..30).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let answers: Vec<(u16, Vec<u8>)> = answers.into_iter().collect::<Result<_, _>>()?;
    let (good, later): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 200);
    let odd = later.iter().find(|(status, _)| ![429, 503].contains(status));
    match odd {
        Some((status, _)) => Err(format!("status {status}")),
        None => Ok(format!("{} pages, {} told to come later", good.len(), later.len())),
    }
}

/// Health is told, whoever else does not read.
fn silent_readers(rig: &Rig) -> Outcome {
    let address = rig.http();
    let mut silent: Vec<Raw> = (0..SILENT).map(|_| Raw::open(&address)).collect();
    let request = format!("GET /connz?subs=detail&limit=10000 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for raw in &mut silent {
        raw.send(request.repeat(4).as_bytes());
    }
    thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        for page in ["/healthz", "/metrics"] {
            if page == "/metrics" && rig.who() == crate::rig::Who::Theirs {
                continue;
            }
            match get(&address, page, Duration::from_secs(20))? {
                (200, _) => {}
                (status, _) => return Err(format!("{page}: {status}")),
            }
        }
    }
    Ok("healthz answers".to_owned())
}
