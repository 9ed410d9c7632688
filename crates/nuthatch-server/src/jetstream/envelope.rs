//! The JSON around every JetStream API answer: `type`, then either `error` or the body's fields.

use nuthatch_protocol::jserror::JsError;
use serde::Serialize;

/// Prefix of every response type.
const TYPE_PREFIX: &str = "io.nats.jetstream.api.v1.";

/// Which answer this is: the stem between the type prefix and `_response`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseType(pub &'static str);

/// A page of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Paged {
    /// All there are.
    pub total: usize,
    /// How many were skipped.
    pub offset: usize,
    /// Largest page.
    pub limit: usize,
}

/// `{"success":true}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Success {
    /// Always true.
    pub success: bool,
}

impl Success {
    /// The only value there is.
    pub const YES: Self = Self { success: true };
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a JsError>,
    #[serde(flatten)]
    body: Option<&'a T>,
}

fn encode<T: Serialize>(kind: ResponseType, error: Option<&JsError>, body: Option<&T>) -> Vec<u8> {
    let r#type = format!("{TYPE_PREFIX}{}_response", kind.0);
    // Serialising plain structs with string keys cannot fail; an empty answer would be a bug that
    // a client sees as a timeout, so fall back to a well-formed error.
    serde_json::to_vec(&Envelope { r#type, error, body }).unwrap_or_else(|problem| {
        format!(r#"{{"error":{{"code":500,"description":"{problem}"}}}}"#).into_bytes()
    })
}

/// An answer with a body.
pub fn ok<T: Serialize>(kind: ResponseType, body: &T) -> Vec<u8> {
    encode(kind, None, Some(body))
}

/// An answer with an error, and with the fields of an empty one.
pub fn failed<T: Serialize>(kind: ResponseType, error: &JsError, body: T) -> Vec<u8> {
    encode(kind, Some(error), Some(&body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_and_body_stand_at_top_level() {
        let text = String::from_utf8(ok(ResponseType("stream_delete"), &Success::YES));
        assert_eq!(
            text.as_deref(),
            Ok(r#"{"type":"io.nats.jetstream.api.v1.stream_delete_response","success":true}"#)
        );
        let text =
            String::from_utf8(failed(ResponseType("stream_info"), &JsError::STREAM_NOT_FOUND, ()))
                .unwrap_or_default();
        assert!(text.contains(r#""err_code":10059"#), "{text}");
        assert!(!text.contains("null"), "{text}");
    }
}
