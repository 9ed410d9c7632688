//! The tables of exports and imports.

use super::super::keys::{Block, yes};

/// Keys of one export.
pub(in crate::options) static EXPORT: Block = Block {
    place: "in an export",
    keys: &[
        yes(&["stream"], "", "subject of a stream of messages that others may see"),
        yes(&["service"], "", "subject of a service that others may call"),
        yes(&["accounts"], "every account", "the only accounts that may import it"),
        yes(
            &["response", "response_type"],
            "`single`",
            "responses to one request: `single`, `stream` or `chunked`",
        ),
        yes(
            &["threshold", "response_threshold", "response_max_time", "response_time"],
            "`\"2m\"`",
            "time for a response",
        ),
        yes(
            &["latency"],
            "none",
            "subject, or `{subject, sampling}`, on which latencies of the service are published",
        ),
        yes(
            &["account_token_position"],
            "0",
            "which token of an imported subject must be the importing account's name, from 1",
        ),
        yes(
            &["allow_trace"],
            "false",
            "of a service: traces of requests show what becomes of them in this account",
        ),
    ],
};

/// Keys of one import.
pub(in crate::options) static IMPORT: Block = Block {
    place: "in an import",
    keys: &[
        yes(&["stream"], "", "`{account, subject}` of the stream"),
        yes(&["service"], "", "`{account, subject}` of the service"),
        yes(&["to"], "the same subject", "subject here; `$1` stands for the first wildcard"),
        yes(&["prefix"], "none", "what is put in front of the subject of a stream"),
        yes(&["share"], "false", "the exporting account learns who its clients are"),
        yes(
            &["allow_trace"],
            "false",
            "of a stream: traces of its messages show what becomes of them in this account",
        ),
    ],
};

/// Keys of `stream {}` and `service {}` of an import.
pub(in crate::options) static IMPORTED: Block = Block {
    place: "in an import",
    keys: &[
        yes(&["account"], "required", "the exporting account"),
        yes(&["subject"], "required", "the subject there"),
    ],
};

/// Keys of `latency {}` in an export.
pub(in crate::options) static LATENCY: Block = Block {
    place: "in 'latency'",
    keys: &[
        yes(
            &["sampling"],
            "100",
            "percent of the requests, 1 to 100, or `headers`: where tracing headers ask for it",
        ),
        yes(&["subject"], "required", "where the measurements are published"),
    ],
};

/// Keys of `msg_trace {}` in an account.
pub(in crate::options) static MSG_TRACE: Block = Block {
    place: "in 'msg_trace' of an account",
    keys: &[
        yes(
            &["dest"],
            "required",
            "subject on which messages are traced whose `traceparent` says that they are sampled",
        ),
        yes(&["sampling"], "100", "percent of those messages, 1 to 100"),
    ],
};
