//! Applies flags to options, over what the configuration file says.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_protocol::config::{parse_duration_ns, parse_size};

use super::address::{Port, check_advertised};
use super::auth::Secret;
use super::draft::Draft;
use super::error::{FlagError, OptionsError};
use super::file::large_payload_warning;
use super::flags::{FlagValue, Given};
use super::keys::Status;
use super::{
    CertificateFiles, DEFAULT_MAX_PAYLOAD_BYTES, LARGE_MAX_PAYLOAD_BYTES, LogFormat,
    MAX_MAX_PAYLOAD_BYTES, SyncPolicy, TlsOptions, jetstream, tls,
};

/// Applies flags in their order: the last of several wins.
pub(super) fn apply(given: &[Given], draft: &mut Draft) -> Result<(), OptionsError> {
    let mut tls_flags = TlsFlags::default();
    for flag in given {
        let name = flag.flag.names[0];
        match flag.flag.status {
            Status::Said(_) | Status::Refused(_) if flag.is_off() => {}
            Status::Said(reason) => {
                let text = format!("flag '-{}' has no effect: {reason}", flag.name);
                draft.options.warnings.push(text);
            }
            Status::Refused(reason) => {
                return Err(FlagError::Refused { name: flag.name.clone(), reason }.into());
            }
            Status::Honoured | Status::Depends(_) => match &flag.value {
                FlagValue::Bool(on) => apply_bool(name, *on, draft, &mut tls_flags),
                FlagValue::Int(number) => apply_int(name, *number, flag, draft)?,
                FlagValue::Text(text) => apply_text(name, text, flag, draft, &mut tls_flags)?,
            },
        }
    }
    tls_flags.apply(draft)
}

fn apply_bool(name: &str, on: bool, draft: &mut Draft, tls: &mut TlsFlags) {
    let log = &mut draft.options.log;
    match name {
        "debug" => log.debug = on,
        "trace" => log.trace = on,
        "VV" => (log.trace, log.trace_verbose) = (on, on),
        "DV" => (log.debug, log.trace) = (on, on),
        "DVV" => (log.debug, log.trace, log.trace_verbose) = (on, on, on),
        "logtime" => log.logtime = on,
        "logtime_utc" => log.logtime_utc = on,
        "jetstream" => draft.jetstream = Some(on),
        "console_read_only" => draft.console.set_read_only(on),
        "tls" => tls.on = Some(on),
        "tlsverify" => tls.verify = Some(on),
        // Commands were looked for before.
        _ => debug_assert!(matches!(name, "t" | "help" | "help_tls" | "version")),
    }
}

fn apply_int(
    name: &str,
    number: i64,
    given: &Given,
    draft: &mut Draft,
) -> Result<(), OptionsError> {
    let options = &mut draft.options;
    let port = || {
        let fits = (-1..=i64::from(u16::MAX)).contains(&number);
        fits.then(|| Port::new(number)).ok_or_else(|| given.bad("a port from -1 to 65535"))
    };
    match name {
        "port" => options.port = port()?.for_clients(),
        "http_port" => options.monitor.http_port = port()?.optional(),
        "https_port" => options.monitor.https_port = port()?.optional(),
        "log_size_limit" => {
            options.log.file_size_limit_bytes = u64::try_from(number).ok().filter(|&n| n > 0);
        }
        "max_traced_msg_len" => {
            options.log.max_traced_msg_bytes = usize::try_from(number).ok().filter(|&n| n > 0);
        }
        _ => debug_assert!(false, "flag '{name}' is in the table and nobody reads it"),
    }
    Ok(())
}

fn apply_text(
    name: &str,
    text: &str,
    given: &Given,
    draft: &mut Draft,
    tls: &mut TlsFlags,
) -> Result<(), OptionsError> {
    let some_text = || (!text.is_empty()).then(|| text.to_owned());
    let some_path = || (!text.is_empty()).then(|| PathBuf::from(text));
    let options = &mut draft.options;
    match name {
        "addr" => {
            if let Some(host) = some_text() {
                draft.host = Some(host);
            }
        }
        "name" if text.contains(' ') => return Err(given.bad("a name without spaces").into()),
        "name" => options.server_name = some_text().or(options.server_name.take()),
        "pid" => options.pid_file = some_path(),
        "ports_file_dir" => options.ports_file_dir = some_path(),
        "client_advertise" => {
            if check_advertised(text).is_err() {
                return Err(given.bad("host or host:port").into());
            }
            options.client_advertise = some_text();
        }
        "log" => options.log.file = some_path(),
        "log_format" => {
            options.log.format =
                LogFormat::from_word(text).ok_or_else(|| given.bad(LogFormat::WORDS))?;
        }
        "store" => options.jetstream.store = some_text(),
        "cluster_name" if text.contains(' ') => {
            return Err(given.bad("a name without spaces").into());
        }
        "routes" | "cluster_listen" | "catalog" | "node_name" | "cluster_key" | "cluster_name"
        | "protocol_max" | "zone" => draft.cluster.flag(name, text)?,
        "console" => draft.console.flag(text, given)?,
        "store_dir" => draft.store_dir = some_path().or(draft.store_dir.take()),
        "sync_interval" => options.jetstream.sync = sync(text, given)?,
        "max_mem" => options.jetstream.max_memory_bytes = byte_limit(text, given)?,
        "max_file" => options.jetstream.max_store_bytes = byte_limit(text, given)?,
        "max_payload" => max_payload(text, given, draft)?,
        "user" => options.auth.user = some_text(),
        "pass" => options.auth.password = some_text().map(Secret::new),
        "auth" => options.auth.token = some_text().map(Secret::new),
        "tlscert" => tls.cert = some_path(),
        "tlskey" => tls.key = some_path(),
        "tlscacert" => tls.ca = some_path(),
        // Commands and the configuration file were looked for before.
        _ => debug_assert!(matches!(name, "config" | "signal")),
    }
    Ok(())
}

fn sync(text: &str, given: &Given) -> Result<SyncPolicy, FlagError> {
    let wanted = "always, never or a duration such as 100ms";
    if let Some(policy) = jetstream::sync_word(text) {
        return Ok(policy);
    }
    let ns = parse_duration_ns(text).map_err(|_| given.bad(wanted))?;
    let ns = u64::try_from(ns).map_err(|_| given.bad(wanted))?;
    Ok(jetstream::sync_every(Duration::from_nanos(ns)))
}

/// A size; negative ones mean that the server decides.
fn byte_limit(text: &str, given: &Given) -> Result<Option<u64>, FlagError> {
    let bytes = parse_size(text).map_err(|_| given.bad("a size such as 10GB"))?;
    Ok(u64::try_from(bytes).ok())
}

fn max_payload(text: &str, given: &Given, draft: &mut Draft) -> Result<(), FlagError> {
    let bytes = parse_size(text).ok().and_then(|n| usize::try_from(n).ok());
    let bytes = bytes.filter(|&n| n <= MAX_MAX_PAYLOAD_BYTES);
    let bytes = bytes.ok_or_else(|| given.bad("a size of at most 64MB"))?;
    let bytes = if bytes == 0 { DEFAULT_MAX_PAYLOAD_BYTES } else { bytes };
    if bytes > LARGE_MAX_PAYLOAD_BYTES {
        draft.options.warnings.push(large_payload_warning(bytes));
    }
    draft.options.limits.max_payload_bytes = bytes;
    Ok(())
}

/// The flags about TLS, which replace the `tls` block together.
#[derive(Debug, Default)]
struct TlsFlags {
    on: Option<bool>,
    verify: Option<bool>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
}

impl TlsFlags {
    fn apply(self, draft: &mut Draft) -> Result<(), OptionsError> {
        let given = self.on.is_some()
            || self.verify.is_some()
            || self.cert.is_some()
            || self.key.is_some()
            || self.ca.is_some();
        if self.on == Some(false) {
            draft.options.tls = None;
            return Ok(());
        }
        if !given {
            return Ok(());
        }
        let (Some(cert_file), Some(key_file)) = (self.cert, self.key) else {
            return Err(FlagError::TlsWithoutCertificate.into());
        };
        let verify = self.verify.unwrap_or_default();
        if verify && self.ca.is_none() {
            let error = FlagError::NoValue { name: "tlscacert".to_owned(), value: "<file>" };
            return Err(error.into());
        }
        let timeout = draft.options.tls.take().map_or(tls::DEFAULT_TLS_TIMEOUT, |t| t.timeout);
        draft.options.tls = Some(TlsOptions {
            certificates: vec![CertificateFiles { cert_file, key_file }],
            ca_file: self.ca,
            verify,
            timeout,
            ..TlsOptions::default()
        });
        Ok(())
    }
}
