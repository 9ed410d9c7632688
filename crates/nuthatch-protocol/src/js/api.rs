//! Bodies of requests and answers of JetStream's API, beside configurations and information.

use super::stream::null_default;
use super::{Nanos, Time, is_default};
use serde::{Deserialize, Serialize};

/// Body of `STREAM.INFO`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInfoRequest {
    /// Also the sequences that were deleted inside.
    #[serde(skip_serializing_if = "is_default")]
    pub deleted_details: bool,
    /// Also the subjects that match, with their numbers of messages; empty: none.
    #[serde(skip_serializing_if = "is_default")]
    pub subjects_filter: String,
    /// Subjects to leave out in front.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
}

/// Body of `STREAM.LIST` and `STREAM.NAMES`, and of those about consumers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListRequest {
    /// Only streams that store this subject; empty: all.
    #[serde(skip_serializing_if = "is_default")]
    pub subject: String,
    /// What to leave out in front.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
}

/// Body of `STREAM.MSG.GET`: one of them, or a subject and the sequence from which on to look for it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetRequest {
    /// A sequence; 0: none.
    #[serde(skip_serializing_if = "is_default")]
    pub seq: u64,
    /// The last message of this subject.
    #[serde(skip_serializing_if = "is_default")]
    pub last_by_subj: String,
    /// The first message of this subject, at `seq` or behind it.
    #[serde(skip_serializing_if = "is_default")]
    pub next_by_subj: String,
}

/// A message as `STREAM.MSG.GET` tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredMessage {
    /// Subject it was published to.
    pub subject: String,
    /// Its sequence.
    pub seq: u64,
    /// Its headers, as on the wire; empty when there are none.
    #[serde(rename = "hdrs", with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<u8>,
    /// Its body.
    #[serde(with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<u8>,
    /// When it was stored.
    pub time: Time,
}

/// Answer to `STREAM.MSG.GET`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetAnswer {
    /// The message.
    pub message: StoredMessage,
}

/// Body of `STREAM.PURGE`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeRequest {
    /// Only messages of this subject; empty: all.
    #[serde(skip_serializing_if = "is_default")]
    pub filter: String,
    /// Only messages before this sequence; 0: all.
    #[serde(skip_serializing_if = "is_default")]
    pub seq: u64,
    /// Keep so many of the newest; excludes `seq`.
    #[serde(skip_serializing_if = "is_default")]
    pub keep: u64,
    /// Term of the writer that asks; 0: it is none. Nuthatch's own.
    #[serde(skip_serializing_if = "is_default")]
    pub term: u64,
}

/// Answer to `STREAM.PURGE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeAnswer {
    /// Messages that were removed.
    pub purged: u64,
}

/// Answer to `CONSUMER.PAUSE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseAnswer {
    /// It delivers nothing now.
    pub paused: bool,
    /// Until then.
    pub pause_until: Time,
    /// For so long.
    #[serde(skip_serializing_if = "is_default")]
    pub pause_remaining: Nanos,
}

/// Limits of an account; -1: none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct AccountLimits {
    pub max_memory: i64,
    pub max_storage: i64,
    pub max_streams: i64,
    pub max_consumers: i64,
}

impl Default for AccountLimits {
    fn default() -> Self {
        Self { max_memory: -1, max_storage: -1, max_streams: -1, max_consumers: -1 }
    }
}

/// What an account asks of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct ApiUse {
    pub level: u32,
    pub total: u64,
    pub errors: u64,
}

/// Answer to `INFO`: what an account uses and may use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names; bytes and numbers
#[serde(default)]
pub struct AccountInfo {
    pub memory: u64,
    pub storage: u64,
    pub streams: u64,
    pub consumers: u64,
    pub limits: AccountLimits,
    #[serde(skip_serializing_if = "is_default")]
    pub domain: String,
    pub api: ApiUse,
}

/// Body of `STREAM.MOVE`, Nuthatch's own; empty: only tell.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveRequest {
    /// Log to move to; empty: none.
    #[serde(skip_serializing_if = "is_default")]
    pub log: String,
    /// Bytes a second at most; 0: the server's choice.
    #[serde(skip_serializing_if = "is_default")]
    pub max_rate: u64,
    /// Give a move up.
    #[serde(skip_serializing_if = "is_default")]
    pub cancel: bool,
}

/// How a move between logs is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveProgress {
    /// Name of the log that it leaves.
    pub from: String,
    /// Name of the log that it goes to.
    pub to: String,
    /// Last sequence that is in the new log.
    pub copied_seq: u64,
    /// Last sequence of the stream.
    pub last_seq: u64,
    /// The last error, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer to `STREAM.MOVE`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveAnswer {
    /// The stream.
    pub stream: String,
    /// The log that it lives in.
    pub log: String,
    /// A move is under way.
    pub moving: bool,
    /// How it is doing, or how the last one ended.
    #[serde(rename = "move", deserialize_with = "null_default")]
    pub progress: MoveProgress,
}

/// Bytes as a text in base64.
mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de};
    use std::borrow::Cow;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = Option::<Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text.as_bytes()).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_left_out() {
        let empty = [
            serde_json::to_string(&StreamInfoRequest::default()),
            serde_json::to_string(&GetRequest::default()),
            serde_json::to_string(&PurgeRequest::default()),
            serde_json::to_string(&MoveRequest::default()),
        ];
        assert!(empty.iter().all(|text| text.as_deref().is_ok_and(|text| text == "{}")));
    }

    #[test]
    fn a_stored_message_comes_in_base64() {
        let text =
            r#"{"message":{"subject":"a","seq":3,"data":"aGk=","time":"2026-01-02T03:04:05Z"}}"#;
        let answer: GetAnswer = serde_json::from_str(text).expect("it is read");
        assert_eq!((answer.message.data.as_slice(), answer.message.headers.len()), (&b"hi"[..], 0));
        assert_eq!(serde_json::to_string(&answer).expect("it is written"), text);
        assert!(serde_json::from_str::<GetAnswer>(&text.replace("aGk=", "*")).is_err());
    }

    #[test]
    fn a_move_that_is_none_has_no_progress() {
        let told: MoveAnswer =
            serde_json::from_str(r#"{"stream":"S","log":"default","moving":false,"move":null}"#)
                .expect("it is read");
        assert_eq!((told.moving, told.progress), (false, MoveProgress::default()));
    }
}
