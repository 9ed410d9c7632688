//! Log lines at the start of a server.

use crate::options::SyncPolicy;
use crate::server::Server;
use crate::version::{NATS_VERSION, VERSION};
use std::sync::atomic::Ordering;

/// Its name, version and settings.
pub(super) fn starting(server: &Server, commit: &str) {
    let (log, options) = (&server.log, server.options());
    log.info(format_args!("Starting nats-server (nuthatch)"));
    log.info(format_args!("  Version:  {NATS_VERSION} (nuthatch {VERSION})"));
    let commit = if commit.is_empty() { "not set" } else { commit };
    log.info(format_args!("  Git:      [{commit}]"));
    log.info(format_args!("  Name:     {}", server.name));
    log.info(format_args!("  ID:       {}", server.id));
    if let Some(file) = &options.config_file {
        log.info(format_args!("Using configuration file: {}", file.display()));
    }
    for warning in
        options.warnings.iter().chain(&options.exposure()).chain(&options.console_exposure())
    {
        log.warn(format_args!("{warning}"));
    }
    if options.limits.max_payload_bytes > crate::options::LARGE_MAX_PAYLOAD_BYTES {
        log.warn(format_args!(
            "Maximum payloads over 8388608 bytes are generally discouraged and could lead to poor performance"
        ));
    }
}

/// JetStream's logs: location, durability, and what was recovered.
pub(super) fn jetstream(server: &Server, lines: &[String]) {
    let (log, options) = (&server.log, server.options());
    let jetstream = &options.jetstream;
    log.info(format_args!("Starting JetStream"));
    let directory = jetstream.store_dir.join(crate::private_files::OUR_DIRECTORY);
    log.info(format_args!("  Store Directory: \"{}\"", directory.display()));
    if let Some(domain) = &jetstream.domain {
        log.info(format_args!("  Domain:          {domain}"));
    }
    if let Some(address) = &jetstream.store {
        log.info(format_args!("  Store:           {address}"));
        log.info(format_args!(
            "  Durability:      stored in the bucket, ownership confirmed, before every acknowledgement"
        ));
    } else {
        durability(log, jetstream.sync);
    }
    if let Some(tier) = &jetstream.tier {
        log.info(format_args!("  Tier:            {} (old segments move there)", tier.store));
    }
    for line in lines {
        log.info(format_args!("  {line}"));
    }
}

fn durability(log: &crate::logging::Logger, sync: SyncPolicy) {
    match sync {
        SyncPolicy::Always => log.info(format_args!(
            "  Durability:      fsync before every acknowledgement (sync_interval: always)"
        )),
        SyncPolicy::Every(interval) => log.warn(format_args!(
            "  Durability:      fsync every {interval:?}: a power cut may lose acknowledged messages"
        )),
        SyncPolicy::Never => log.warn(format_args!(
            "  Durability:      no fsync: a power cut may lose acknowledged messages"
        )),
    }
}

/// Address for clients, if there is one.
pub(super) fn clients(server: &Server, is_listening: bool) {
    let (host, port) = (&server.options().host, server.client_port.load(Ordering::Relaxed));
    if is_listening {
        server.log.info(format_args!("Listening for client connections on {host}:{port}"));
        if server.options().proxy_protocol {
            server.log.info(format_args!("PROXY protocol enabled for client connections"));
        }
    } else {
        server.log.info(format_args!("Serving clients in this process only"));
    }
}

/// Address for websocket clients, if there is one.
pub(super) fn websocket(server: &Server) {
    let (log, options) = (&server.log, server.options());
    let Some(websocket) = &options.websocket else { return };
    let scheme = if websocket.tls.is_some() { "wss" } else { "ws" };
    let port = server.websocket_port.load(Ordering::Relaxed);
    let host = &websocket.host;
    log.info(format_args!("Listening for websocket clients on {scheme}://{host}:{port}"));
    if websocket.tls.is_none() {
        log.warn(format_args!("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!"));
    }
}

/// Address for leaf nodes, if there is one.
pub(super) fn leafs(server: &Server) {
    let (log, options) = (&server.log, server.options());
    let Some(leafs) = options.leafnodes.as_ref().filter(|leafs| leafs.port.is_some()) else {
        return;
    };
    let port = server.leafs.port.load(Ordering::Relaxed);
    log.info(format_args!("Listening for leafnode connections on {}:{port}", leafs.host));
}
