//! The rules of this crate that durability rests on, each with a switch (see [`nuthatch_log::rules`]).

use nuthatch_log::rules::Rule;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Rule = Rule($text);)*

        /// Every rule of this crate, to be turned off one by one.
        pub const ALL: &[Rule] = &[$($name),*];
    };
}

rules! {
    /// A publish is acknowledged when its frame is durable (A1).
    ACK_AFTER_COMMIT = "streams.ack-after-commit";
    /// An id that was stored is told as a duplicate when the message that it names is durable.
    DUPLICATE_AFTER_COMMIT = "streams.duplicate-after-commit";
    /// An operation is answered when its records are durable.
    ANSWER_AFTER_COMMIT = "streams.answer-after-commit";
    /// A double ack is confirmed when the progress it asks for is durable.
    CONFIRM_AFTER_COMMIT = "streams.confirm-after-commit";
    /// Readers and consumers see what is durable (A4).
    SHOW_COMMITTED = "streams.show-committed";
    /// Of consumers of a log that has failed only what is durable is shown.
    DURABLE_INFO = "streams.durable-info";
    /// What consumers let go is logged before a purge, a delete, an update or an expiry by message.
    RELEASES_BEFORE_CHANGES = "streams.releases-before-changes";
    /// What consumers let go is logged before a publish that evicts by a limit.
    RELEASES_BEFORE_EVICTIONS = "streams.releases-before-evictions";
    /// What is dropped because of a consumer that is gone or in memory only is logged.
    LOG_DROPS = "streams.log-drops";
    /// That a sweep is to be done is noted before its first part.
    NOTE_SWEEP = "streams.note-sweep";
    /// A start continues a sweep that was not finished: otherwise messages that no consumer needs
    /// stay for ever.
    FINISH_SWEEP = "streams.finish-sweep";
    /// What the clock let expire is logged: a longer age does not bring it back.
    LOG_EXPIRY = "streams.log-expiry";
    /// From the record of a writer's term on nothing of another writer is stored.
    FENCE_WRITERS = "streams.fence-writers";
    /// A replay learns the writer's term.
    REPLAY_TERM = "streams.replay-term";
    /// A batch of which a part is missing leaves nothing.
    BATCH_WHOLE = "streams.batch-whole";
    /// A replay learns the ids that were stored.
    REPLAY_IDS = "streams.replay-ids";
    /// A state holds the ids of the duplicate window.
    STATE_IDS = "streams.state-ids";
    /// A state holds which sequences are gone.
    STATE_DELETED = "streams.state-deleted";
    /// A purge past the end holds back publishes until it is durable.
    PURGE_HOLDS = "streams.purge-holds";
    /// A message that the stream has and the log does not give is damage, not a message that is gone.
    MISSING_IS_DAMAGE = "streams.missing-is-damage";
    /// A consumer waits at a message that cannot be read, and does not pass over it.
    WAIT_FOR_READABLE = "streams.wait-for-readable";
    /// A move settles only over a copy that holds every live message.
    SETTLE_WHOLE = "streams.settle-whole";
    /// A stream leaves its log when that has durably noted where it goes.
    LEAVE_AFTER_COMMIT = "streams.leave-after-commit";
    /// A move copies what came meanwhile before the new log takes over.
    MOVE_COPIES_REST = "streams.move-copies-rest";
    /// Names and routes of a stream that moves mean the new log once that has taken over, and not before.
    MOVE_SETTLES_FIRST = "streams.move-settles-first";
    /// A copy is dropped once the old log remembers that it is not to be gone on with.
    MOVE_REFUSES_FIRST = "streams.move-refuses-first";
    /// A copy that was refused does not take over.
    REFUSED_NEVER_SETTLES = "streams.refused-never-settles";
    /// Only a stream that waits for it is forgotten because it lives on as a copy elsewhere.
    FORGETS_WHO_WAITS = "streams.forgets-who-waits";
    /// A log says that a stream does not go to a copy when that is durable.
    GOES_TO_AFTER_COMMIT = "streams.goes-to-after-commit";
    /// A stream that may have moved to a log of another node is not served before that is known.
    UNDECIDED_WAITS = "streams.undecided-waits";
    /// A copy that may be asked about is not dropped: where there is none, it has taken over and gone on.
    ASKED_COPY_STAYS = "streams.asked-copy-stays";
    /// The log that has a stream's state counts, and not the one that it came from (A16).
    NEW_HOME_COUNTS = "streams.new-home-counts";
    /// A record that is no message marks its stream as changed: whoever follows the log and lacks it answers no reads.
    MARK_CHANGES = "streams.mark-changes";
    /// A stream counts as changed while the log does not know what has left it: nobody who follows the log does.
    UNWRITTEN_IS_CHANGED = "streams.unwritten-is-changed";
    /// Who follows the log answers a read from just what its owner has vouched for.
    FOLLOWED_AS_VOUCHED = "streams.followed-as-vouched";
    /// A restore that was not finished is dropped at a start.
    DROP_UNFINISHED_RESTORE = "streams.drop-unfinished-restore";
    /// A mirror or source does not ask again for what it has stored.
    COPY_NOT_EARLY = "streams.copy-not-early";
    /// A mirror or source goes on with the message behind what it has stored, and not with a later one.
    COPY_NOT_LATE = "streams.copy-not-late";
    /// A source goes on behind what it has stored, also after a restart.
    SOURCE_POSITION = "streams.source-position";
    /// A mirror or source reads on only once what it has read is stored.
    COPY_STORED_FIRST = "streams.copy-stored-first";
    /// A mirror or source of another server notices when a delivery is missing.
    NOTICE_MISSING = "streams.notice-missing";
    /// A stream that is being restored has a name that nobody can ask for.
    RESTORE_STAGED = "streams.restore-staged";
    /// A restored stream is shown once it is whole and durable.
    RESTORE_SHOWN_WHOLE = "streams.restore-shown-whole";
    /// What a restore that failed has left is deleted.
    RESTORE_CLEARS = "streams.restore-clears";
    /// A name stays claimed until the log has answered.
    CLAIM_UNTIL_ANSWERED = "streams.claim-until-answered";
    /// A name that was claimed is taken only once its change shows in the registry.
    CLAIM_UNTIL_SHOWN = "streams.claim-until-shown";
    /// A claim goes when its change has ended.
    CLAIM_ENDS = "streams.claim-ends";
    /// A batch of an import is confirmed when it is durable.
    IMPORT_ANSWER_AFTER_COMMIT = "streams.import-answer-after-commit";
    /// Behind a batch of an import that was refused no later one is stored.
    IMPORT_IN_ORDER = "streams.import-in-order";
    /// An import does not bring again what is stored.
    IMPORT_NOT_EARLY = "streams.import-not-early";
    /// An import goes on with the message behind what is stored, and not with a later one.
    IMPORT_NOT_LATE = "streams.import-not-late";
    /// An import is begun once: whoever begins it again goes on with it.
    IMPORT_ONCE = "streams.import-once";
    /// An import is finished once all of its batches were confirmed.
    IMPORT_FINISH_CONFIRMED = "streams.import-finish-confirmed";
    /// An import that is being finished or given up takes no batches.
    IMPORT_ENDS_ALONE = "streams.import-ends-alone";
    /// An imported stream is shown once it is whole and durable.
    IMPORT_SHOWN_WHOLE = "streams.import-shown-whole";
    /// An import that is given up is forgotten once its stream is durably gone.
    IMPORT_CANCEL_DURABLE = "streams.import-cancel-durable";
    /// What became of the end of an import that the log has not answered is asked.
    IMPORT_ASK_UNKNOWN = "streams.import-ask-unknown";
    /// A step of the wall clock is followed only once it has lasted.
    DOUBT_STEPS = "streams.doubt-steps";
}
