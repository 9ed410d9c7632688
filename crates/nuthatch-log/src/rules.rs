//! Switches of the rules that durability rests on.
//!
//! Each rule (an fsync, the order of two writes, a compare-and-set, a check at reading) asks
//! [`Rule::holds`] where it is kept. In every ordinary build the answer is the constant `true` and the
//! question costs nothing. A build with the feature `mutations`, made for one job only, turns off the
//! rule that the environment variable `NUTHATCH_RULE_OFF` names; the random schedules must then find
//! a violation. A rule whose loss no schedule finds is not tested.

/// A rule, by its name: the crate, a dot, what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(pub &'static str);

/// The environment variable that names the rule to turn off.
pub const RULE_OFF_VARIABLE: &str = "NUTHATCH_RULE_OFF";

impl Rule {
    /// Whether the rule is kept: always, but for the one that a mutation run turns off.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    #[must_use]
    pub const fn holds(self) -> bool {
        true
    }

    /// Whether the rule is kept: always, but for the one that a mutation run turns off.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn holds(self) -> bool {
        static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let off = OFF.get_or_init(|| std::env::var(RULE_OFF_VARIABLE).ok());
        off.as_deref() != Some(self.0)
    }
}

/// Every rule of this crate, for the job that turns them off one by one.
pub const ALL: &[Rule] = &[];
