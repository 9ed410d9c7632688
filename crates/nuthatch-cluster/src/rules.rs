//! Switches of the rules that a keeper's directory rests on: those of [`nuthatch_log::rules`], for this crate. A build
//! with the feature `mutations` turns off the one that `NUTHATCH_RULE_OFF` names; the schedules of `nuthatch-sim`
//! (`sim --world keeper`) must then find a violation.

use nuthatch_log::rules::Rule;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Rule = Rule($text);)*

        /// Every rule of this crate, for the job that turns them off one by one.
        pub const ALL: &[Rule] = &[$($name),*];
    };
}

rules! {
    /// What was written to the journal is durable before anything behind a barrier is written.
    BARRIER_SYNC = "cluster.barrier-sync";
    /// A slot of the promise is durable before the other one is written.
    PROMISE_SYNC = "cluster.promise-sync";
    /// That entries are trimmed is noted durably before they go.
    TRIM_NOTED_FIRST = "cluster.trim-noted-first";
    /// That files are put in place is noted until all of it is done.
    INSTALL_NOTED_TO_END = "cluster.install-noted-to-end";
    /// Files are durable before the state says that they are.
    FILES_BEFORE_STATE = "cluster.files-before-state";
    /// A file that lost its name goes when a state without it is durable.
    GONE_WITH_MARK = "cluster.gone-with-mark";
    /// The state says that a file may be shorter before the file is cut.
    CUT_NOTED_FIRST = "cluster.cut-noted-first";
    /// A sync of the journal covers the files that were ended since the last one.
    ENDED_SYNCED = "cluster.ended-synced";
    /// The name of a file of the journal is durable before anything is written to it.
    JOURNAL_NAME_SYNC = "cluster.journal-name-sync";
    /// At a start the names of the journal's files are made durable before anything is written to one of them.
    NAMES_AT_START = "cluster.names-at-start";
    /// Bytes behind the last record are cut off before anything is written there.
    TAIL_CUT_OFF = "cluster.tail-cut-off";
    /// Each log's keeper has a directory of its own.
    LOG_DIR_OWN = "cluster.log-dir-own";
    /// The directory of a further log is durable before anything is in it.
    LOG_DIR_SYNCED = "cluster.log-dir-synced";
    /// At a start what a journal's file and a promise hold is what the medium has, not what a cache shows after a
    /// sync that failed.
    REREAD = "cluster.reread";
}
