//! Errors of streams in traces: in the words of nats-server, which are others than those that
//! publishers get.

use crate::quote::go_quote;
use nuthatch_protocol::headers::find_header;
use serde::Deserialize;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    error: Option<Refusal>,
    #[serde(default)]
    duplicate: bool,
}

#[derive(Deserialize)]
struct Refusal {
    err_code: u16,
    description: String,
}

/// Codes of what is found when a message is stored, behind all checks of the message itself.
const FOUND_LATE: [u16; 2] = [10002, 10077];

/// What the answer to a message means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was refused; empty: it was taken.
    pub error: String,
    /// It passed all checks of the message itself.
    pub is_checked: bool,
}

/// What the answer to a message with these headers means.
pub(super) fn outcome(answer: &[u8], headers: &[u8]) -> Outcome {
    let taken = Outcome { error: String::new(), is_checked: true };
    let Ok(answer) = serde_json::from_slice::<Answer>(answer) else { return taken };
    match answer {
        Answer { error: Some(error), .. } => Outcome {
            error: refusal(&error, headers),
            is_checked: FOUND_LATE.contains(&error.err_code),
        },
        Answer { duplicate: true, .. } => {
            Outcome { error: "msgid is duplicate".to_owned(), is_checked: false }
        }
        Answer { .. } => taken,
    }
}

fn refusal(error: &Refusal, headers: &[u8]) -> String {
    let header = |name: &str| find_header(headers, name.as_bytes());
    let said = |name: &str| header(name).map(|value| String::from_utf8_lossy(value).into_owned());
    // What follows the last ": " of the description.
    let found = error.description.rsplit(": ").next().unwrap_or_default();
    match error.err_code {
        10054 | 10097 => "maximum payload exceeded".to_owned(),
        10060 => "expected stream does not match".to_owned(),
        10070 => {
            let expected = go_quote(header("Nats-Expected-Last-Msg-Id").unwrap_or_default());
            format!("last msgid mismatch: {expected} vs {}", go_quote(found.as_bytes()))
        }
        10071 => match said("Nats-Expected-Last-Subject-Sequence") {
            Some(expected) => format!("last sequence by subject mismatch: {expected} vs {found}"),
            None => {
                let expected = said("Nats-Expected-Last-Sequence").unwrap_or_default();
                format!("last sequence mismatch: {expected} vs {found}")
            }
        },
        10166 => "message TTL disabled".to_owned(),
        // The description is the text.
        10077 | 10111 => error.description.clone(),
        code => format!("{} ({code})", error.description),
    }
}
