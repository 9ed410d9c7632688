//! The handshake (RFC 6455 §4.2): an HTTP request is examined and answered.

use crate::options::WebsocketOptions;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use std::net::IpAddr;

/// Headers of a request that are looked at.
const HEADERS_MAX: usize = 64;
/// GUID appended to a client's key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Headers by which the origin is judged.
const SINGLE: [&str; 3] = ["Host", "Origin", "Sec-WebSocket-Origin"];
/// End of the path under which servers connect as leaf nodes.
pub(super) const LEAF_PATH: &str = "/leafnode";
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

/// Result of the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Upgrade {
    /// The one address in `X-Forwarded-For`; shown in log lines.
    pub forwarded_for: Option<IpAddr>,
    /// Messages may be compressed.
    pub compress: bool,
    /// Its frames are masked.
    pub masked: bool,
    /// It is another server, which connects as a leaf node.
    pub is_leaf: bool,
    /// Credentials from cookies.
    pub cookies: Cookies,
}

/// Credentials from cookies; they count where the CONNECT says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cookies {
    /// From the cookie `user_cookie` names.
    pub user: Option<String>,
    /// From `pass_cookie`.
    pub password: Option<String>,
    /// From `token_cookie`.
    pub token: Option<String>,
    /// From `jwt_cookie`.
    pub jwt: Option<String>,
}

/// A request that is not granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Why, for the log and the client.
    pub why: String,
}

impl Refusal {
    fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    /// The response.
    #[must_use]
    pub fn response(&self) -> Vec<u8> {
        let reason = match self.status {
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            _ => "Bad Request",
        };
        let (status, body) = (self.status, &self.why);
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// A request, as far as it matters here.
struct Request<'a> {
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// True if one of the values, which are separated by commas, is this one.
    fn has(&self, name: &str, wanted: &str) -> bool {
        let same_name = |(known, _): &&(&str, &str)| known.eq_ignore_ascii_case(name);
        let mut values =
            self.headers.iter().filter(same_name).flat_map(|(_, value)| value.split(','));
        values.any(|value| value.trim().eq_ignore_ascii_case(wanted))
    }
}

/// Examines a request, once all of its head is there: what was agreed and the response.
///
/// # Errors
/// [`Refusal`]. `Ok(None)`: the head is not complete.
pub fn examine(
    head: &[u8],
    options: &WebsocketOptions,
    tls: bool,
) -> Result<Option<(Upgrade, Vec<u8>)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(len)) if len < head.len() => {
            let why = "client sent data before handshake is complete";
            return Err(Refusal::new(400, why));
        }
        Ok(httparse::Status::Complete(_)) => {}
        Err(error) => return Err(Refusal::new(400, format!("cannot read the request: {error}"))),
    }
    let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let is_leaf = path.ends_with(LEAF_PATH);
    if path.ends_with("/mqtt") {
        return Err(Refusal::new(404, format!("{path} is not served here")));
    }
    if parsed.method != Some("GET") {
        return Err(Refusal::new(405, "request method must be GET"));
    }
    let texts = parsed.headers.iter().filter_map(|header| {
        std::str::from_utf8(header.value).ok().map(|value| (header.name, value))
    });
    let request = Request { headers: texts.collect() };
    let key = checked_key(&request)?;
    for name in SINGLE {
        check_single(parsed.headers, name)?;
    }
    let host = request.get("Host").unwrap_or_default();
    let origin = request.get("Origin").or_else(|| request.get("Sec-WebSocket-Origin"));
    if let Some(origin) = origin
        && let Err(why) = options.allows_origin(origin, host, tls)
    {
        return Err(Refusal::new(403, format!("origin not allowed: {why}")));
    }
    let upgrade = Upgrade { is_leaf, ..agree(&request, options) };
    let response = accept(key, &upgrade, options);
    Ok(Some((upgrade, response)))
}

/// A header by which the origin is judged must be readable and must not come twice: what another
/// reader takes for it may be the other one.
fn check_single(headers: &[httparse::Header<'_>], name: &str) -> Result<(), Refusal> {
    let mut of_name = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    match (of_name.next(), of_name.next()) {
        (Some(header), None) if std::str::from_utf8(header.value).is_err() => {
            Err(Refusal::new(403, format!("'{name}' is not UTF-8")))
        }
        (_, Some(_)) => Err(Refusal::new(403, format!("'{name}' comes twice"))),
        _ => Ok(()),
    }
}

fn checked_key<'a>(request: &Request<'a>) -> Result<&'a str, Refusal> {
    if request.get("Host").is_none_or(str::is_empty) {
        return Err(Refusal::new(400, "'Host' missing in request"));
    }
    if !request.has("Upgrade", "websocket") {
        return Err(Refusal::new(400, "invalid value for header 'Upgrade'"));
    }
    if !request.has("Connection", "Upgrade") {
        return Err(Refusal::new(400, "invalid value for header 'Connection'"));
    }
    let Some(key) = request.get("Sec-WebSocket-Key") else {
        return Err(Refusal::new(400, "key missing"));
    };
    if STANDARD.decode(key).map_or(0, |raw| raw.len()) != KEY_BYTES {
        return Err(Refusal::new(400, "invalid websocket key"));
    }
    if !request.has("Sec-WebSocket-Version", "13") {
        return Err(Refusal::new(400, "invalid version"));
    }
    Ok(key)
}

fn agree(request: &Request<'_>, options: &WebsocketOptions) -> Upgrade {
    let extensions = request
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("Sec-WebSocket-Extensions"));
    let mut offered = extensions.flat_map(|(_, value)| value.split(','));
    let deflates = |offer: &str| {
        let name = offer.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("permessage-deflate")
    };
    Upgrade {
        forwarded_for: request.get("X-Forwarded-For").and_then(|value| value.parse().ok()),
        compress: options.compression && offered.any(deflates),
        // Asked for by servers and clients that trust their network.
        masked: request.get("Nats-No-Masking") != Some("true"),
        is_leaf: false,
        cookies: cookies(request, options),
    }
}

fn cookies(request: &Request<'_>, options: &WebsocketOptions) -> Cookies {
    let sent = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Cookie"));
    let pairs: Vec<(&str, &str)> = sent
        .flat_map(|(_, value)| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    let find = |name: &Option<String>| {
        let name = name.as_ref()?;
        pairs.iter().find(|(known, _)| known == name).map(|(_, value)| (*value).to_owned())
    };
    Cookies {
        user: find(&options.user_cookie),
        password: find(&options.password_cookie),
        token: find(&options.token_cookie),
        jwt: find(&options.jwt_cookie),
    }
}

fn accept(key: &str, upgrade: &Upgrade, options: &WebsocketOptions) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n",
        accept_key(key)
    );
    if upgrade.compress {
        out.push_str(
            "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
             client_no_context_takeover\r\n",
        );
    }
    if !upgrade.masked {
        out.push_str("Nats-No-Masking: true\r\n");
    }
    for (name, value) in &options.headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.push_str("\r\n");
    out.into_bytes()
}

pub(super) fn accept_key(key: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(GUID);
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests;
