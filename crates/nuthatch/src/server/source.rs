//! Sources of facts about servers: the requests of the system account, which reach every server, or
//! the monitoring port of one server.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::TransportError;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;
use crate::show;

/// Largest page of a monitoring port that is read.
const MAX_PAGE_BYTES: u64 = 256 * 1024 * 1024;

/// After the first server has answered, the others have this long.
const STRAGGLERS: Duration = Duration::from_millis(300);

/// Options about where facts come from.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// Monitoring address of the server, such as http://127.0.0.1:8222 (default: ask through the
    /// system account, which the connection's user must belong to)
    #[arg(long, value_name = "URL", env = "NUTHATCH_MONITOR_URL")]
    monitor: Option<String>,
}

/// Answer of one server.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its name.
    pub server: String,
    /// Its words.
    pub data: Value,
    /// When they came, counted from the question.
    pub after: Duration,
}

/// A way to ask servers.
pub enum Source {
    /// Over the system account.
    System(Box<Session>),
    /// Over HTTP.
    Http {
        /// `host:port`.
        host: String,
        /// Prefix of paths, without a slash at the end.
        base: String,
        /// Limit for a page.
        timeout: Duration,
    },
}

impl Source {
    /// Opens the way that the options name.
    ///
    /// # Errors
    /// When the address is unusable or there is no connection.
    pub fn open(args: &SourceArgs, connect: &ConnectArgs) -> Result<Self, CliError> {
        match &args.monitor {
            Some(url) => Self::http(url, connect.timeout),
            None => Ok(Self::System(Box::new(Session::open(connect)?))),
        }
    }

    fn http(url: &str, timeout: Duration) -> Result<Self, CliError> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        if rest.contains("://") {
            let text = format!("{url:?}: the monitoring port is read over http:// only");
            return Err(CliError::Usage(text));
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:8222") };
        let path = path.trim_end_matches('/');
        let base = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self::Http { host, base, timeout })
    }

    /// Asks all servers (over HTTP: the one) for a page such as `varz`.
    ///
    /// # Errors
    /// When nobody answers, or the answer is not understood.
    pub fn ask(&mut self, page: &str, options: &Value) -> Result<Vec<Answer>, CliError> {
        match self {
            Self::System(session) => ask_system(session, page, options),
            Self::Http { host, base, timeout } => {
                let started = Instant::now();
                let path = format!("{base}/{page}{}", query(options));
                let data = fetch(host, &path, *timeout)?;
                let name = ["server_name", "name", "server_id"].map(|key| show::text(&data[key]));
                let name = name.into_iter().find(|name| !name.is_empty());
                let server = name.unwrap_or_else(|| host.clone());
                Ok(vec![Answer { server, data, after: started.elapsed() }])
            }
        }
    }

    /// [`Self::ask`] of one server: the named one, or the only one.
    ///
    /// # Errors
    /// When there is no such server, or several and none is named.
    pub fn ask_one(
        &mut self,
        page: &str,
        options: &Value,
        name: Option<&str>,
    ) -> Result<Answer, CliError> {
        let mut answers = self.ask(page, options)?;
        if let Some(name) = name {
            let id = |answer: &Answer| show::text(&answer.data["server_id"]);
            answers.retain(|answer| answer.server == name || id(answer) == name);
        }
        match (answers.len(), answers.pop()) {
            (1, Some(answer)) => Ok(answer),
            (0, _) | (_, None) => {
                let name = name.unwrap_or("that answers");
                Err(CliError::NotFound(format!("there is no server {name}")))
            }
            _ => Err(CliError::Usage("several servers answer; name one".into())),
        }
    }
}

/// Options as the query of a page's address.
fn query(options: &Value) -> String {
    let pairs = options.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", escape(&show::text(value)))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

/// The error for a user who is not in the system account.
fn no_system() -> CliError {
    CliError::Failed(
        "no server answers requests of the system account: connect as a user of that account, or \
         name a monitoring address with --monitor http://HOST:8222"
            .into(),
    )
}

/// What all servers that a user of the system account reaches answer, each for itself.
///
/// # Errors
/// Nobody answers, or the user may not ask.
pub(crate) fn ask_system(
    session: &mut Session,
    page: &str,
    options: &Value,
) -> Result<Vec<Answer>, CliError> {
    let suffix = if page.is_empty() { String::new() } else { format!(".{}", page.to_uppercase()) };
    let subject = format!("$SYS.REQ.SERVER.PING{suffix}");
    let inbox = session.fresh_inbox();
    let sid = session.client.subscribe(&inbox, "")?;
    let body = if options.is_null() { String::new() } else { options.to_string() };
    let started = Instant::now();
    session.client.writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())?;
    session.client.writer.flush()?;
    let mut answers = Vec::new();
    loop {
        let timeout = if answers.is_empty() { session.timeout } else { STRAGGLERS };
        let message = match session.client.next_message(Instant::now() + timeout) {
            Ok(message) => message,
            Err(TransportError::TimedOut(_)) => break,
            // A user without the permission to ask.
            Err(TransportError::Server(text)) if text.contains("Permissions Violation") => {
                return Err(no_system());
            }
            Err(err) => return Err(err.into()),
        };
        if message.view().status() == Some(503) {
            return Err(no_system());
        }
        answers.push(answer(&message.payload, started.elapsed())?);
    }
    session.client.writer.unsubscribe(sid)?;
    if answers.is_empty() { Err(no_system()) } else { Ok(answers) }
}

fn answer(body: &[u8], after: Duration) -> Result<Answer, CliError> {
    let mut json: Value = serde_json::from_slice(body)
        .map_err(|err| CliError::Failed(format!("a server's answer is no JSON: {err}")))?;
    if let Some(text) = json["error"]["description"].as_str() {
        return Err(CliError::Failed(format!("a server refuses: {text}")));
    }
    let server = show::text(&json["server"]["name"]);
    let data = if json["data"].is_null() { json } else { json["data"].take() };
    Ok(Answer { server, data, after })
}

/// One page over HTTP/1.0, where the end of the connection is the end of the page.
fn fetch(host: &str, path: &str, timeout: Duration) -> Result<Value, CliError> {
    let failed = |why: String| {
        CliError::Failed(format!("http://{host}{path}: {why}; is the monitoring port open (-m)?"))
    };
    let io = |err: std::io::Error| failed(err.to_string());
    let address = host.to_socket_addrs().map_err(io)?.next();
    let address = address.ok_or_else(|| failed("the name has no address".into()))?;
    let mut socket = TcpStream::connect_timeout(&address, timeout).map_err(io)?;
    socket.set_read_timeout(Some(timeout)).map_err(io)?;
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(io)?;
    let mut page = Vec::new();
    socket.take(MAX_PAGE_BYTES).read_to_end(&mut page).map_err(io)?;
    let end = page.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.ok_or_else(|| failed("the answer is no HTTP".into()))?;
    let head = String::from_utf8_lossy(&page[..end]);
    let status = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    // A server that is not well says so with a 503 and its reasons.
    if status != "200" && status != "503" {
        return Err(failed(format!("the server answers with status {status}")));
    }
    serde_json::from_slice(&page[end + 4..]).map_err(|err| failed(err.to_string()))
}

/// Options without any.
pub fn none() -> Value {
    json!({})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_queries() {
        let check = |url: &str, expected: Option<(&str, &str)>| {
            let found = match Source::http(url, Duration::from_secs(1)) {
                Ok(Source::Http { host, base, .. }) => Some((host, base)),
                _ => None,
            };
            let expected = expected.map(|(host, base)| (host.to_owned(), base.to_owned()));
            assert_eq!(found, expected, "{url}");
        };
        check("http://h:1", Some(("h:1", "")));
        check("h", Some(("h:8222", "")));
        check("http://h:1/mon/", Some(("h:1", "/mon")));
        check("https://h", None);
        assert_eq!(query(&json!({ "a": 1, "b": "x y" })), "?a=1&b=x%20y");
        assert_eq!(query(&Value::Null), "");
    }
}
