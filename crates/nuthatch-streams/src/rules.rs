//! The rules of this crate that durability rests on, each with a switch (see [`nuthatch_log::rules`]).

use nuthatch_log::rules::Rule;

/// A start goes on with a sweep that was not done: else what nobody needs stays for ever.
pub const FINISH_SWEEP: Rule = Rule("streams.finish-sweep");

/// A message that the stream has and the log does not give is damage, not a message that is gone.
pub const MISSING_IS_DAMAGE: Rule = Rule("streams.missing-is-damage");
/// A move settles only over a copy that holds every live message.
pub const SETTLE_WHOLE: Rule = Rule("streams.settle-whole");

/// A step of the wall clock is followed only once it has lasted.
pub const DOUBT_STEPS: Rule = Rule("streams.doubt-steps");

/// Every rule of this crate, for the job that turns them off one by one.
pub const ALL: &[Rule] = &[FINISH_SWEEP, MISSING_IS_DAMAGE, SETTLE_WHOLE, DOUBT_STEPS];
