//! Turns the rules of durability off one by one and requires that the suite named for each fails. Only
//! in a build with the feature `mutations`:
//!
//! ```text
//! cargo test -p nuthatch-object --features mutations --test mutations -- --nocapture
//! ```
//!
//! `NUTHATCH_RULES=name,name` plays some of them only. Prints a table: the rule, the suite, the seed at
//! which it was found (so many seeds were played before), the seconds that took.
#![cfg(feature = "mutations")]

use nuthatch_log::rules::RULE_OFF_VARIABLE;
use nuthatch_object::rules::ALL;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Plays these rules only, by name, separated by commas.
const SOME_VARIABLE: &str = "NUTHATCH_RULES";

/// A suite that takes longer has not found anything.
const LONGEST: Duration = Duration::from_secs(240);

/// The test that finds out: the rule, the suite, the name of the test.
const FOUND_BY: &[(&str, &str, &str)] = &[
    ("object.fence-before-listing", "two_owners", "two_owners_at_every_moment"),
    ("object.asked-before-fence", "prepare", "damage_is_refused_before_the_fence"),
    ("object.look-before-ack", "store_faults", "an_owner_that_slept_acknowledges_nothing"),
    ("object.own-fence", "lib", "nothing_is_acknowledged_in_a_directory"),
    ("object.fence-created", "two_owners", "two_owners_at_every_moment"),
    ("object.epoch-above-catalog", "lib", "no_epoch_comes_twice"),
    ("object.creation-compared", "store_faults", "and_a_store_that_fails_all_the_time"),
    ("object.catalog-created", "lib", "an_owner_that_was_replaced_changes_no_version"),
    ("object.catalog-claimed", "lib", "an_owner_that_was_replaced_changes_no_version"),
    ("object.look-after-catalog", "lib", "an_owner_that_slept_for_long_publishes_nothing"),
    ("object.unanswered-settled", "unanswered", "a_log_whose_catalog"),
    ("object.all-parts-stored", "store_faults", "what_was_acknowledged_survives"),
    ("object.sync-waits", "ahead", ""),
    ("object.nothing-behind-lost", "ahead", ""),
    ("object.no-key-twice", "files", "what_is_overwritten_on_its_way"),
    ("object.manifest-stored", "files", "what_a_later_owner_cut"),
    ("object.manifest-of-this-file", "files", "a_manifest_from_before"),
    ("object.manifest-begins", "ahead", "a_manifest_of_a_file_that_is_gone"),
    ("object.one-epoch", "files", "what_an_owner_that_slept_stores_late"),
    ("object.catalog-sum", "lib", "catalog::tests"),
    ("object.manifest-sum", "lib", "manifest::tests"),
    ("object.block-sum", "lib", "cache::disk::tests"),
    ("object.block-name", "lib", "cache::disk::tests"),
    ("object.later-version-refused", "prepare", "a_later_version_is_refused"),
    ("object.strangers-refused", "prepare", "what_has_the_name_of_a_fence"),
    ("object.repairer-keeps", "mending", ""),
    ("object.repairer-beginning-last", "mending", ""),
    ("object.repairer-removes-last", "mending", ""),
    ("tier.move-noted", "tier_faults", "what_was_acknowledged_survives"),
    ("tier.move-compared", "tier_faults", "an_upload_that_did_not_arrive"),
    ("tier.noted-before-removal", "tier_faults", "what_was_acknowledged_survives"),
    ("tier.mover-looks", "tier_faults", "a_server_that_was_replaced"),
    ("tier.begun-is-undone", "tier_faults", "what_was_acknowledged_survives"),
    ("tier.attempt-of-its-own", "tier_faults", "and_removals_that_come_late"),
    ("tier.removed-meanwhile", "tier_faults", "a_segment_that_is_removed_while"),
    ("tier.removal-noted", "tier_faults", "what_was_acknowledged_survives"),
    ("tier.bytes-behind-kept", "tier_faults", "a_segment_with_bytes_behind"),
    ("tier.local-counts", "tier_faults", "a_segment_on_both_sides"),
    ("tier.one-log", "tier_faults", "a_tier_belongs_to_one_log"),
    ("tier.same-place", "tier_faults", "a_directory_that_is_not_mounted"),
    ("tier.note-sum", "lib", "tier::note::tests"),
    ("tier.note-kept", "tier_unreadable", "a_damaged_note_is_kept"),
    ("tier.ends-sum", "tier_unreadable", "ends_that_are_damaged"),
    ("tier.ends-of-this", "tier_unreadable", "ends_of_another_segment"),
    ("tier.read-repeated", "lib", "a_read_that_fails_is_repeated"),
];

/// What a run of a suite led to.
enum Outcome {
    /// It failed, at this seed if it has any.
    Found(Option<u64>),
    Passed,
    TooLong,
}

fn run(rule: &str, suite: &str, test: &str) -> Outcome {
    let target: &[&str] = if suite == "lib" { &["--lib"] } else { &["--test", suite] };
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "-q", "-p", env!("CARGO_PKG_NAME"), "--features", "mutations"]);
    command.args(target).arg("--").args(["--test-threads=1", test]);
    // What cargo tells this test would make it build what depends on that anew, and again without it.
    let of_cargo = |name: &str| name.starts_with("CARGO_") && name != "CARGO_TARGET_DIR";
    for (name, _) in std::env::vars().filter(|(name, _)| of_cargo(name)) {
        command.env_remove(name);
    }
    command.env(RULE_OFF_VARIABLE, rule).env("RUST_BACKTRACE", "0");
    let log = std::env::temp_dir().join(format!("nuthatch-mutation-{}", std::process::id()));
    let out = std::fs::File::create(&log).expect("creates");
    command.stdout(out).stderr(Stdio::null());
    let mut child = command.spawn().expect("cargo runs");
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("waits") {
            Some(status) => break status,
            None if began.elapsed() > LONGEST => {
                child.kill().and_then(|()| child.wait()).expect("ends");
                return Outcome::TooLong;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = std::fs::read_to_string(&log).expect("reads");
    std::fs::remove_file(&log).expect("goes");
    assert!(text.contains("running "), "{rule}: {suite} has not run: {text}");
    if status.success() { Outcome::Passed } else { Outcome::Found(seed_in(&text)) }
}

/// The first seed that a failure names.
fn seed_in(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("seed ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn is_wanted(rule: &str) -> bool {
    let some = std::env::var(SOME_VARIABLE).ok();
    some.is_none_or(|some| some.split(',').any(|one| one == rule))
}

#[test]
fn every_rule_is_found() {
    let mut missed = Vec::new();
    println!("| rule | suite | found at seed | seconds |\n|---|---|---|---|");
    for rule in ALL.iter().filter(|rule| is_wanted(rule.0)) {
        let found_by = FOUND_BY.iter().find(|(name, ..)| *name == rule.0);
        let (_, suite, test) = found_by.unwrap_or_else(|| panic!("{} has no suite", rule.0));
        let began = Instant::now();
        let outcome = match run(rule.0, suite, test) {
            Outcome::Found(Some(seed)) => seed.to_string(),
            Outcome::Found(None) => "without seeds".to_owned(),
            Outcome::Passed => "NOT FOUND".to_owned(),
            Outcome::TooLong => "DOES NOT END".to_owned(),
        };
        let seconds = began.elapsed().as_secs_f64();
        println!("| {} | {suite} {test} | {outcome} | {seconds:.1} |", rule.0);
        if outcome.chars().all(|c| c.is_uppercase() || c == ' ') {
            missed.push(rule.0);
        }
    }
    assert!(missed.is_empty(), "nothing notices that these are off: {missed:?}");
}
