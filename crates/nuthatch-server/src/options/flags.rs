//! The command line: nats-server's flags with Go's rules, and a few flags of our own.
//!
//! Go's rules: `-x` and `--x` are the same; the value follows after `=` or as the next argument,
//! whatever that looks like (`-p -1`); a boolean takes its value only after `=`; the last of
//! several wins; flags end at the first argument that is not one. Beyond Go, `-` inside a name
//! stands for `_`.

use super::error::FlagError;
use super::keys::Status;
use super::nearest::nearest;

/// Kind of value that a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Text,
}

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    /// Its names, the one that code knows first.
    pub names: &'static [&'static str],
    pub kind: Kind,
    pub status: Status,
    /// Its value in the help text, such as `<port>`.
    pub value: &'static str,
    pub meaning: &'static str,
}

const fn flag(
    names: &'static [&'static str],
    kind: Kind,
    value: &'static str,
    meaning: &'static str,
) -> Flag {
    Flag { names, kind, status: Status::Honoured, value, meaning }
}

const fn said(
    names: &'static [&'static str],
    kind: Kind,
    value: &'static str,
    meaning: &'static str,
    reason: &'static str,
) -> Flag {
    Flag { names, kind, status: Status::Said(reason), value, meaning }
}

const fn no(
    names: &'static [&'static str],
    kind: Kind,
    value: &'static str,
    meaning: &'static str,
) -> Flag {
    let status = Status::Refused("this version runs on one machine");
    Flag { names, kind, status, value, meaning }
}

const SERVER: &[Flag] = &[
    flag(
        &["addr", "a", "net"],
        Kind::Text,
        "<host>",
        "Address for clients (default: 127.0.0.1, with users 0.0.0.0)",
    ),
    flag(&["port", "p"], Kind::Int, "<port>", "Port for clients, -1: a free one (default: 4222)"),
    flag(
        &["name", "n", "server_name"],
        Kind::Text,
        "<name>",
        "Server name (default: the host name, for 'nats-server' its id)",
    ),
    flag(&["pid", "P"], Kind::Text, "<file>", "File that receives the process id"),
    flag(&["http_port", "m"], Kind::Int, "<port>", "Port for monitoring over HTTP"),
    flag(&["https_port", "ms"], Kind::Int, "<port>", "Port for monitoring over HTTPS"),
    flag(
        &["console"],
        Kind::Text,
        "<host:port>",
        "Address of the web console, or off (default: 127.0.0.1:8280, off for 'nats-server') (*)",
    ),
    flag(&["console_read_only"], Kind::Bool, "", "The web console changes nothing (*)"),
    flag(&["config", "c"], Kind::Text, "<file>", "Configuration file"),
    flag(&["t"], Kind::Bool, "", "Test the configuration and exit"),
    flag(
        &["signal", "sl"],
        Kind::Text,
        "<signal>[=<pid>]",
        "Signal a server: stop, quit, term, reopen, reload, ldm, clock; <pid> is an id or a pid file",
    ),
    flag(&["client_advertise"], Kind::Text, "<host:port>", "Address to tell clients"),
    flag(&["ports_file_dir"], Kind::Text, "<dir>", "Directory for <executable>_<pid>.ports"),
    flag(&["max_payload"], Kind::Text, "<size>", "Largest message, such as 8MB (default: 1MB) (*)"),
];

const LOGGING: &[Flag] = &[
    flag(&["log", "l"], Kind::Text, "<file>", "File to log to (default: standard error)"),
    flag(&["log_format"], Kind::Text, "<format>", "Log lines as nats or json (default: nats) (*)"),
    flag(&["logtime", "T"], Kind::Bool, "", "Log lines begin with the time (default: true)"),
    flag(&["logtime_utc"], Kind::Bool, "", "That time is in UTC"),
    flag(&["debug", "D"], Kind::Bool, "", "Debug lines"),
    flag(&["trace", "V"], Kind::Bool, "", "Trace the protocol"),
    flag(&["VV"], Kind::Bool, "", "Trace the protocol, the system account included"),
    flag(&["DV"], Kind::Bool, "", "Debug and trace"),
    flag(&["DVV"], Kind::Bool, "", "Debug and trace, the system account included"),
    flag(&["log_size_limit"], Kind::Int, "<bytes>", "Size at which the log file is rotated"),
    flag(&["max_traced_msg_len"], Kind::Int, "<bytes>", "Longest part of a traced message"),
    said(
        &["syslog", "s"],
        Kind::Bool,
        "",
        "Log to syslog",
        "log lines go to the log file or to standard error",
    ),
    said(
        &["remote_syslog", "r"],
        Kind::Text,
        "<addr>",
        "Log to a remote syslog",
        "log lines go to the log file or to standard error",
    ),
];

const JETSTREAM: &[Flag] = &[
    flag(&["jetstream", "js"], Kind::Bool, "", "Enable JetStream (on for 'nuthatch serve')"),
    flag(&["store_dir", "sd"], Kind::Text, "<dir>", "Directory to store in"),
    flag(
        &["store"],
        Kind::Text,
        "<address>",
        "Bucket to store in: s3://bucket/prefix, gs://, az://, file:///shared/dir (*)",
    ),
    flag(
        &["sync_interval"],
        Kind::Text,
        "<when>",
        "Make data durable: always (before every ack, the default), a duration, never (*)",
    ),
    flag(&["max_mem"], Kind::Text, "<size>", "Most bytes of memory streams, such as 1GB (*)"),
    flag(&["max_file"], Kind::Text, "<size>", "Most bytes of stored streams, such as 100GB (*)"),
];

const AUTHORIZATION: &[Flag] = &[
    flag(&["user"], Kind::Text, "<user>", "User that clients must give"),
    flag(&["pass"], Kind::Text, "<password>", "Its password"),
    flag(&["auth"], Kind::Text, "<token>", "Token that clients must give"),
];

const TLS: &[Flag] = &[
    flag(&["tls"], Kind::Bool, "", "TLS, without checking clients"),
    flag(&["tlscert"], Kind::Text, "<file>", "Certificate of the server"),
    flag(&["tlskey"], Kind::Text, "<file>", "Its private key"),
    flag(&["tlsverify"], Kind::Bool, "", "TLS, clients must present a certificate"),
    flag(&["tlscacert"], Kind::Text, "<file>", "Authorities of client certificates"),
];

const CLUSTER: &[Flag] = &[
    flag(
        &["routes"],
        Kind::Text,
        "<urls>",
        "Node ports of all nodes of a cluster, host:port,…; a name stands for one node (*)",
    ),
    flag(
        &["cluster_listen", "cluster"],
        Kind::Text,
        "<host:port>",
        "Node port; makes this server a node of a cluster. On loopback without -cluster_key (*)",
    ),
    flag(
        &["catalog"],
        Kind::Text,
        "<address>",
        "Catalog of the cluster: built-in (the default), file:///shared/dir, s3://bucket/prefix, etcd://host:2379/prefix (*)",
    ),
    flag(
        &["cluster_key"],
        Kind::Text,
        "<file>",
        "File with the secret that the nodes of a quorum log share, the same for all of them (*)",
    ),
    flag(&["node_name"], Kind::Text, "<name>", "Name of this node of a cluster; else -name (*)"),
    flag(&["cluster_name"], Kind::Text, "<name>", "Name of the cluster, as clients see it (*)"),
    flag(
        &["zone"],
        Kind::Text,
        "<name>",
        "Where this node of a cluster is: an availability zone, a rack. Spares are chosen by it (*)",
    ),
    flag(
        &["protocol_max"],
        Kind::Text,
        "<number>",
        "Newest protocol to speak with other nodes, as an older version would: to try a rolling upgrade (*)",
    ),
    no(&["cluster_advertise"], Kind::Text, "<host:port>", "Address to tell other servers"),
    said(
        &["no_advertise"],
        Kind::Bool,
        "",
        "Do not tell clients about other servers",
        "this server is alone",
    ),
    said(
        &["connect_retries"],
        Kind::Int,
        "<number>",
        "Attempts to connect to a route",
        "this server is alone",
    ),
];

const COMMON: &[Flag] = &[
    said(
        &["profile"],
        Kind::Int,
        "<port>",
        "Profiling over HTTP",
        "there is no Go profiler; use perf",
    ),
    flag(&["help", "h"], Kind::Bool, "", "Show this text"),
    flag(&["version", "v"], Kind::Bool, "", "Show the version"),
    flag(&["help_tls"], Kind::Bool, "", "Show this text too"),
];

/// The flags by section of the help text.
pub(super) static SECTIONS: &[(&str, &[Flag])] = &[
    ("Server", SERVER),
    ("Logging", LOGGING),
    ("JetStream", JETSTREAM),
    ("Authorization", AUTHORIZATION),
    ("TLS", TLS),
    ("Cluster", CLUSTER),
    ("Common", COMMON),
];

/// The value of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FlagValue {
    Bool(bool),
    Int(i64),
    Text(String),
}

/// A flag as it was given.
#[derive(Debug)]
pub(super) struct Given {
    pub flag: &'static Flag,
    /// The name under which it was given.
    pub name: String,
    pub value: FlagValue,
}

impl Given {
    /// True if the value is the flag's way to say "not at all".
    pub fn is_off(&self) -> bool {
        match &self.value {
            FlagValue::Bool(on) => !on,
            FlagValue::Int(n) => *n == 0,
            FlagValue::Text(s) => s.is_empty(),
        }
    }

    pub fn bad(&self, wanted: impl Into<String>) -> FlagError {
        let found = match &self.value {
            FlagValue::Bool(b) => b.to_string(),
            FlagValue::Int(n) => n.to_string(),
            FlagValue::Text(s) => s.clone(),
        };
        FlagError::BadValue { name: self.name.clone(), wanted: wanted.into(), found }
    }
}

/// Splits a command line into flags and the word `version` or `help` that may follow them.
pub(super) fn parse(args: &[String]) -> Result<Vec<Given>, FlagError> {
    let mut given = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            if let Some(word) = args.next() {
                given.push(word_command(word)?);
            }
            break;
        }
        let Some(body) = arg.strip_prefix('-').filter(|body| !body.is_empty()) else {
            given.push(word_command(arg)?);
            break;
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() || body.starts_with(['-', '=']) {
            return Err(FlagError::Syntax { arg: arg.clone() });
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let flag = find(name).ok_or_else(|| unknown(name))?;
        let value = match (flag.kind, inline) {
            (Kind::Bool, None) => FlagValue::Bool(true),
            (_, Some(text)) => parse_value(flag, name, text)?,
            (_, None) => {
                let text = args.next().ok_or_else(|| FlagError::NoValue {
                    name: name.to_owned(),
                    value: flag.value,
                })?;
                parse_value(flag, name, text)?
            }
        };
        given.push(Given { flag, name: name.to_owned(), value });
    }
    Ok(given)
}

/// nats-server takes `version` and `help` as words too.
fn word_command(word: &str) -> Result<Given, FlagError> {
    let name = word.to_ascii_lowercase();
    match find(&name).filter(|_| name == "version" || name == "help") {
        Some(flag) => Ok(Given { flag, name, value: FlagValue::Bool(true) }),
        None => Err(FlagError::Argument { arg: word.to_owned() }),
    }
}

fn all() -> impl Iterator<Item = &'static Flag> {
    SECTIONS.iter().flat_map(|(_, flags)| flags.iter())
}

fn find(name: &str) -> Option<&'static Flag> {
    let by_name = |name: &str| all().find(|flag| flag.names.contains(&name));
    by_name(name).or_else(|| by_name(&name.replace('-', "_")))
}

fn unknown(name: &str) -> FlagError {
    let nearest = nearest(name, all().flat_map(|flag| flag.names.iter().copied()));
    FlagError::Unknown { name: name.to_owned(), nearest }
}

fn parse_value(flag: &'static Flag, name: &str, text: &str) -> Result<FlagValue, FlagError> {
    let bad = |wanted: &str| FlagError::BadValue {
        name: name.to_owned(),
        wanted: wanted.to_owned(),
        found: text.to_owned(),
    };
    match flag.kind {
        Kind::Text => Ok(FlagValue::Text(text.to_owned())),
        Kind::Int => parse_int(text).map(FlagValue::Int).ok_or_else(|| bad("a number")),
        Kind::Bool => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(FlagValue::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(FlagValue::Bool(false)),
            _ => Err(bad("true or false")),
        },
    }
}

/// An integer as Go's flags take it: decimal, or with the prefix `0x`, `0o`, `0b` or `0`.
fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // The sign was taken off; a second one must not get through.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -number } else { number })
}

/// The text of `--help`.
pub(super) fn help(program: &str) -> String {
    use std::fmt::Write as _;
    let mut text = format!("Usage: {program} [flags]\n");
    for (title, flags) in SECTIONS {
        let _ = write!(text, "\n{title}:\n");
        for flag in *flags {
            let mut names = flag.names.to_vec();
            names.sort_by_key(|name| name.len());
            let dashed: Vec<String> = names
                .iter()
                .map(|name| if name.len() < 3 { format!("-{name}") } else { format!("--{name}") })
                .collect();
            let left = format!("{} {}", dashed.join(", "), flag.value);
            let note = match flag.status {
                Status::Honoured | Status::Depends(_) => String::new(),
                Status::Said(reason) => format!(" (no effect: {reason})"),
                Status::Refused(reason) => format!(" (refused: {reason})"),
            };
            let _ = writeln!(text, "  {left:<36} {}{note}", flag.meaning);
        }
    }
    text.push_str(
        "\nFlags override the configuration file. Flags marked (*) are not in nats-server.\n",
    );
    text
}
