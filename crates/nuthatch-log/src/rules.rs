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

/// The environment variable that names the rule to turn off; several, separated by commas, where one
/// makes up for another.
pub const RULE_OFF_VARIABLE: &str = "NUTHATCH_RULE_OFF";

impl Rule {
    /// True if the rule is kept: always, but for the one that a mutation run turns off.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    #[must_use]
    pub const fn holds(self) -> bool {
        true
    }

    /// True if the rule is kept: always, but for the one that a mutation run turns off.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn holds(self) -> bool {
        static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let off = OFF.get_or_init(|| std::env::var(RULE_OFF_VARIABLE).ok());
        !off.as_deref().is_some_and(|off| off.split(',').any(|name| name == self.0))
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Rule = Rule($text);)*

        /// Every rule of this crate, for the job that turns them off one by one.
        pub const ALL: &[Rule] = &[$($name),*];
    };
}

rules! {
    /// A frame is synced before it counts as durable.
    FRAME_SYNC = "log.frame-sync";
    /// The first block and the size of a segment are synced before it has its name.
    SEGMENT_SYNC = "log.segment-sync";
    /// The name of a segment is durable before the catalog has it.
    SEGMENT_NAME_SYNC = "log.segment-name-sync";
    /// A segment and its footer are synced before the catalog has it as sealed.
    SEALED_SYNC = "log.sealed-sync";
    /// A sealed segment is cut only when the catalog does not have it as open any more.
    CUT_AFTER_CATALOG = "log.cut-after-catalog";
    /// A file that replaces another one is synced before it has its name.
    REPLACED_SYNC = "log.replaced-sync";
    /// The name of a file that replaces another one is durable before anybody relies on it.
    REPLACED_NAME_SYNC = "log.replaced-name-sync";
    /// The catalog knows a segment before a frame goes into it.
    CATALOG_BEFORE_FRAMES = "log.catalog-before-frames";
    /// A frame vouches only for positions that are durable when it is written (A2).
    VOUCH_FOR_DURABLE = "log.vouch-for-durable";
    /// Nothing is written behind a frame that was not made durable.
    NOTHING_BEHIND_A_FAILURE = "log.nothing-behind-a-failure";
    /// A checkpoint is taken when everything in it is durable.
    CHECKPOINT_AFTER_FRAMES = "log.checkpoint-after-frames";
    /// States that say what was dropped are durable before anything is compacted away (A7).
    STATES_BEFORE_COMPACTION = "log.states-before-compaction";
    /// A checkpoint has those states too, where it costs little beside the compaction.
    CHECKPOINT_BEFORE_COMPACTION = "log.checkpoint-before-compaction";
    /// The names of compacted segments are durable before the catalog has them.
    COMPACTED_NAME_SYNC = "log.compacted-name-sync";
    /// Inputs of a compaction go only when the catalog names its outputs.
    INPUTS_AFTER_CATALOG = "log.inputs-after-catalog";
    /// An empty segment's file goes only when the catalog has it as removed.
    DROP_AFTER_CATALOG = "log.drop-after-catalog";
    /// At reading: a frame has the salt of its segment.
    CHECK_SALT = "log.check-salt";
    /// At reading: a frame's header has the checksum that it says.
    CHECK_HEADER = "log.check-header";
    /// At reading: a frame's records have the checksum that its header says.
    CHECK_BODY = "log.check-body";
    /// At recovery: a frame has the next position and is chained to the one before.
    CHECK_CHAIN = "log.check-chain";
    /// At reading: a frame is the one that belongs where it lies.
    CHECK_PLACE = "log.check-place";
    /// At recovery: a file is as long as was noted when it was allocated.
    CHECK_ALLOCATED = "log.check-allocated";
    /// At recovery: what a later frame vouches for is not a torn tail.
    CHECK_VOUCHED = "log.check-vouched";
    /// At recovery: the log does not end before its checkpoint does.
    CHECK_AHEAD = "log.check-ahead";
    /// At recovery: records of a later version are refused.
    REFUSE_LATER = "log.refuse-later";
    /// At recovery: what only a cache shows is not believed.
    READ_PAST_CACHES = "log.read-past-caches";
    /// Torn bytes are kept before their place is used.
    KEEP_TORN = "log.keep-torn";
    /// Unusable files are kept.
    KEEP_UNUSABLE = "log.keep-unusable";
    /// Files under construction go when they were not finished.
    CLEAR_UNFINISHED = "log.clear-unfinished";
    /// Files under construction that stayed behind go while the medium is full.
    SWEEP_WHILE_FULL = "log.sweep-while-full";
    /// A start on a full medium draws on the reserve.
    DRAW_RESERVE = "log.draw-reserve";
}
