//! Keys about the export of metrics and traces.

use super::super::keys::{Block, yes};

/// Keys of `otlp`.
pub(in super::super) static OTLP: Block = Block {
    place: "in 'otlp'",
    keys: &[
        yes(
            &["endpoint"],
            "required",
            "URL of the collector, such as `http://127.0.0.1:4318`; `/v1/metrics` and `/v1/traces` are added",
        ),
        yes(
            &["interval"],
            "15s",
            "time between two exports of metrics, at least 1s; spans go out each 5 s",
        ),
        yes(&["metrics"], "true", "what `/metrics` shows is sent"),
        yes(&["traces"], "true", "requests to the JetStream API are sent as spans"),
        yes(
            &["headers"],
            "none",
            "map of headers of each request, such as `{ Authorization: \"Bearer …\" }`",
        ),
    ],
};
