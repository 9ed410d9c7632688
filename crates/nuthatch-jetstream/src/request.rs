//! Reading API requests: subjects into calls, JSON into types, strictly or not.

use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Bodies of requests above so many bytes are read on threads of their own; to read and to check this
/// many takes about a tenth of a millisecond.
const LONG_REQUEST_BYTES: usize = 8 * 1024;

/// Largest JSON body the API reads; anything above is refused before it is parsed.
pub const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// A call, as named by the subject after `$JS.API.` (or `$JS.<domain>.API.`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call<'a> {
    /// `INFO`
    AccountInfo,
    /// `STREAM.CREATE.S`
    StreamCreate(&'a str),
    /// `STREAM.UPDATE.S`
    StreamUpdate(&'a str),
    /// `STREAM.DELETE.S`
    StreamDelete(&'a str),
    /// `STREAM.INFO.S`
    StreamInfo(&'a str),
    /// `STREAM.IMPORT.S`: Nuthatch's own.
    StreamImport(&'a str),
    /// `STREAM.IMPORT.S.MSGS`
    StreamImportMessages(&'a str),
    /// `STREAM.IMPORT.S.READ`
    StreamImportRead(&'a str),
    /// `STREAM.MOVE.S`: Nuthatch's own.
    StreamMove(&'a str),
    /// `STREAM.FENCE.S`: Nuthatch's own.
    StreamFence(&'a str),
    /// `STREAM.PURGE.S`
    StreamPurge(&'a str),
    /// `STREAM.SNAPSHOT.S`
    StreamSnapshot(&'a str),
    /// `STREAM.RESTORE.S`
    StreamRestore(&'a str),
    /// `STREAM.NAMES`
    StreamNames,
    /// `STREAM.LIST`
    StreamList,
    /// `STREAM.MSG.GET.S`
    MsgGet(&'a str),
    /// `STREAM.MSG.DELETE.S`
    MsgDelete(&'a str),
    /// `CONSUMER.CREATE.S`: ephemeral, old style.
    ConsumerCreateEphemeral(&'a str),
    /// `CONSUMER.CREATE.S.C[.filter]`
    ConsumerCreate {
        /// Stream.
        stream: &'a str,
        /// Consumer.
        name: &'a str,
        /// Filter in the subject, empty if none.
        filter: &'a str,
    },
    /// `CONSUMER.DURABLE.CREATE.S.C`; an absent name is an error of its own.
    ConsumerCreateDurable {
        /// Stream.
        stream: &'a str,
        /// Consumer, empty if missing.
        name: &'a str,
    },
    /// `CONSUMER.INFO.S.C`
    ConsumerInfo(&'a str, &'a str),
    /// `CONSUMER.DELETE.S.C`
    ConsumerDelete(&'a str, &'a str),
    /// `CONSUMER.PAUSE.S.C`
    ConsumerPause(&'a str, &'a str),
    /// `CONSUMER.UNPIN.S.C`
    ConsumerUnpin(&'a str, &'a str),
    /// `CONSUMER.RESET.S.C`
    ConsumerReset(&'a str, &'a str),
    /// `CONSUMER.NAMES.S`
    ConsumerNames(&'a str),
    /// `CONSUMER.LIST.S`
    ConsumerList(&'a str),
    /// `ACCOUNT.PURGE.A`: the system account's, for any account.
    AccountPurge(&'a str),
    /// `STREAM.LEADER.STEPDOWN.S`
    StreamStepDown(&'a str),
    /// `CONSUMER.LEADER.STEPDOWN.S.C`
    ConsumerStepDown(&'a str, &'a str),
    /// `META.LEADER.STEPDOWN`: the system account's.
    MetaStepDown,
    /// `SERVER.REMOVE`: the system account's.
    ServerRemove,
    /// `STREAM.PEER.REMOVE.S`
    StreamPeerRemove(&'a str),
}

impl<'a> Call<'a> {
    /// The call for the subject behind the API prefix; `None`: not a call (silence, as upstream).
    #[must_use]
    pub fn parse(rest: &'a str) -> Option<Self> {
        let mut tokens = rest.split('.');
        let call = match tokens.next()? {
            "INFO" => Self::AccountInfo,
            "STREAM" => return Self::parse_stream(rest.strip_prefix("STREAM.")?),
            "CONSUMER" => return Self::parse_consumer(rest.strip_prefix("CONSUMER.")?),
            "ACCOUNT" => return rest.strip_prefix("ACCOUNT.PURGE.").and_then(Self::parse_purge),
            "META" | "SERVER" => return Self::parse_meta(rest),
            _ => return None,
        };
        tokens.next().is_none().then_some(call)
    }

    /// True if it changes which streams there are or which subjects they own: what a connection
    /// sends behind it has to wait for it.
    #[must_use]
    pub const fn changes_streams(&self) -> bool {
        matches!(
            self,
            Self::StreamCreate(_)
                | Self::StreamUpdate(_)
                | Self::StreamDelete(_)
                | Self::StreamImport(_)
                | Self::AccountPurge(_)
        )
    }

    /// True if it changes nothing, so that it can be made again where its fate is not known.
    pub(super) const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::AccountInfo
                | Self::StreamInfo(_)
                | Self::StreamNames
                | Self::StreamList
                | Self::MsgGet(_)
                | Self::ConsumerInfo(..)
                | Self::ConsumerNames(_)
                | Self::ConsumerList(_)
        )
    }

    /// True if it is handled on threads of its own: reading it, or writing down what it tells, may
    /// take longer than other connections should wait. Batches of an import are read as they are.
    #[must_use]
    pub fn is_long(&self, body: &[u8]) -> bool {
        let is_batch = matches!(self, Self::StreamImportMessages(_));
        // What is in the body asks for subjects or deleted sequences.
        let asks_for_details = matches!(self, Self::StreamInfo(_)) && !is_empty(body);
        self.is_list() || asks_for_details || (body.len() > LONG_REQUEST_BYTES && !is_batch)
    }

    /// The stream whose whole configuration is read, compared or told.
    #[must_use]
    pub const fn whole_stream(&self) -> Option<&'a str> {
        match self {
            Self::StreamCreate(name)
            | Self::StreamUpdate(name)
            | Self::StreamDelete(name)
            | Self::StreamInfo(name)
            | Self::StreamSnapshot(name)
            | Self::StreamMove(name) => Some(name),
            _ => None,
        }
    }

    /// True if it tells of many streams or consumers.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self, Self::StreamNames | Self::StreamList | Self::ConsumerList(_))
    }

    fn parse_stream(rest: &'a str) -> Option<Self> {
        let tokens: Vec<&str> = rest.split('.').collect();
        Some(match tokens[..] {
            ["NAMES"] => Self::StreamNames,
            ["LIST"] => Self::StreamList,
            ["CREATE", s] => Self::StreamCreate(s),
            ["UPDATE", s] => Self::StreamUpdate(s),
            ["DELETE", s] => Self::StreamDelete(s),
            ["INFO", s] => Self::StreamInfo(s),
            ["PURGE", s] => Self::StreamPurge(s),
            ["FENCE", s] => Self::StreamFence(s),
            ["MOVE", s] => Self::StreamMove(s),
            ["IMPORT", s] => Self::StreamImport(s),
            ["IMPORT", s, "MSGS"] => Self::StreamImportMessages(s),
            ["IMPORT", s, "READ"] => Self::StreamImportRead(s),
            ["MSG", "GET", s] => Self::MsgGet(s),
            ["MSG", "DELETE", s] => Self::MsgDelete(s),
            ["LEADER", "STEPDOWN", s] => Self::StreamStepDown(s),
            ["PEER", "REMOVE", s] => Self::StreamPeerRemove(s),
            ["SNAPSHOT", s] => Self::StreamSnapshot(s),
            ["RESTORE", s] => Self::StreamRestore(s),
            _ => return None,
        })
    }

    fn parse_consumer(rest: &'a str) -> Option<Self> {
        let tokens: Vec<&str> = rest.splitn(4, '.').collect();
        Some(match tokens[..] {
            ["CREATE", s] => Self::ConsumerCreateEphemeral(s),
            ["CREATE", stream, name] => Self::ConsumerCreate { stream, name, filter: "" },
            ["CREATE", stream, name, filter] => Self::ConsumerCreate { stream, name, filter },
            ["DURABLE", "CREATE", stream] => Self::ConsumerCreateDurable { stream, name: "" },
            ["DURABLE", "CREATE", stream, name] if !name.contains('.') => {
                Self::ConsumerCreateDurable { stream, name }
            }
            ["INFO", s, c] => Self::ConsumerInfo(s, c),
            ["DELETE", s, c] => Self::ConsumerDelete(s, c),
            ["NAMES", s] => Self::ConsumerNames(s),
            ["LIST", s] => Self::ConsumerList(s),
            ["LEADER", "STEPDOWN", s, c] => Self::ConsumerStepDown(s, c),
            ["PAUSE", s, c] => Self::ConsumerPause(s, c),
            ["UNPIN", s, c] => Self::ConsumerUnpin(s, c),
            ["RESET", s, c] => Self::ConsumerReset(s, c),
            _ => return None,
        })
    }

    fn parse_purge(account: &'a str) -> Option<Self> {
        (!account.is_empty() && !account.contains('.')).then_some(Self::AccountPurge(account))
    }

    fn parse_meta(rest: &'a str) -> Option<Self> {
        Some(match rest {
            "META.LEADER.STEPDOWN" => Self::MetaStepDown,
            "SERVER.REMOVE" => Self::ServerRemove,
            _ => return None,
        })
    }
}

/// Fields of an answer beside its error, which upstream always writes.
pub(super) fn empty_fields(api_call: &Call<'_>) -> serde_json::Value {
    match api_call {
        Call::StreamInfo(_) => json!({"total": 0, "offset": 0, "limit": 0}),
        Call::StreamPurge(_) => json!({"purged": 0}),
        Call::ConsumerPause(..) => json!({"paused": false, "pause_until": Time::ZERO}),
        Call::ConsumerReset(..) => json!({"reset_seq": 0}),
        Call::ConsumerNames(_) | Call::ConsumerList(_) => {
            json!({"total": 0, "offset": 0, "limit": 0, "consumers": []})
        }
        _ => json!({}),
    }
}

/// True if a body says nothing: empty, or an empty object.
#[must_use]
pub fn is_empty(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.is_empty() || body == b"{}" || {
        let object: Result<serde_json::Map<String, serde_json::Value>, _> =
            serde_json::from_slice(body);
        object.is_ok_and(|map| map.is_empty())
    }
}

/// Parses a body. With `strict`, a field that the type does not know is an error (10025).
///
/// # Errors
/// [`JsError::INVALID_JSON`] with the reason.
pub fn parse<T: DeserializeOwned>(body: &[u8], strict: bool) -> Result<T, JsError> {
    if body.len() > MAX_REQUEST_BYTES {
        return Err(JsError::INVALID_JSON
            .with("err", format!("request of {} bytes, at most {MAX_REQUEST_BYTES}", body.len())));
    }
    // Upstream reads nothing and `null` as an object without fields.
    let body = match body.trim_ascii() {
        b"" | b"null" => b"{}",
        _ => body,
    };
    let without_nulls = without_nulls(body)?;
    let body = without_nulls.as_deref().unwrap_or(body);
    let mut unknown: Option<String> = None;
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_ignored::deserialize(&mut json, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    })
    .and_then(|value| json.end().map(|()| value))
    .map_err(|problem| JsError::INVALID_JSON.with("err", problem))?;
    match unknown {
        Some(field) if strict => {
            let field = field.rsplit('.').next().unwrap_or_default().to_owned();
            Err(JsError::INVALID_JSON.with("err", format!("json: unknown field \"{field}\"")))
        }
        _ => Ok(value),
    }
}

/// The body without members that are `null`, if there are any: Go leaves such fields alone, and
/// some clients (async-nats) send them for every field they do not set.
fn without_nulls(body: &[u8]) -> Result<Option<Vec<u8>>, JsError> {
    if memchr::memmem::find(body, b"null").is_none() {
        return Ok(None);
    }
    let problem = |error| JsError::INVALID_JSON.with("err", error);
    let mut value: serde_json::Value = serde_json::from_slice(body).map_err(problem)?;
    drop_nulls(&mut value);
    serde_json::to_vec(&value).map(Some).map_err(problem)
}

fn drop_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// [`parse`] for requests that may have no body (or one that is not an object) at all.
///
/// # Errors
/// As [`parse`].
pub fn parse_optional<T: DeserializeOwned + Default>(
    body: &[u8],
    strict: bool,
) -> Result<T, JsError> {
    match body.trim_ascii().first() {
        Some(b'{' | b'[') => parse(body, strict),
        _ => Ok(T::default()),
    }
}
