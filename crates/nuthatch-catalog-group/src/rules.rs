//! Switches of the rules that the safety of the group rests on.
//!
//! Each rule asks [`Rule::holds`] where it is kept. In every ordinary build the answer is the constant `true`. A
//! build with the feature `mutations` lets one thread turn rules off; the random schedules of the simulator must
//! then find a violation.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A rule of the group.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            /// Every rule, for the job that turns them off one by one.
            pub const ALL: &[Rule] = &[$(Rule::$name),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

rules! {
    /// What a message says is done was synced before it goes out.
    SyncBeforeMessages = "group.sync-before-messages";
    /// Term and vote are written with the entries.
    VoteDurable = "group.vote-durable";
    /// A member neither votes nor campaigns before a majority holds its boot counter.
    BootHeldFirst = "group.boot-held-first";
    /// A start is another beginning only after the last one was held by a majority.
    BeginOnceHeld = "group.begin-once-held";
    /// Whoever begins with a boot counter below the greatest one seen is not listened to.
    LowerBootRefused = "group.lower-boot-refused";
    /// A boot counter that was seen is durable before anything of that member is believed.
    PeerBootDurable = "group.peer-boot-durable";
    /// A cluster is founded only when every listed node has answered that it holds nothing.
    FoundedByAll = "group.founded-by-all";
    /// A founding is taken only in answer to a question that is newer than the last time a node said that it holds none.
    FoundingAskedAnew = "group.founding-asked-anew";
    /// A member that has applied a change of the members begins with it again.
    MembersKept = "group.members-kept";
    /// A read is answered when a majority has confirmed the leader after it was asked.
    ReadConfirmed = "group.read-confirmed";
    /// A transaction is answered when it is committed and applied.
    AnswerAfterCommit = "group.answer-after-commit";
    /// A node is removed from the group when no log is on it any more.
    LogsFirst = "group.logs-first";
    /// A node gets a vote when it has what the leader has.
    CaughtUpFirst = "group.caught-up-first";
    /// A disk that was removed is not listened to, and is told so.
    RemovedNotHeard = "group.removed-not-heard";
    /// A replacement of a node does not begin while another one is under way.
    OneChangeAtATime = "group.one-change-at-a-time";
    /// A drained node gives the lead away as soon as another one can have it.
    DrainedLeadsLast = "group.drained-leads-last";
    /// A member that the newest snapshot does not name yet gets a newer one.
    SnapshotNamesReader = "group.snapshot-names-reader";
    /// Without being told to, the leader has only such nodes replaced as it has not heard for long.
    AbsentReplacedOnly = "group.absent-replaced-only";
    /// Where the catalog is outside the nodes a log follows no earlier roster than it has followed.
    LaterRosterFollowed = "roster.later-followed";
    /// There a change of the nodes ends, and a spare is removed, when every log has followed the roster of that time.
    FollowedFirst = "roster.followed-first";
}

#[cfg(feature = "mutations")]
thread_local! {
    static OFF: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Turns these rules off for this thread, and all others on.
#[cfg(feature = "mutations")]
pub fn turn_off(rules: &[Rule]) {
    const { assert!(Rule::ALL.len() <= 64, "a bit for each rule") };
    OFF.with(|off| off.set(rules.iter().fold(0, |bits, rule| bits | 1 << *rule as u64)));
}

impl Rule {
    /// True if the rule is kept: always, but for those that a mutation run turned off.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    #[must_use]
    pub const fn holds(self) -> bool {
        true
    }

    /// True if the rule is kept: always, but for those that a mutation run turned off.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn holds(self) -> bool {
        OFF.with(|off| off.get() & (1 << self as u64) == 0)
    }
}
