//! The job that turns off the rules of the built-in catalog's group one by one: the random schedules must find a
//! violation for each, that they do not find with every rule kept.
//!
//! `cargo test --profile ci -p nuthatch-sim --features mutations --test group_mutations -- --nocapture` prints for
//! each rule what found it. `NUTHATCH_RULE_OFF` names one rule to try alone. What logs follow where the catalog is outside the
//! nodes is found by `planted.rs`.

use nuthatch_catalog_group::rules::{Rule, turn_off};
use nuthatch_sim::group::{Options, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Schedules that are enough for a rule. `NUTHATCH_SIM_SCHEDULES` asks for more.
const SCHEDULES: u64 = 3_000;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_SCHEDULES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}

/// What a seed breaks; a panic is something broken, too.
fn failure(seed: u64) -> Option<String> {
    let run = catch_unwind(AssertUnwindSafe(|| run(seed, &Options::drawn()).1));
    match run {
        Ok(result) => result.err().map(|violation| violation.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}

fn search(rule: Rule) -> Option<String> {
    (0..schedules()).find_map(|seed| {
        turn_off(&[rule]);
        let found = failure(seed)?;
        turn_off(&[]);
        failure(seed).is_none().then(|| format!("seed {seed}: {found}"))
    })
}

#[test]
fn every_rule_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("NUTHATCH_RULE_OFF").ok();
    let chosen = |rule: &&Rule| only.as_deref().is_none_or(|only| only == rule.name());
    let mut missed = vec![];
    let of_group = |rule: &&Rule| rule.name().starts_with("group.");
    for rule in Rule::ALL.iter().filter(of_group).filter(chosen) {
        let began = Instant::now();
        let found = search(*rule);
        let seconds = began.elapsed().as_secs_f64();
        println!("{:30} {seconds:6.1} s  {}", rule.name(), found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(rule.name());
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
