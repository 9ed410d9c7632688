//! The job that plants faults: turns off rules of the control plane, the log, the streams and a keeper's directory one
//! by one, and the schedules of the control plane's cores, of whole nodes or of keepers' directories must find each within a bounded number of
//! seeds. The rules of the quorum log are turned off by `mutations.rs`.
//!
//! ```text
//! cargo test --profile ci -p nuthatch-sim --features mutations --test planted -- --nocapture
//! ```
//!
//! prints for each rule what found it, with which seed, after how many schedules. With
//! `NUTHATCH_RULES=part-of-a-name` only some.

use nuthatch_log::rules::RULE_OFF_VARIABLE;
use std::process::Command;

/// Schedules that are enough for a rule of the control plane.
const CONTROL_SEEDS: u64 = 40_000;
/// Schedules that are enough for a rule of log or streams.
const NODE_SEEDS: u64 = 400;
/// Schedules that are enough for a rule of a keeper's directory.
const KEEPER_SEEDS: u64 = 4_000;

/// Rules of the control plane, with the machine whose schedules must find them.
const CONTROL: &[(&str, &str)] = &[
    ("streams.move-copies-rest", "moves"),
    ("streams.move-settles-first", "moves"),
    ("streams.move-refuses-first", "moves"),
    ("streams.new-home-counts", "moves"),
    ("streams.undecided-waits", "moves-apart"),
    ("streams.refused-never-settles", "moves-apart"),
    ("streams.asked-copy-stays", "moves-apart"),
    ("streams.forgets-who-waits", "moves-apart"),
    ("streams.goes-to-after-commit", "moves-apart"),
    ("streams.copy-not-early", "copies"),
    ("streams.copy-not-late", "copies"),
    ("streams.source-position", "copies"),
    ("streams.copy-stored-first", "copies"),
    ("streams.claim-until-answered", "changes"),
    ("streams.claim-until-shown", "changes"),
    ("streams.claim-ends", "changes"),
    ("streams.restore-staged", "restores"),
    ("streams.restore-shown-whole", "restores"),
    ("streams.restore-clears", "restores"),
    ("streams.import-answer-after-commit", "imports"),
    ("streams.import-in-order", "imports"),
    ("streams.import-not-early", "imports"),
    ("streams.import-not-late", "imports"),
    ("streams.import-once", "imports"),
    ("streams.import-finish-confirmed", "imports"),
    ("streams.import-ends-alone", "imports"),
    ("streams.import-shown-whole", "imports"),
    ("streams.import-cancel-durable", "imports"),
    ("streams.import-ask-unknown", "imports"),
    ("streams.note-sweep", "sweeps"),
    ("streams.finish-sweep", "sweeps"),
    ("roster.later-followed", "rosters"),
    ("roster.followed-first", "rosters"),
    ("group.logs-first", "rosters"),
];

/// Rules of log and streams that whole nodes were seen to show; the others are `nuthatch-log`'s and `nuthatch-streams`'
/// own campaigns'.
const NODE: &[&str] = &[
    "log.frame-sync",
    "log.segment-sync",
    "log.sealed-sync",
    "log.replaced-sync",
    "log.replaced-name-sync",
    "log.catalog-before-frames",
    "log.vouch-for-durable",
    "log.inputs-after-catalog",
    "log.check-body",
    "streams.ack-after-commit",
    "streams.answer-after-commit",
    "streams.confirm-after-commit",
    "streams.replay-ids",
    "streams.state-ids",
    "streams.state-deleted",
    "streams.leave-after-commit",
    "streams.move-settles-first",
    "streams.new-home-counts",
    // Each other's second line.
    "streams.settle-whole,streams.move-copies-rest",
];

/// Rules that damage shows which comes while a node runs, and nothing else that fails: checks at reading and at
/// a start.
const DAMAGE: &[&str] = &["log.check-body", "log.check-vouched", "log.check-chain"];

/// Rules of a keeper's directory: nodes of a quorum log on real directories must show the loss of each.
const KEEPER: &[&str] = &[
    "cluster.barrier-sync",
    "cluster.tail-cut-off",
    "cluster.promise-sync",
    "cluster.trim-noted-first",
    "cluster.install-noted-to-end",
    "cluster.files-before-state",
    "cluster.gone-with-mark",
    "cluster.cut-noted-first",
    "cluster.ended-synced",
    "cluster.journal-name-sync",
    "cluster.names-at-start",
    "cluster.reread",
    "cluster.log-dir-own",
    "cluster.log-dir-synced",
];

/// What `sim` says with a rule turned off: the seed and what was broken.
fn find(rule: &str, world: &[&str], seeds: u64) -> Option<(u64, String)> {
    let count = seeds.to_string();
    let done = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(world)
        .args(["--from", "0", "--count", &count, "--first"])
        .env(RULE_OFF_VARIABLE, rule)
        .output()
        .expect("starts");
    if done.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let (seed, why) = text.lines().next()?.split_once(' ')?;
    Some((seed.parse().ok()?, why.to_owned()))
}

#[test]
fn every_planted_fault_is_found() {
    let wanted = std::env::var("NUTHATCH_RULES").unwrap_or_default();
    let control = CONTROL.iter().map(|(rule, machine)| {
        (*rule, vec!["--world", "control", "--theme", *machine], CONTROL_SEEDS)
    });
    let node = NODE.iter().map(|rule| (*rule, vec!["--world", "node"], NODE_SEEDS));
    let keeper = KEEPER.iter().map(|rule| (*rule, vec!["--world", "keeper"], KEEPER_SEEDS));
    let mut missed = vec![];
    let damage = ["--world", "node", "--theme", "damage"];
    let damage = DAMAGE.iter().map(|rule| (*rule, damage.to_vec(), NODE_SEEDS));
    for (rule, world, seeds) in
        control.chain(node).chain(damage).chain(keeper).filter(|(rule, ..)| rule.contains(&wanted))
    {
        let Some((seed, why)) = find(rule, &world, seeds) else {
            println!("| {rule} | {} | NOT FOUND | {seeds} | |", world[1]);
            missed.push(rule);
            continue;
        };
        println!("| {rule} | {} | {seed} | {} | {why} |", world[1], seed + 1);
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn nothing_is_found_without_a_planted_fault() {
    assert_eq!(find("", &["--world", "control"], 200), None);
    assert_eq!(find("", &["--world", "node"], 10), None);
    assert_eq!(find("", &["--world", "node", "--theme", "damage"], 20), None);
    assert_eq!(find("", &["--world", "keeper"], 40), None);
}
