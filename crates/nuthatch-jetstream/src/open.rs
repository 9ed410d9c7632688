//! Opening the logs of a server and putting engines and the service on them.

use crate::banner;
use crate::clock;
use crate::durable_logs::{MEMORY_SLOT, Taken, durable_logs, in_memory, open_on, take_all};
use crate::engine::{engine, reporter};
use crate::engines::Engines;
use crate::handle::JetStreamHandle;
use crate::known_logs::KnownLogs;
use crate::log_table::AttachedLog;
use crate::owned_logs::OwnedLogs;
use crate::registry::MEMORY_LOG;
use crate::routing::CoreRouting;
use crate::settings::settings;
use crate::{local_log, local_opener};
use nuthatch_log::env::RamDisk;
use nuthatch_log::{LogCore, LogOptions};
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::logs::memory_store_bytes;
use nuthatch_server::options::Options;
use nuthatch_server::process::{QuorumLogs, StartedJetStream};
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opens the logs, starts their threads and loads the registry. Blocks while it recovers; runs on
/// a thread of the runtime that may block.
///
/// # Errors
/// A sentence for the log: which log cannot be opened and what to do about it.
pub fn start(server: &Arc<Server>) -> Result<StartedJetStream, String> {
    let options = server.options();
    if !options.jetstream.enabled {
        return start_without_logs(server, &options);
    }
    let store = &options.jetstream.store_dir;
    if store.exists() && !store.is_dir() {
        // The words of nats-server, which people look for.
        return Err(format!("storage directory is not a directory: {}", store.display()));
    }
    if options.cluster.is_some() {
        local_log::check_name(&options)?;
    }
    let durable_logs = durable_logs(&options);
    let known = KnownLogs::of(
        &options.jetstream.store_dir,
        durable_logs.iter().filter_map(|home| Some((home.name.clone(), home.dir(&options)?))),
    )?;
    // Nothing is taken from another server before all of it can be opened, as far as one can tell.
    let ready: Result<Vec<_>, _> =
        durable_logs.iter().map(|home| home.ready(server, &options, &known)).collect();
    let ready = ready?;
    known.prepare()?;
    let memory = open_memory(server, &options)?;
    let (mut opened, mut reports, mut identities) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (home, taken) in durable_logs.iter().zip(take_all(&durable_logs, ready, server, &options)?)
    {
        let Taken { opened: (core, report), identity } = taken;
        identities.extend(identity.map(|identity| (home.name.clone(), identity)));
        reports.push((home.name.clone(), report));
        opened.push((home.name.clone(), home.slot, core));
    }
    known.note(identities)?;
    // Behind the default log.
    let place = opened.len().min(1);
    opened.insert(place, (MEMORY_LOG.to_owned(), MEMORY_SLOT, memory));
    let engines = Arc::new(Engines::default());
    for (name, slot, core) in opened {
        let id = LogId(core.log_id());
        let handle = core.spawn(&format!("log-{name}")).map_err(|error| error.to_string())?;
        let log = AttachedLog::new(id, slot, name, handle);
        engines.logs.attach(log).map_err(|error| error.to_string())?;
    }
    let started = JetStreamHandle::start(
        engines,
        Arc::new(CoreRouting::of(server)),
        settings(server, &options),
    );
    let jetstream = tokio::runtime::Handle::current().block_on(started)?;
    let mut lines = banner::recovered(&reports, jetstream.stream_count());
    lines.extend(local_log::line(&options));
    if options.cluster.is_some() {
        jetstream.engines().open_local_by(local_opener::opener(server, &jetstream));
    }
    let owned = || Arc::new(OwnedLogs::new(server, &jetstream)) as Arc<dyn QuorumLogs>;
    let quorum = options.cluster.is_some().then(owned);
    Ok(StartedJetStream { jetstream, lines, quorum })
}

/// The service of a node without JetStream: calls are handed on to the nodes that have the logs.
fn start_without_logs(server: &Arc<Server>, options: &Options) -> Result<StartedJetStream, String> {
    let core = Arc::new(CoreRouting::of(server));
    let started = JetStreamHandle::start(Arc::default(), core, settings(server, options));
    let jetstream = tokio::runtime::Handle::current().block_on(started)?;
    Ok(StartedJetStream { jetstream, lines: Vec::new(), quorum: None })
}

fn open_memory(
    server: &Arc<Server>,
    options: &Options,
) -> Result<LogCore<Engine<ServerSink>>, String> {
    let budget = memory_store_bytes(options);
    let report = reporter(server);
    let log_options = in_memory(LogOptions { report, ..LogOptions::memory() }, budget);
    let engine = engine(server, (MEMORY_SLOT, MEMORY_LOG), true, options);
    let disk = Arc::new(RamDisk::new(budget));
    let opened = open_on(disk, log_options, (None, engine), clock::of(server));
    let (core, _) = opened.map_err(|error| error.to_string())?;
    Ok(core)
}
