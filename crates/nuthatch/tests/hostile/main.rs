//! A hostile campaign against the real binary: attacks that one client of one account can make, one
//! after another, while a canary in another account measures how late its messages are and the
//! server's memory is watched.
//!
//! Asserted are answers, memory and that the server lives and has not panicked; delays are printed.
//! `NUTHATCH_HOSTILE_ONLY=name,name` runs some attacks, `NUTHATCH_HOSTILE_PEER=1` runs each against
//! nats-server too (`tests/peers.sh` builds it, `NATS_SERVER` names another) and prints both, judging
//! ours alone. Sizes are the full ones in a release build and smaller in a debug build.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod canary;
mod commands;
mod core;
mod leafs;
mod login;
mod memory;
mod monitoring;
#[path = "../support/mutate.rs"]
mod mutate;
mod restores;
mod rig;
mod streams;
#[path = "../../../nuthatch-server/tests/support/tokens.rs"]
mod tokens;
mod traffic;
mod websocket;
mod wire;

use canary::{Canary, Delays};
use memory::Watch;
use rig::{Rig, Who};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// What an attack found out: a short account of the answers, or what is wrong with them.
pub type Outcome = Result<String, String>;

/// Bytes that a server may have beyond an attack's budget while it is attacked, and beyond what it
/// had before once it is over.
pub const MEMORY_SLACK_BYTES: u64 = 64 << 20;

/// How long after an attack its memory may be held.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Deliveries that are measured before an attack begins: routes and streams are warm then.
const WARM_UP: Duration = Duration::from_millis(300);

/// How long is measured beyond an attack's end: what it left behind may still be worked on.
const AFTERMATH: Duration = Duration::from_millis(500);

/// One attack.
pub struct Attack {
    /// Its name, in the table and for `NUTHATCH_HOSTILE_ONLY`.
    pub name: &'static str,
    /// What it does to the server.
    pub run: fn(&Rig) -> Outcome,
    /// Bytes that it may cost while it is under way, by the server's own limits.
    pub budget_bytes: u64,
    /// Whether it makes sense against nats-server.
    pub is_for_peer: bool,
}

impl Attack {
    /// An attack that may cost nothing, on either server.
    pub const fn new(name: &'static str, run: fn(&Rig) -> Outcome) -> Self {
        Self { name, run, budget_bytes: 0, is_for_peer: true }
    }

    /// One that holds memory within the server's limits.
    pub const fn costs(self, budget_bytes: u64) -> Self {
        Self { budget_bytes, ..self }
    }

    /// One that concerns what only Nuthatch has.
    pub const fn ours_only(self) -> Self {
        Self { is_for_peer: false, ..self }
    }
}

fn attacks() -> Vec<Attack> {
    let groups = [
        streams::ATTACKS,
        restores::ATTACKS,
        websocket::ATTACKS,
        monitoring::ATTACKS,
        core::ATTACKS,
        access::ATTACKS,
        login::ATTACKS,
        leafs::ATTACKS,
        traffic::ATTACKS,
        commands::ATTACKS,
    ];
    let only = std::env::var("NUTHATCH_HOSTILE_ONLY").unwrap_or_default();
    let asked = |name: &str| only.split(',').any(|part| !part.is_empty() && name.contains(part));
    let mut all: Vec<Attack> =
        groups.into_iter().flat_map(|group| group.iter().map(copy)).collect();
    all.retain(|attack| only.is_empty() || asked(attack.name));
    all
}

fn copy(attack: &Attack) -> Attack {
    Attack { ..*attack }
}

fn with_peer() -> bool {
    std::env::var_os("NUTHATCH_HOSTILE_PEER").is_some()
}

/// What an attack did to one server.
struct Measured {
    outcome: Outcome,
    delays: Delays,
    peak_bytes: u64,
    left_bytes: u64,
    took: Duration,
}

impl Measured {
    /// What is wrong, if anything is.
    fn fault(&self, attack: &Attack) -> Option<String> {
        if let Err(why) = &self.outcome {
            return Some(why.clone());
        }
        if self.delays.lost > 0 {
            return Some(format!("{} messages of the canary never came", self.delays.lost));
        }
        let allowed = attack.budget_bytes + MEMORY_SLACK_BYTES;
        if self.peak_bytes > allowed {
            return Some(format!("{} MiB, allowed are {}", self.peak_bytes >> 20, allowed >> 20));
        }
        (self.left_bytes > MEMORY_SLACK_BYTES)
            .then(|| format!("{} MiB are held {RELEASE_TIMEOUT:?} later", self.left_bytes >> 20))
    }

    fn row(&self) -> String {
        let [core, stream] = [self.delays.core, self.delays.stream].map(|worst| worst.as_millis());
        let [peak, left] = [self.peak_bytes, self.left_bytes].map(|bytes| bytes >> 20);
        format!("{core:>7} {stream:>7} {peak:>6} {left:>5} {:>6.1}", self.took.as_secs_f64())
    }
}

fn measure(rig: &mut Rig, attack: &Attack) -> Measured {
    let canary = Canary::start(rig);
    std::thread::sleep(WARM_UP);
    canary.begin();
    let before_bytes = memory::resident(rig.pid());
    let watch = Watch::start(rig.pid());
    let started = Instant::now();
    let outcome = (attack.run)(rig);
    let took = started.elapsed();
    std::thread::sleep(AFTERMATH);
    let delays = canary.end();
    let peak_bytes = watch.stop().saturating_sub(before_bytes);
    let left_bytes = memory::settled(rig, before_bytes, RELEASE_TIMEOUT);
    let outcome = if rig.is_alive() { outcome } else { Err("the server is gone".to_owned()) };
    let outcome = outcome.and_then(|told| rig.check_log().map(|()| told));
    Measured { outcome, delays, peak_bytes, left_bytes, took }
}

/// Prints past the test harness, which keeps what passing tests print to itself.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn head() {
    say(
        "worst delay of a core message and of a stream's ack in ms, memory at its peak and 10 s after",
    );
    say("the end beyond that of an idle server in MiB, duration in s");
    let columns =
        format!("{:>7} {:>7} {:>6} {:>5} {:>6}", "core", "stream", "peak", "left", "took");
    let peer = if with_peer() { format!(" | {columns}") } else { String::new() };
    say(&format!("{:<28} {columns}{peer}", "attack"));
}

/// Runs one attack on the servers there are; what is wrong with ours.
fn run(attack: &Attack, ours: &mut Rig, theirs: Option<&mut Rig>) -> Option<String> {
    let measured = measure(ours, attack);
    let fault = measured.fault(attack);
    let mut line = format!("{:<28} {}", attack.name, measured.row());
    let mut told = vec![fault.clone().unwrap_or_else(|| measured.outcome.unwrap_or_default())];
    if let Some(theirs) = theirs.filter(|_| attack.is_for_peer) {
        let measured = measure(theirs, attack);
        line += &format!(" | {}", measured.row());
        told.push(measured.outcome.unwrap_or_else(|why| format!("WRONG: {why}")));
    }
    say(&format!("{line}  {}", told.join(" | ")));
    ours.replace_if_gone();
    fault.map(|fault| format!("{}: {fault}", attack.name))
}

#[test]
fn hostile_clients_harm_nobody_else() {
    let mut ours = Rig::start(Who::Ours).expect("ours is there");
    let mut theirs = if with_peer() { Rig::start(Who::Theirs) } else { None };
    let attacks = attacks();
    assert!(!attacks.is_empty(), "NUTHATCH_HOSTILE_ONLY names none");
    head();
    let faults: Vec<String> =
        attacks.iter().filter_map(|attack| run(attack, &mut ours, theirs.as_mut())).collect();
    let left = memory::settled(&ours, ours.idle_bytes, RELEASE_TIMEOUT) >> 20;
    say(&format!("{left} MiB more than before the first attack"));
    ours.stop();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
