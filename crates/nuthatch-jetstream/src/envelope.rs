//! The JSON around every JetStream API answer: `type`, then either `error` or the body's fields.

use nuthatch_protocol::jserror::JsError;
use nuthatch_server::shares::Share;
use serde::Serialize;
use std::io::{self, Write};

/// An answer that grows is charged for so much at a time.
const CHARGE_STEP_BYTES: usize = 64 * 1024;

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

/// An answer with a body that may be large: its bytes count in `share` while they are written. The
/// share is given up once the answer is sent.
///
/// # Errors
/// Too many bytes of answers are under way.
pub fn charged<T: Serialize>(
    kind: ResponseType,
    body: &T,
    share: &mut Share,
) -> Result<Vec<u8>, JsError> {
    let r#type = format!("{TYPE_PREFIX}{}_response", kind.0);
    let mut out = ChargedBytes { bytes: Vec::new(), charged: 0, share };
    match serde_json::to_writer(&mut out, &Envelope { r#type, error: None, body: Some(body) }) {
        Ok(()) => Ok(out.bytes),
        Err(_) => {
            let text = "too many bytes of answers are under way: ask for less, or try again";
            Err(JsError { description: text.into(), ..JsError::STREAM_TOO_MANY_REQUESTS })
        }
    }
}

/// Bytes of an answer that grow within a share.
struct ChargedBytes<'a> {
    bytes: Vec<u8>,
    charged: usize,
    share: &'a mut Share,
}

impl Write for ChargedBytes<'_> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let wanted = self.bytes.len() + more.len();
        if wanted > self.charged {
            let step = (wanted - self.charged).max(CHARGE_STEP_BYTES);
            self.share.grow(step).map_err(|_| io::ErrorKind::QuotaExceeded)?;
            self.charged += step;
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer with an error, and with the fields of an empty one.
pub fn failed<T: Serialize>(kind: ResponseType, error: &JsError, body: T) -> Vec<u8> {
    encode(kind, Some(error), Some(&body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_grows_within_its_share() {
        let account = nuthatch_streams::AccountId(1);
        let shares = nuthatch_server::shares::Shares::new(1 << 20, 1 << 20);
        let answer = |count: usize| {
            let mut share = shares.take(account, 0).unwrap();
            let body = std::collections::BTreeMap::from([("names", vec!["0123456789"; count])]);
            let answer = charged(ResponseType("stream_info"), &body, &mut share);
            (answer.map(|text| text.len()), shares.used())
        };
        let (small, charged) = answer(10);
        assert!(small.is_ok_and(|len| len < 300) && charged == CHARGE_STEP_BYTES);
        let (large, charged) = answer(1 << 20);
        let code = JsError::STREAM_TOO_MANY_REQUESTS.err_code;
        assert_eq!(large.expect_err("it is too large").err_code, code);
        assert!(charged <= 1 << 20, "no more than the budget was written");
        assert_eq!(shares.used(), 0);
    }

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
