//! Reads the top level of a configuration file into options.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{Entry, Map, Value};

use super::draft::Draft;
use super::error::ProblemKind;
use super::read::ConfigReader;
use super::tables::TOP;
use super::{
    DEFAULT_MAX_CLOSED_CLIENTS, DEFAULT_MAX_CONTROL_LINE_BYTES, DEFAULT_MAX_PAYLOAD_BYTES,
    DEFAULT_MAX_PENDING_BYTES, LARGE_MAX_PAYLOAD_BYTES, Limits, LogFormat, MAX_MAX_PAYLOAD_BYTES,
    accounts, address, jetstream, leafnodes, mappings, operator, otlp, tls, users, websocket,
};

/// Shortest `lame_duck_duration`, as in nats-server.
const MIN_LAME_DUCK: Duration = Duration::from_secs(30);
/// Highest `max_control_line`: a line is kept whole in a buffer of the connection.
const MAX_MAX_CONTROL_LINE_BYTES: i64 = 1024 * 1024;
/// Highest `max_closed_clients`: each one is kept in memory.
const MAX_MAX_CLOSED_CLIENTS: i64 = 1_000_000;

/// Reads a whole configuration.
pub(super) fn read(r: &mut ConfigReader, map: &Map, draft: &mut Draft) {
    if map.is_empty() {
        r.warnings.push("the configuration file holds no settings".to_owned());
    }
    r.walk(&TOP, map, |r, key, entry| {
        let known = network(r, key, &entry.value, draft)
            || logging(r, key, &entry.value, draft)
            || identity(r, key, &entry.value, draft)
            || limits(r, key, &entry.value, draft)
            || timing(r, key, &entry.value, draft)
            || operator::key(r, key, &entry.value, &mut draft.options)
            || blocks(r, key, entry, draft);
        debug_assert!(known, "key '{key}' is in the table and nobody reads it");
    });
}

/// Puts a value that could be read in its place.
fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn network(r: &mut ConfigReader, key: &'static str, value: &Value, draft: &mut Draft) -> bool {
    let options = &mut draft.options;
    match key {
        "listen" => {
            if let Some(listen) = address::listen(r, key, value) {
                draft.host = listen.host.or(draft.host.take());
                options.port = listen.port.for_clients();
            }
        }
        "host" => draft.host = r.word(key, value).map(str::to_owned).or(draft.host.take()),
        "port" => put(&mut options.port, address::port(r, key, value).map(|p| p.for_clients())),
        "client_advertise" => {
            if let Some(text) = r.text(key, value) {
                options.client_advertise = address::advertised(r, key, &value.pos, text);
            }
        }
        "ocsp" => put(&mut options.ocsp, super::ocsp::ocsp(r, value)),
        "ocsp_cache" => put(&mut options.ocsp_cache, super::ocsp::ocsp_cache(r, value)),
        "proxies" => options.proxies = super::proxies::proxies(r, value),
        "proxy_protocol" => put(&mut options.proxy_protocol, r.boolean(key, value)),
        "no_header_support" => put(&mut options.no_header_support, r.boolean(key, value)),
        "http" => {
            if let Some(listen) = address::listen(r, key, value) {
                draft.monitor_host = listen.host.or(draft.monitor_host.take());
                options.monitor.http_port = listen.port.optional();
            }
        }
        "https" => {
            if let Some(listen) = address::listen(r, key, value) {
                draft.monitor_host = listen.host.or(draft.monitor_host.take());
                options.monitor.https_port = listen.port.optional();
            }
        }
        "http_port" => {
            let port = address::port(r, key, value);
            put(&mut options.monitor.http_port, port.map(|p| p.optional()));
        }
        "https_port" => {
            let port = address::port(r, key, value);
            put(&mut options.monitor.https_port, port.map(|p| p.optional()));
        }
        "http_base_path" => {
            put(&mut options.monitor.base_path, r.text(key, value).map(address::base_path));
        }
        _ => return false,
    }
    true
}

fn logging(r: &mut ConfigReader, key: &'static str, value: &Value, draft: &mut Draft) -> bool {
    let log = &mut draft.options.log;
    match key {
        "debug" => put(&mut log.debug, r.boolean(key, value)),
        "trace" => put(&mut log.trace, r.boolean(key, value)),
        "trace_verbose" | "trace_headers" => {
            if let Some(on) = r.boolean(key, value) {
                log.trace = on;
                let place = match key {
                    "trace_verbose" => &mut log.trace_verbose,
                    _ => &mut log.trace_headers,
                };
                *place = on;
            }
        }
        "log_format" => {
            if let Some(word) = r.text(key, value) {
                match LogFormat::from_word(word) {
                    Some(format) => log.format = format,
                    None => r.invalid(&value.pos, key, format!("must be {}", LogFormat::WORDS)),
                }
            }
        }
        "logtime" => put(&mut log.logtime, r.boolean(key, value)),
        "logtime_utc" => put(&mut log.logtime_utc, r.boolean(key, value)),
        "log_file" => put(&mut log.file, path(r, key, value)),
        "logfile_size_limit" => {
            put(&mut log.file_size_limit_bytes, r.limit(key, value, true));
        }
        "logfile_max_num" => put(&mut log.file_max_count, r.count(key, value, true)),
        "max_traced_msg_len" => {
            let limit = r.count(key, value, true);
            put(&mut log.max_traced_msg_bytes, limit.map(|l| l.map(|n| n as usize)));
        }
        _ => return false,
    }
    true
}

/// A path; an empty one is none.
fn path(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Option<PathBuf>> {
    r.text(key, value).map(|text| (!text.is_empty()).then(|| PathBuf::from(text)))
}

fn identity(r: &mut ConfigReader, key: &'static str, value: &Value, draft: &mut Draft) -> bool {
    let options = &mut draft.options;
    match key {
        "server_name" => match r.text(key, value) {
            Some(name) if name.contains(' ') => r.invalid(&value.pos, key, "cannot hold spaces"),
            Some(name) => options.server_name = (!name.is_empty()).then(|| name.to_owned()),
            None => {}
        },
        "server_tags" => {
            for tag in r.texts(key, value).unwrap_or_default() {
                // nats-server keeps tags trimmed, in lower case and once.
                let tag = tag.trim().to_lowercase();
                if !tag.is_empty() && !options.server_tags.contains(&tag) {
                    options.server_tags.push(tag);
                }
            }
        }
        "server_metadata" => {
            for entry in r.map(key, value).map(Map::entries).unwrap_or_default() {
                if let Some(text) = r.text(&entry.key, &entry.value) {
                    options.server_metadata.insert(entry.key.clone(), text.to_owned());
                }
            }
        }
        "pid_file" => put(&mut options.pid_file, path(r, key, value)),
        "ports_file_dir" => put(&mut options.ports_file_dir, path(r, key, value)),
        "no_auth_user" => {
            let name = r.text(key, value);
            put(&mut options.auth.no_auth_user, name.map(|n| (!n.is_empty()).then(|| n.into())));
        }
        "system_account" => {
            put(&mut options.system_account, r.word(key, value).map(str::to_owned));
        }
        _ => return false,
    }
    true
}

fn limits(r: &mut ConfigReader, key: &'static str, value: &Value, draft: &mut Draft) -> bool {
    draft.has_max_subscriptions |= key == "max_subscriptions";
    let limits = &mut draft.options.limits;
    match key {
        "max_payload" => put(&mut limits.max_payload_bytes, max_payload(r, value)),
        "max_pending" => {
            let bytes = r.size(key, value, 0, i64::from(u32::MAX));
            put(&mut limits.max_pending_bytes, or_default(bytes, DEFAULT_MAX_PENDING_BYTES));
        }
        "max_control_line" => {
            let bytes = r.size(key, value, 0, MAX_MAX_CONTROL_LINE_BYTES);
            let default = DEFAULT_MAX_CONTROL_LINE_BYTES;
            put(&mut limits.max_control_line_bytes, or_default(bytes, default));
        }
        "max_connections" => {
            let count = r.int(key, value, i64::MIN, i64::from(u32::MAX));
            // Like nats-server: neither 0 nor a negative number admits anybody.
            put(&mut limits.max_connections, count.map(|n| u32::try_from(n).unwrap_or(0)));
        }
        "max_subscriptions" => put(&mut limits.max_subscriptions, r.count(key, value, true)),
        "max_sub_tokens" => {
            let tokens = r.int(key, value, 1, i64::from(u8::MAX));
            put(&mut limits.max_subscription_tokens, tokens.map(|n| u8::try_from(n).ok()));
        }
        "max_closed_clients" => {
            let count = r.int(key, value, 0, MAX_MAX_CLOSED_CLIENTS);
            put(&mut limits.max_closed_clients, or_default(count, DEFAULT_MAX_CLOSED_CLIENTS));
        }
        "ping_max" => {
            let count = r.int(key, value, 0, i64::from(u16::MAX));
            let default = Limits::default().ping_max as usize;
            put(&mut limits.ping_max, or_default(count, default).map(|n| n as u32));
        }
        "no_fast_producer_stall" => {
            put(&mut limits.no_fast_producer_stall, r.boolean(key, value));
        }
        _ => return false,
    }
    true
}

/// 0 stands for the default. The number was checked to be in bounds.
fn or_default(number: Option<i64>, default: usize) -> Option<usize> {
    number.map(|n| match usize::try_from(n) {
        Ok(0) | Err(_) => default,
        Ok(n) => n,
    })
}

fn max_payload(r: &mut ConfigReader, value: &Value) -> Option<usize> {
    let highest = i64::try_from(MAX_MAX_PAYLOAD_BYTES).unwrap_or(i64::MAX);
    let bytes = r.size("max_payload", value, 0, highest);
    let bytes = or_default(bytes, DEFAULT_MAX_PAYLOAD_BYTES)?;
    if bytes > LARGE_MAX_PAYLOAD_BYTES {
        r.warn(&value.pos, large_payload_warning(bytes));
    }
    Some(bytes)
}

/// Warning about a very large `max_payload`.
pub(super) fn large_payload_warning(bytes: usize) -> String {
    format!("max_payload of {bytes} is large: above 8MB memory use and latency suffer")
}

fn timing(r: &mut ConfigReader, key: &'static str, value: &Value, draft: &mut Draft) -> bool {
    let options = &mut draft.options;
    if key == "ready_timeout" {
        if let Some(time) = r.duration(key, value) {
            options.ready_timeout = (!time.is_zero()).then_some(time);
        }
        return true;
    }
    let place = match key {
        "ping_interval" => &mut options.limits.ping_interval,
        "write_deadline" => &mut options.limits.write_deadline,
        "lame_duck_duration" => &mut options.lame_duck_duration,
        "lame_duck_grace_period" => &mut options.lame_duck_grace_period,
        "write_timeout" => {
            // All mean the same: see the table.
            let words = &["default", "close", "retry"];
            let _ = r.choice(key, value, words, "'default', 'close' or 'retry'");
            return true;
        }
        _ => return false,
    };
    let Some(duration) = r.duration(key, value) else { return true };
    let is_zero_default = matches!(key, "ping_interval" | "write_deadline");
    if key == "lame_duck_duration" && duration < MIN_LAME_DUCK {
        let (key, found) = (key.to_owned(), format!("{duration:?}"));
        r.problem(&value.pos, ProblemKind::TooShort { key, min: "30s", found });
    } else if !(is_zero_default && duration.is_zero()) {
        *place = duration;
    }
    true
}

fn blocks(r: &mut ConfigReader, key: &'static str, entry: &Entry, draft: &mut Draft) -> bool {
    let value = &entry.value;
    match key {
        "authorization" => users::authorization(r, value, draft),
        "accounts" => accounts::accounts(r, value, &mut draft.options),
        "mappings" => draft.options.mappings = mappings::mappings(r, key, value),
        "tls" => put(&mut draft.options.tls, tls::tls(r, value).map(Some)),
        "allow_non_tls" => put(&mut draft.options.allow_non_tls, r.boolean(key, value)),
        "leafnodes" => draft.options.leafnodes = Some(leafnodes::leafnodes(r, value)),
        "websocket" => draft.options.websocket = websocket::websocket(r, value),
        "console" => draft.console.block(r, value),
        "otlp" => draft.options.otlp = otlp::otlp(r, value),
        "jetstream" => jetstream::jetstream(r, value, draft),
        "store_dir" => jetstream::store_dir(r, &entry.key, value, draft),
        "cluster" => draft.cluster.block(r, entry),
        _ => return false,
    }
    true
}
