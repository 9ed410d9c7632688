//! Rules of the protocol that a process does without, in a build with the feature `mutations`, which is made for one
//! job only: real processes under faults must show the loss of each rule that `NUTHATCH_RULE_OFF` names, by commas.

use nuthatch_quorum::rules::{Rule, turn_off};
use std::sync::OnceLock;

/// For this thread, as long as it lives. Cores are stepped by many threads, so each step begins with this.
pub(crate) fn for_this_thread() {
    static OFF: OnceLock<Vec<Rule>> = OnceLock::new();
    turn_off(OFF.get_or_init(named));
}

/// A name that is no rule's would make a job that finds nothing.
fn named() -> Vec<Rule> {
    let names = std::env::var("NUTHATCH_RULE_OFF").unwrap_or_default();
    // Those of a keeper's directory and of the log ask for themselves.
    let asks = |name: &str| {
        let mut rules = crate::rules::ALL.iter().chain(nuthatch_log::rules::ALL);
        rules.any(|rule| rule.0 == name)
    };
    let cores = |name: &&str| !name.is_empty() && !asks(name);
    let rule = |name: &str| {
        let found = Rule::ALL.iter().copied().find(|rule| rule.name() == name);
        found.unwrap_or_else(|| panic!("there is no rule {name}"))
    };
    names.split(',').filter(cores).map(rule).collect()
}
