//! The job that turns off the rules of the protocol one by one: the random schedules or the exhaustive
//! searches must find a violation for each, within [`SCHEDULES`] seeds.
//!
//! `cargo test --release -p nuthatch-sim --features mutations --test mutations -- --nocapture` prints for
//! each rule what found it. `NUTHATCH_RULE_OFF` names one rule to try alone.

#[path = "links.rs"]
mod links;

use nuthatch_quorum::rules::{Rule, turn_off};
use nuthatch_sim::quorum::{Options, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A rule whose loss these many seeds do not show is not tested.
const SCHEDULES: u64 = 20_000;

/// What found that a rule was off.
fn search(rule: Rule) -> Option<String> {
    turn_off(Some(rule));
    let first = match rule {
        Rule::ResignAlone | Rule::AskOthers => links::first_trouble(1),
        _ => None,
    };
    let found = first.or_else(|| (0..SCHEDULES).find_map(|seed| by_seed(rule, seed)));
    turn_off(None);
    found
}

/// What a seed finds that it does not find with every rule kept.
fn by_seed(rule: Rule, seed: u64) -> Option<String> {
    let found = failure(seed)?;
    turn_off(None);
    let anyhow = failure(seed).is_some();
    turn_off(Some(rule));
    (!anyhow).then_some(found)
}

fn failure(seed: u64) -> Option<String> {
    let run = catch_unwind(AssertUnwindSafe(|| run(seed, &Options::drawn()).1));
    match run {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(format!("seed {seed}: {}", violation.kind)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            Some(format!("seed {seed}: {}", text.lines().next().unwrap_or_default()))
        }
    }
}

#[test]
fn every_rule_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("NUTHATCH_RULE_OFF").ok();
    let chosen = |rule: &&Rule| only.as_deref().is_none_or(|only| only == rule.name());
    let mut missed = vec![];
    for rule in Rule::ALL.iter().filter(chosen) {
        let began = Instant::now();
        let found = search(*rule);
        let seconds = began.elapsed().as_secs_f64();
        println!("{:38} {seconds:6.1} s  {}", rule.name(), found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(rule.name());
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found within {SCHEDULES} seeds: {missed:?}");
}
