//! The job that turns off the rules of the protocol one by one: the random schedules or the exhaustive
//! searches must find a violation for each, within [`SCHEDULES`] seeds, or those of the classic mistakes.
//!
//! `cargo test --release -p nuthatch-sim --features mutations --test mutations -- --nocapture` prints for
//! each rule what found it. `NUTHATCH_RULE_OFF` names one rule to try alone. `NUTHATCH_FAR=trimmed:5000000:20000` beside that, and
//! `--ignored`, looks among 20,000 seeds of a theme (`drawn`: of none) for one to be kept in [`FAR_SEEDS`].

#[path = "directed.rs"]
mod directed;
#[path = "links.rs"]
mod links;
#[path = "support/off.rs"]
mod off;

use nuthatch_quorum::rules::{Rule, turn_off};
use nuthatch_sim::quorum::{Options, THEMES, Theme};
use off::{by_seeds, off_with};
use std::panic::catch_unwind;
use std::time::Instant;

/// A rule whose loss these many seeds do not show is not tested: as many as an ordinary run plays.
/// `NUTHATCH_SIM_SCHEDULES` asks for more.
const SCHEDULES: u64 = 400;

fn schedules() -> u64 {
    let asked = std::env::var("NUTHATCH_SIM_SCHEDULES");
    asked.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}

/// What found that a rule was off. One that another rule stands behind is off together with that.
fn search(rule: Rule) -> Option<String> {
    let first = by_directed(rule);
    let drawn = || by_seeds(rule, "", 0..schedules(), &Options::drawn());
    first
        .or_else(|| by_far_seed(rule))
        .or_else(drawn)
        .or_else(|| THEMES.iter().find_map(|theme| by_theme(rule, theme)))
}

/// What the schedules of a rule find that they do not find with only the second line off, or with every rule kept.
fn by_directed(rule: Rule) -> Option<String> {
    let play = |off: &[Rule]| {
        turn_off(off);
        let found = catch_unwind(|| match rule {
            Rule::ResignAlone | Rule::AskOthers => links::first_trouble(1),
            rule => directed::trouble(rule),
        });
        turn_off(&[]);
        found.unwrap_or(Some("directed: a panic".to_owned()))
    };
    let off = off_with(rule);
    let found = play(&off)?;
    play(&off[1..]).is_none().then_some(found)
}

/// Seeds beyond those that an ordinary run plays, or of a theme, which found a rule's loss.
const FAR_SEEDS: [(Rule, &str, u64); 19] = [
    (Rule::CutsBehindDamage, "m10", 20_032_747),
    (Rule::TrimmedIsHere, "trimmed", 5_001_583),
    (Rule::ReplacedIsACut, "trimmed", 5_013_332),
    (Rule::ReadAfterRound, "clocks", 12_298),
    (Rule::RowBeforeStart, "drawn", 6_010_458),
    (Rule::CutStaysKnown, "m5", 903),
    (Rule::BringPromised, "m3", 9),
    (Rule::StartPromised, "m3", 41),
    (Rule::StartAtPosition, "m5", 101),
    (Rule::BroughtMajority, "m17", 796),
    (Rule::RottenNoteIsACut, "m11", 61),
    (Rule::RecordCut, "m10", 475),
    (Rule::LeaseByClock, "m12", 54),
    (Rule::ReleaseEnds, "m12", 24),
    (Rule::LeavesToTrimmed, "m19", 708),
    (Rule::TrimmedIsDone, "drawn", 16_132_917),
    (Rule::LacksByContent, "trimmed", 7_008_898),
    (Rule::CatalogRefusesBehind, "m25", 188),
    (Rule::CatalogNeverGoesBack, "m25", 188),
];

/// What such a seed finds.
fn by_far_seed(rule: Rule) -> Option<String> {
    let (_, name, seed) = FAR_SEEDS.iter().find(|(of, ..)| *of == rule)?;
    let mix = THEMES.iter().find(|theme| theme.name == *name).map(Theme::mix);
    assert!(mix.is_some() || *name == "drawn", "no theme {name}");
    by_seeds(rule, name, std::iter::once(*seed), &Options { mix, ..Options::drawn() })
}

/// What the schedules of a classic mistake find.
fn by_theme(rule: Rule, theme: &Theme) -> Option<String> {
    let options = Options { mix: Some(theme.mix()), ..Options::drawn() };
    by_seeds(rule, theme.name, 0..theme.schedules, &options)
}

#[test]
fn every_rule_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("NUTHATCH_RULE_OFF").ok();
    // Those of logs in memory have schedules of their own (`memory_logs.rs`).
    let chosen = |rule: &&Rule| {
        !rule.is_of_memory() && only.as_deref().is_none_or(|only| only == rule.name())
    };
    let mut missed = vec![];
    for rule in Rule::ALL.iter().filter(chosen) {
        let began = Instant::now();
        let found = search(*rule);
        let seconds = began.elapsed().as_secs_f64();
        let beside =
            rule.behind().map_or(String::new(), |second| format!("with {}, ", second.name()));
        let found_by = found.as_deref().unwrap_or("NOT FOUND");
        println!("{:34} {seconds:6.1} s  {beside}{found_by}", rule.name());
        if found.is_none() {
            missed.push(rule.name());
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
#[ignore = "asked for by NUTHATCH_RULE_OFF and NUTHATCH_FAR, for a seed that is to be kept"]
fn a_far_seed_finds_the_rule() {
    let name = std::env::var("NUTHATCH_RULE_OFF").expect("NUTHATCH_RULE_OFF names a rule");
    let far = std::env::var("NUTHATCH_FAR").expect("NUTHATCH_FAR=THEME:FROM:COUNT");
    let [theme, from, count] = far.split(':').collect::<Vec<_>>()[..] else { panic!("{far}") };
    let rule = *Rule::ALL.iter().find(|rule| rule.name() == name).expect("a rule");
    let mix = THEMES.iter().find(|known| known.name == theme).map(Theme::mix);
    assert!(mix.is_some() || theme == "drawn", "no theme {theme}");
    let from: u64 = from.parse().expect("a number");
    let seeds = from..from + count.parse::<u64>().expect("a number");
    std::panic::set_hook(Box::new(|_| {}));
    let found = by_seeds(rule, theme, seeds, &Options { mix, ..Options::drawn() });
    let _ = std::panic::take_hook();
    println!("{name}: {found:?}");
    assert!(found.is_some(), "not found");
}
