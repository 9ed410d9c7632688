//! The job that turns off the rules of durability one by one: for each, the random schedules and the
//! tests beside them must find a violation. `cargo test -p nuthatch-log --features mutations --test
//! mutations -- --nocapture every_rule_is_found` prints for each rule what found it, and at which seed
//! if it has any, as the table in `docs/durability.md`.
//!
//! The suites are modules of this binary, which runs itself again with a rule turned off and stops at
//! the first suite that fails: nothing is built meanwhile. `NUTHATCH_RULES=part-of-a-name` tries some
//! rules, `NUTHATCH_SUITES=power_cut` asks some suites: what the random schedules alone find.

#[path = "faults.rs"]
mod faults;
#[path = "later.rs"]
mod later;
#[path = "loss.rs"]
mod loss;
#[path = "places.rs"]
mod places;
#[path = "power_cut.rs"]
mod power_cut;
#[path = "replay.rs"]
mod replay;

use nuthatch_log::rules::{ALL, RULE_OFF_VARIABLE, Rule};
use std::process::Command;
use std::time::{Duration, Instant};

/// The suites, the quickest first.
const SUITES: [&str; 6] = ["later::", "loss::", "places::", "faults::", "replay::", "power_cut::"];

/// A rule, the one that makes up for it, and the test that finds that one: both are turned off, and
/// the test is not asked.
const MADE_UP_FOR: [(&str, &str, &str); 1] = [(
    "log.states-before-compaction",
    "log.checkpoint-before-compaction",
    "a_checkpoint_has_the_states_that_a_compaction_relies_on",
)];

/// A suite that takes longer than this has found something: it hangs.
const LONGEST: Duration = Duration::from_secs(240);

/// What a suite says with a rule turned off.
enum Verdict {
    /// Nothing.
    Quiet,
    /// It failed: the first test, and the first seed that it names.
    Found { test: String, seed: Option<u64> },
}

fn run(suite: &str, rule: &Rule) -> Verdict {
    let me = std::env::current_exe().expect("this binary");
    let out = std::env::temp_dir().join(format!("nuthatch-mutation-{}", std::process::id()));
    let file = std::fs::File::create(&out).expect("creates");
    let made_up = MADE_UP_FOR.iter().find(|(name, ..)| *name == rule.0);
    let off = made_up.map_or(rule.0.to_owned(), |(_, other, _)| format!("{},{other}", rule.0));
    let skipped = made_up.map(|(.., test)| ["--skip", test]);
    let mut child = Command::new(me)
        .args([suite, "--test-threads", "2"])
        .args(skipped.iter().flatten())
        .env(RULE_OFF_VARIABLE, off)
        .env("RUST_BACKTRACE", "0")
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

fn first_failure(text: &str) -> String {
    let failed = text.lines().find_map(|line| line.strip_suffix(" ... FAILED"));
    let name = failed.map_or("the process ended", |line| line.trim_start_matches("test "));
    name.to_owned()
}

fn first_seed(text: &str) -> Option<u64> {
    let after = text.split("seed ").nth(1)?;
    after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn find(rule: &Rule) -> Option<(String, Option<u64>)> {
    let wanted = std::env::var("NUTHATCH_SUITES").unwrap_or_default();
    let mut suites = SUITES.iter().filter(|suite| suite.contains(&wanted));
    suites.find_map(|suite| match run(suite, rule) {
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
    println!("| rule | found by | at seed | seconds |\n|---|---|---|---|");
    for rule in chosen() {
        let began = Instant::now();
        let found = find(&rule);
        let took = began.elapsed().as_secs();
        let (test, seed) = found.unwrap_or_else(|| {
            missed.push(rule.0);
            ("NOT FOUND".to_owned(), None)
        });
        let seed = seed.map_or_else(|| "no seeds".to_owned(), |seed| seed.to_string());
        println!("| {} | {test} | {seed} | {took} |", rule.0);
    }
    assert!(missed.is_empty(), "no test finds these rules turned off: {missed:?}");
}

/// A seed in what a failing test says is found.
#[test]
fn reports_are_understood() {
    let text = "test a ... ok\ntest b::c ... FAILED\nseed 17: message 3 is lost";
    assert_eq!((first_failure(text), first_seed(text)), ("b::c".to_owned(), Some(17)));
}
