//! The rules of this crate that durability rests on, each with a switch (see [`nuthatch_log::rules`]).

use nuthatch_log::rules::Rule;

/// A start goes on with a sweep that was not done: else what nobody needs stays for ever.
pub const FINISH_SWEEP: Rule = Rule("streams.finish-sweep");

/// Every rule of this crate, for the job that turns them off one by one.
pub const ALL: &[Rule] = &[FINISH_SWEEP];
