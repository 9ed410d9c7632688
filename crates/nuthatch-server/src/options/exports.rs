//! Reads `exports` and `imports` of an account.

use nuthatch_protocol::config::{Node, Value};

use super::read::ConfigReader;
use super::sharing::{
    DEFAULT_LATENCY_SAMPLING, DEFAULT_RESPONSE_THRESHOLD, Export, Import, Latency, ResponseKind,
    ServiceExport,
};
use super::tables::{EXPORT, IMPORT, IMPORTED, LATENCY};

/// Words of `response`, two for each kind but `stream`.
const RESPONSES: &[&str] = &["single", "singleton", "stream", "chunk", "chunked"];

/// An array of exports.
pub(super) fn exports(r: &mut ConfigReader, value: &Value) -> Vec<Export> {
    let wanted = "an array of exports: [ {stream: \"a.>\"}, … ]";
    let items = r.array("exports", value, wanted).unwrap_or_default();
    items.iter().filter_map(|item| export(r, item)).collect()
}

/// One export as read so far.
#[derive(Default)]
struct ExportDraft {
    stream: Option<String>,
    service: Option<String>,
    accounts: Option<Vec<String>>,
    position: usize,
    response: Option<ResponseKind>,
    threshold: Option<std::time::Duration>,
    latency: Option<Latency>,
    allow_trace: Option<bool>,
}

fn export(r: &mut ConfigReader, value: &Value) -> Option<Export> {
    let map = r.map("exports", value)?;
    let mut draft = ExportDraft::default();
    let problems_before = r.problems.len();
    r.walk(&EXPORT, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "stream" => draft.stream = r.word(key, value).map(str::to_owned),
            "service" => draft.service = r.word(key, value).map(str::to_owned),
            "accounts" => draft.accounts = r.texts(key, value),
            "response" => draft.response = response(r, key, value),
            "threshold" => draft.threshold = r.duration(key, value),
            "latency" => draft.latency = latency(r, value),
            "allow_trace" => draft.allow_trace = r.boolean(key, value),
            _ => {
                let position = r.int(key, value, 0, i64::from(u16::MAX)).unwrap_or_default();
                draft.position = usize::try_from(position).unwrap_or_default();
            }
        }
    });
    if r.problems.len() > problems_before {
        return None;
    }
    finish(r, value, draft)
}

fn finish(r: &mut ConfigReader, value: &Value, draft: ExportDraft) -> Option<Export> {
    let of_service =
        draft.response.is_some() || draft.threshold.is_some() || draft.latency.is_some();
    if draft.stream.is_some() && draft.allow_trace.is_some() {
        let what = "takes no 'allow_trace': whoever imports the stream says that";
        r.invalid(&value.pos, "stream", what);
        return None;
    }
    let (subject, service) = match (draft.stream, draft.service) {
        (Some(_), None) if of_service => {
            let what = "takes no 'response', 'threshold' or 'latency': they belong to a 'service'";
            r.invalid(&value.pos, "stream", what);
            return None;
        }
        (Some(subject), None) => (subject, None),
        (None, Some(subject)) => {
            let service = ServiceExport {
                response: draft.response.unwrap_or_default(),
                threshold: draft
                    .threshold
                    .filter(|threshold| !threshold.is_zero())
                    .unwrap_or(DEFAULT_RESPONSE_THRESHOLD),
                latency: draft.latency,
                allow_trace: draft.allow_trace.unwrap_or_default(),
            };
            (subject, Some(service))
        }
        _ => {
            r.invalid(&value.pos, "exports", "entry needs either 'stream' or 'service'");
            return None;
        }
    };
    let (accounts, account_token_position) = (draft.accounts, draft.position);
    Some(Export { subject, accounts, account_token_position, service })
}

fn response(r: &mut ConfigReader, key: &str, value: &Value) -> Option<ResponseKind> {
    Some(match r.choice(key, value, RESPONSES, "one of single, stream, chunked")? {
        0 | 1 => ResponseKind::Single,
        2 => ResponseKind::Stream,
        _ => ResponseKind::Chunked,
    })
}

/// A subject, or `{subject, sampling}`.
fn latency(r: &mut ConfigReader, value: &Value) -> Option<Latency> {
    if let Node::Str(subject) = &value.node {
        return Some(Latency { sampling: DEFAULT_LATENCY_SAMPLING, subject: subject.clone() });
    }
    let map = r.map("latency", value)?;
    let (mut subject, mut sampling) = (None, Some(DEFAULT_LATENCY_SAMPLING));
    r.walk(&LATENCY, map, |r, key, entry| match key {
        "subject" => subject = r.word(key, &entry.value).map(str::to_owned),
        _ => sampling = self::sampling(r, &entry.value),
    });
    if subject.is_none() {
        r.invalid(&value.pos, "latency", "needs the 'subject' to publish to");
    }
    Some(Latency { sampling: sampling?, subject: subject? })
}

/// A number from 1 to 100, such as `"50%"`, or `headers`, which is 0.
fn sampling(r: &mut ConfigReader, value: &Value) -> Option<u8> {
    let number = match &value.node {
        Node::Str(text) if text.trim().eq_ignore_ascii_case("headers") => return Some(0),
        Node::Str(text) => text.trim().strip_suffix('%').unwrap_or(text).parse().ok(),
        Node::Int(number) => Some(*number),
        _ => None,
    };
    let fits = number.and_then(|n: i64| u8::try_from(n).ok()).filter(|n| (1..=100).contains(n));
    if fits.is_none() {
        r.invalid(&value.pos, "sampling", "is a bad sampling percentage, should be 1-100");
    }
    fits
}

/// An array of imports.
pub(super) fn imports(r: &mut ConfigReader, value: &Value) -> Vec<Import> {
    let wanted = "an array of imports: [ {stream: {account: A, subject: \"a.>\"}}, … ]";
    let items = r.array("imports", value, wanted).unwrap_or_default();
    items.iter().filter_map(|item| import(r, item)).collect()
}

fn import(r: &mut ConfigReader, value: &Value) -> Option<Import> {
    let map = r.map("imports", value)?;
    let (mut stream, mut service) = (None, None);
    let (mut to, mut prefix, mut share, mut allow_trace) = (None, None, false, None);
    let problems_before = r.problems.len();
    r.walk(&IMPORT, map, |r, key, entry| {
        let value = &entry.value;
        match key {
            "stream" => stream = imported(r, key, value),
            "service" => service = imported(r, key, value),
            "to" => to = r.text(key, value).filter(|to| !to.is_empty()).map(str::to_owned),
            "allow_trace" => allow_trace = r.boolean(key, value),
            "prefix" => prefix = r.text(key, value).filter(|p| !p.is_empty()).map(str::to_owned),
            _ => share = r.boolean(key, value).unwrap_or_default(),
        }
    });
    if r.problems.len() > problems_before {
        return None;
    }
    let ((account, subject), is_service) = match (stream, service) {
        (Some(stream), None) => (stream, false),
        (None, Some(service)) => (service, true),
        _ => {
            r.invalid(&value.pos, "imports", "entry needs either 'stream' or 'service'");
            return None;
        }
    };
    if is_service && allow_trace.is_some() {
        let what = "takes no 'allow_trace': whoever exports the service says that";
        r.invalid(&value.pos, "service", what);
        return None;
    }
    let allow_trace = allow_trace.unwrap_or_default();
    if is_service {
        // nats-server reads it and has no use for it.
        prefix = None;
    }
    let to = match (to, prefix) {
        (Some(_), Some(_)) => {
            let what = "cannot be combined with 'to': a stream has one subject here";
            r.invalid(&value.pos, "prefix", what);
            return None;
        }
        (Some(to), None) => to,
        (None, Some(prefix)) if nuthatch_protocol::subject::has_wildcard(prefix.as_bytes()) => {
            let what = "is wrong: stream import prefix can not contain wildcard tokens";
            r.invalid(&value.pos, "prefix", what);
            return None;
        }
        (None, Some(prefix)) => format!("{}.{subject}", prefix.trim_end_matches('.')),
        (None, None) => subject.clone(),
    };
    Some(Import { account, subject, to, share, is_service, allow_trace })
}

/// `{account, subject}`.
fn imported(r: &mut ConfigReader, key: &str, value: &Value) -> Option<(String, String)> {
    let map = r.map(key, value)?;
    let (mut account, mut subject) = (None, None);
    r.walk(&IMPORTED, map, |r, key, entry| {
        let text = r.word(key, &entry.value).map(str::to_owned);
        match key {
            "account" => account = text,
            _ => subject = text,
        }
    });
    if account.is_none() || subject.is_none() {
        r.invalid(
            &value.pos,
            key,
            "needs an account name and a subject: { account: A, subject: \"a.>\" }",
        );
    }
    Some((account?, subject?))
}
