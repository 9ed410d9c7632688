//! Switches of the rules that the protocol rests on.
//!
//! Each rule asks [`Rule::holds`] where it is kept. In every ordinary build the answer is the constant
//! `true`. A build with the feature `mutations` lets one thread turn rules off; the random schedules of
//! the simulator, or the exhaustive searches beside them, must then find a violation. Some rules are
//! each other's second line ([`Rule::behind`]): only the loss of both does harm.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A rule of the protocol.
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
    /// A keeper says that entries are done after they were synced (M1).
    DoneAfterSync = "keeper.done-after-sync";
    /// A promise is synced before a seal is answered (M2).
    PromiseSynced = "keeper.promise-synced";
    /// A promise is written to both slots, one after the other (M2, M11).
    PromiseTwice = "keeper.promise-twice";
    /// A keeper that promised a later epoch takes no entries of an earlier one (M3).
    AppendPromised = "keeper.append-promised";
    /// A keeper that promised a later epoch takes nothing brought by an earlier candidate (M3).
    BringPromised = "keeper.bring-promised";
    /// A keeper that promised a later epoch does not start an earlier one (M3).
    StartPromised = "keeper.start-promised";
    /// An epoch starts on a keeper only at the position that the candidate names (M5).
    StartAtPosition = "keeper.start-at-position";
    /// Entries follow the last one without a gap.
    AppendInOrder = "keeper.append-in-order";
    /// Bringing only extends once the epoch is accepted (M16).
    BringOnlyExtends = "keeper.bring-only-extends";
    /// What is cut back is kept aside first.
    KeepAside = "keeper.keep-aside";
    /// A disk without an identity gets a new one (M7).
    NewDiskNewIncarnation = "keeper.new-disk-new-incarnation";
    /// A disk that was cut counts as cut until it has all again that it may have said was done (R2, M10).
    CutStaysKnown = "keeper.cut-stays-known";
    /// Messages to another disk than this one are refused (M7).
    CheckIncarnation = "keeper.check-incarnation";
    /// A disk whose boot counter is not above the catalog's starts anew (M8).
    BootCounter = "keeper.boot-counter";
    /// Damage below what a later entry vouches for is no torn tail (M10).
    DamageIsNotATail = "keeper.damage-is-not-a-tail";
    /// A disk without a readable promise starts anew (M11).
    AmnesiaIsNothing = "keeper.amnesia-is-nothing";
    /// After a failed sync a keeper answers nothing until it has read its disk again (M21).
    PoisonedBySync = "keeper.poisoned-by-sync";
    /// After a failed write a keeper answers nothing until it has read its disk again (M22).
    PoisonedByWrite = "keeper.poisoned-by-write";
    /// A keeper without room takes no frames (M22).
    FullRefuses = "keeper.full-refuses";
    /// An owner without room takes no publishes and hands over (M22).
    FullHandsOver = "owner.full-hands-over";
    /// A directory of another node is not used (M8).
    ForeignDiskRefused = "keeper.foreign-disk-refused";
    /// A note of a cut that cannot be read says that something was cut (M11).
    RottenNoteIsACut = "keeper.rotten-note-is-a-cut";
    /// An entry at the wrong place shows that its own place lost it (M10).
    StrayShowsLoss = "keeper.stray-shows-loss";
    /// An entry that a running keeper finds at the place of another one counts as missing at its own: healing
    /// that place would take away what shows it (M10).
    StraysAreMissed = "keeper.strays-are-missed";
    /// A running keeper that finds the entry damaged with which its durable log ends notes a cut before it reads
    /// its directory again (M10).
    LostEndIsACut = "keeper.lost-end-is-a-cut";
    /// What a keeper has behind damage is cut where a takeover brings another log: otherwise it would refuse it
    /// for ever.
    CutsBehindDamage = "keeper.cuts-behind-damage";
    /// Only what is known to be committed is trimmed (M19).
    TrimsCommitted = "keeper.trims-committed";
    /// What is trimmed is noted before it is removed.
    BaseNotedFirst = "keeper.base-noted-first";
    /// What is trimmed is noted with how far the log reached: what shows a loss of its end may be trimmed (M10).
    TrimNotesReach = "keeper.trim-notes-reach";
    /// A disk that cannot tell what it has trimmed begins anew (M11).
    RottenBaseIsNothing = "keeper.rotten-base-is-nothing";
    /// What comes in place of trimmed entries replaces nothing that is here and continues it (M16, M19).
    InstallOnlyExtends = "keeper.install-only-extends";
    /// What two keepers have trimmed is the same, however far each of them has (M19).
    TrimmedIsHere = "keeper.trimmed-is-here";
    /// A disk whose entries were replaced by fewer counts as cut until it is brought the epoch (R2).
    ReplacedIsACut = "keeper.replaced-is-a-cut";
    /// A candidate brings others nothing before its own log is the one that the epoch begins with.
    BringsGoal = "takeover.brings-goal";
    /// A candidate that lacks what others have trimmed leaves the log to one of them.
    LeavesToTrimmed = "takeover.leaves-to-trimmed";
    /// A candidate without room for what it lacks gives up at once: who has it may take over.
    FullGivesUp = "takeover.full-gives-up";
    /// Who lacks such an entry is not the next candidate, even if its log has another one in that place.
    LacksByContent = "takeover.lacks-by-content";
    /// Who is told to follow an owner or a candidate, and claims from an older row, claims again from the present one.
    ClaimsAgain = "node.claims-again";
    /// A keeper that lacks what the owner has trimmed is sent what that has made.
    InstallsTrimmed = "owner.installs-trimmed";
    /// A keeper reads all that it holds again and again.
    Scrubs = "keeper.scrubs";
    /// An owner whose own entries are damaged gets them from its keepers.
    HealsOwn = "owner.heals-own";
    /// What a keeper has trimmed it has had durably: an owner that cannot read it any more need not send it to hear that.
    TrimmedIsDone = "owner.trimmed-is-done";
    /// Keepers tell the owner what they cannot read any more, and get it.
    TellsDamage = "keeper.tells-damage";
    /// The stamps of a log never go back.
    StampsRise = "owner.stamps-never-go-back";
    /// Nothing is expired by a clock that a majority does not agree with.
    ExpiresByAgreedClock = "node.expires-by-agreed-clock";
    /// A node whose clock a majority contradicts takes over last.
    WrongClockLast = "detector.wrong-clock-last";
    /// A read that trusts no clock waits for a round of beats that began after it came.
    ReadAfterRound = "owner.read-after-round";
    /// A keeper that is away is told once (M20).
    AwayOnce = "owner.away-once";
    /// A keeper that is away is seldom sent anything (M20).
    AwaySeldom = "owner.away-seldom";
    /// A catalog that is behind what a proposer has seen takes no transaction of it (M25).
    CatalogRefusesBehind = "catalog.refuses-behind";
    /// A catalog that is behind what this node has seen is not listened to (M25).
    CatalogNeverGoesBack = "node.catalog-never-goes-back";
    /// A message holds no more than a window of entries.
    Window = "owner.window";
    /// New disks are brought the log beside serving, before they are put into the set.
    LearnsBeside = "owner.learns-beside";
    /// A keeper promises nobody else a later epoch while its owner's lease runs (M12).
    LeaseKept = "keeper.lease-kept";
    /// For one lease after its start a keeper promises nothing (M12).
    LeaseAfterBoot = "keeper.lease-after-boot";
    /// A keeper holds back promises for as long as the owner's beats say that it answers reads.
    LeaseAsAsked = "keeper.lease-as-asked";
    /// A seal needs a majority of the set, not of those that answered (M4, M9).
    SealMajority = "takeover.seal-majority";
    /// Only disks of the set count, whole or partial (M7).
    SealCountsMembers = "takeover.seal-counts-members";
    /// The donor is the one with the largest position (M4).
    LargestDonor = "takeover.largest-donor";
    /// The accepted epoch is compared before the length (M4).
    EpochBeforeLength = "takeover.epoch-before-length";
    /// After an answer that was cut the others are waited for (R2, M10).
    WaitForCut = "takeover.wait-for-cut";
    /// Going on with an answer that was cut is recorded (R2).
    RecordCut = "takeover.record-cut";
    /// What cannot be read is waited for, never left out (A5, M10).
    WaitForDamage = "takeover.wait-for-damage";
    /// Changes of the log's row compare its revision (R1, M17).
    CompareRow = "takeover.compare-row";
    /// A set is put into the row after a majority of it holds what the epoch begins with (R4, M17).
    BroughtMajority = "takeover.brought-majority";
    /// An epoch of another set, or behind a cut that is to be recorded, starts after the row says so (R1, R2).
    RowBeforeStart = "takeover.row-before-start";
    /// While an epoch starts, keepers that are not where it begins are brought there: one that was may be gone.
    StartingBrings = "takeover.starting-brings";
    /// A candidate that prepares a handover asks for no promise while the owner still serves.
    PreparedWaits = "takeover.prepared-waits";
    /// It waits no longer when that owner has gone without a word.
    PreparedEndsWithOwner = "takeover.prepared-ends-with-owner";
    /// An owner that hands the log to a node which goes tells another one instead, before or after it has left.
    HandedToTheGone = "takeover.handed-to-the-gone";
    /// A node that is about to follow the log in memory takes it over behind those that do: it would take long to open it.
    ColdLast = "detector.cold-last";
    /// An owner whose connection was reset before the row named it is missed as soon as it does.
    GoneOwnerMissed = "detector.gone-owner-missed";
    /// An owner serves after a majority has started its epoch (Q7).
    StartMajority = "takeover.start-majority";
    /// An entry is committed when a majority has it durably.
    CommitMajority = "owner.commit-majority";
    /// The next frame is sealed when the last one is committed (A2).
    OneFrame = "owner.one-frame";
    /// Answers of another disk do not count (M16).
    DoneOfThisDisk = "owner.done-of-this-disk";
    /// A lease counts from when the beat was sent, not from when it was answered (M12).
    LeaseFromSending = "owner.lease-from-sending";
    /// The clock is asked before each linearizable answer (M12).
    LeaseByClock = "owner.lease-by-clock";
    /// A log is handed over when the next owner has all that is committed: nothing has to be brought then.
    WholeSuccessor = "owner.whole-successor";
    /// An owner that gave its leases back is none any more.
    ReleaseEnds = "owner.release-ends";
    /// A beat that comes after its owner has given the lease back renews it no more: the next owner would wait for its end.
    ReleaseLasts = "keeper.release-lasts";
    /// A promise by its own keeper ends an owner's lease at once (M12).
    OwnPromiseEndsLease = "owner.own-promise-ends-lease";
    /// An owner without a majority resigns, and its beats say so (F4, M13).
    ResignAlone = "detector.resign-alone";
    /// A candidate asks a majority before it raises the epoch (F3, M13).
    AskOthers = "detector.ask-others";
    /// A log in memory begins anew only when fewer than a majority of its disks are left.
    AnewWithoutMajority = "node.anew-without-majority";
    /// What a disk holds of a log that has begun anew since counts for nothing.
    FormerIsNothing = "takeover.former-is-nothing";
    /// The disk of a node is given up by people's word only where the node is to keep the log no more.
    GivenUpUnwanted = "catalog.given-up-unwanted";
}

#[cfg(feature = "mutations")]
thread_local! {
    static OFF: std::cell::Cell<u128> = const { std::cell::Cell::new(0) };
}

/// Turns these rules off for this thread, and all others on.
#[cfg(feature = "mutations")]
pub fn turn_off(rules: &[Rule]) {
    const { assert!(Rule::ALL.len() <= 128, "a bit for each rule") };
    OFF.with(|off| off.set(rules.iter().fold(0, |bits, rule| bits | 1 << *rule as u64)));
}

impl Rule {
    /// True for what only logs in memory keep: their schedules find its loss (`memory_logs` of `nuthatch-sim`).
    #[must_use]
    pub fn is_of_memory(self) -> bool {
        matches!(self, Rule::AnewWithoutMajority | Rule::FormerIsNothing | Rule::GivenUpUnwanted)
    }

    /// The rule that alone prevents what this one prevents, too: while it holds the loss of this one shows
    /// nowhere. Both are kept, since either costs a comparison.
    #[must_use]
    pub fn behind(self) -> Option<Rule> {
        match self {
            // A log that another candidate has changed is not where the epoch starts.
            Rule::BringPromised => Some(Rule::StartAtPosition),
            // Who answers names its disk, and the owner looks at that.
            Rule::CheckIncarnation => Some(Rule::DoneOfThisDisk),
            // What a node proposes to a catalog that was set back is refused there.
            Rule::CatalogNeverGoesBack => Some(Rule::CatalogRefusesBehind),
            // Nobody who has seen more goes by a catalog that was set back.
            Rule::CatalogRefusesBehind => Some(Rule::CatalogNeverGoesBack),
            // Who was replaced by less does not count as whole.
            Rule::TrimmedIsHere => Some(Rule::ReplacedIsACut),
            // Who is left the epoch has claimed the next one by then.
            Rule::LacksByContent => Some(Rule::ClaimsAgain),
            // Where a candidate's own log cannot be what the epoch begins with, it is none any more in the same step.
            Rule::BringsGoal => Some(Rule::FullGivesUp),
            // No disk answers what was for another one.
            Rule::DoneOfThisDisk => Some(Rule::CheckIncarnation),
            _ => None,
        }
    }

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
