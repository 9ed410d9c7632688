//! The job that turns off the rules of durability of this crate one by one: for each, the random
//! schedules or the tests beside them must find a violation.
//!
//! ```text
//! cargo test -p nuthatch-streams --features mutations --test mutations -- --nocapture every_rule
//! ```
//!
//! prints for each rule what found it and at which seed (so many were played before). With
//! `NUTHATCH_RULES=part-of-a-name` only some. The suites are modules of this binary, which runs itself
//! again with a rule turned off; what only a log that loses messages shows is found by unit tests.

#[path = "clock.rs"]
mod clock;
#[path = "control/main.rs"]
mod control;
#[path = "followed/main.rs"]
mod followed;
#[path = "histories/main.rs"]
mod histories;
#[path = "interest.rs"]
mod interest;
#[path = "moving/main.rs"]
mod moving;
#[path = "power_cut.rs"]
mod power_cut;

use nuthatch_log::rules::{RULE_OFF_VARIABLE, Rule};
use nuthatch_streams::rules::ALL;
use std::process::Command;
use std::time::{Duration, Instant};

/// The suites, in the order in which they are asked.
const SUITES: [&str; 7] =
    ["clock::", "control::", "followed::", "histories::", "interest::", "moving::", "power_cut::"];

/// Unit tests that find what no schedule over a disk can show.
const UNIT_TESTS: [&str; 3] = ["engine::tests::", "control::", "migration::"];

/// A suite that takes longer than this has found something: it hangs.
const LONGEST: Duration = Duration::from_secs(400);

/// What a suite says with a rule turned off.
enum Verdict {
    /// Nothing.
    Quiet,
    /// It failed: the first test, and the first seed that it names.
    Found { test: String, seed: Option<u64> },
}

/// What cargo tells a test of itself. An inner cargo that inherited it would build what depends on it
/// anew, and the next one again without it.
const OF_CARGO: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME", "CARGO_TARGET_TMPDIR"];

fn command(suite: &str, is_unit_test: bool) -> Command {
    let me = std::env::current_exe().expect("this binary");
    if !is_unit_test {
        let mut again = Command::new(me);
        again.args([suite, "--test-threads", "2"]);
        return again;
    }
    // <target directory>/<profile>/deps/<this binary>: what it was built with is built already.
    let mut above = me.ancestors().skip(2);
    let (profile, target) = (above.next().expect("a profile"), above.next().expect("a directory"));
    let profile = profile.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "-q", "-p", "nuthatch-streams", "--features", "mutations", "--lib"]);
    cargo.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
    cargo.args(["--", suite]).env("CARGO_TARGET_DIR", target);
    for (name, _) in std::env::vars() {
        if name == "CARGO" || OF_CARGO.iter().any(|own| name.starts_with(own)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn run(suite: &str, is_unit_test: bool, rule: &Rule) -> Verdict {
    let out = std::env::temp_dir().join(format!("nuthatch-mutation-{}", std::process::id()));
    let file = std::fs::File::create(&out).expect("creates");
    let mut child = command(suite, is_unit_test)
        .env(RULE_OFF_VARIABLE, rule.0)
        .env("RUST_BACKTRACE", "0")
        // What fails because of a fault that was planted is no seed to keep.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .stdout(file.try_clone().expect("a second handle"))
        .stderr(file)
        .spawn()
        .expect("starts");
    let began = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().expect("waits") {
            break Some(status);
        }
        if began.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let _ = std::fs::remove_file(&out);
    match ended {
        None => Verdict::Found { test: format!("{suite} does not end"), seed: None },
        Some(status) if status.success() => Verdict::Quiet,
        Some(_) => Verdict::Found { test: first_failure(&text), seed: first_seed(&text) },
    }
}

/// The first test that the list of failures at the end names.
fn first_failure(text: &str) -> String {
    let (_, list) = text.rsplit_once("failures:").unwrap_or(("", ""));
    let name = list.lines().map(str::trim).find(|line| !line.is_empty());
    name.unwrap_or("the process ended").to_owned()
}

fn first_seed(text: &str) -> Option<u64> {
    let after = text.split("seed ").nth(1)?;
    after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn find(rule: &Rule) -> Option<(String, Option<u64>)> {
    let suites = SUITES.iter().map(|suite| (suite, false));
    let all = suites.chain(UNIT_TESTS.iter().map(|suite| (suite, true)));
    all.into_iter().find_map(|(suite, is_unit_test)| match run(suite, is_unit_test, rule) {
        Verdict::Found { test, seed } => Some((test, seed)),
        Verdict::Quiet => None,
    })
}

/// Only those whose names contain `NUTHATCH_RULES`, if that is set.
fn chosen() -> Vec<Rule> {
    let wanted = std::env::var("NUTHATCH_RULES").unwrap_or_default();
    ALL.iter().copied().filter(|rule| rule.0.contains(&wanted)).collect()
}

#[test]
fn every_rule_is_found() {
    if std::env::var_os(RULE_OFF_VARIABLE).is_some() {
        return;
    }
    let mut missed = Vec::new();
    for rule in chosen() {
        let began = Instant::now();
        let found = find(&rule);
        let took = began.elapsed().as_secs();
        match found {
            Some((test, Some(seed))) => println!("{}: {test}, seed {seed} ({took} s)", rule.0),
            Some((test, None)) => println!("{}: {test} ({took} s)", rule.0),
            None => {
                println!("{}: NOT FOUND ({took} s)", rule.0);
                missed.push(rule.0);
            }
        }
    }
    assert!(missed.is_empty(), "no test finds these rules turned off: {missed:?}");
}

/// A seed in what a failing test says is found.
#[test]
fn reports_are_understood() {
    let text = "seed 17: message 3 is lost\n\nfailures:\n    b::c\n\ntest result: FAILED";
    assert_eq!((first_failure(text), first_seed(text)), ("b::c".to_owned(), Some(17)));
}
