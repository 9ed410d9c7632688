//! Opens logs of just this node while it runs: the one that is begun when the first stream comes to it, and any anew.

use crate::durable_logs::{self, Taken, take_all};
use crate::engines::OpenLocal;
use crate::handle::JetStreamHandle;
use crate::known_logs::KnownLogs;
use crate::local_log;
use crate::log_table::AttachedLog;
use crate::logs_port::LogsPort as _;
use crate::registry::LOCAL_LOG;
use nuthatch_log::LogCore;
use nuthatch_server::jetstream_port::{LogId, LogSlot};
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::Engine;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Opens the log, which is begun if it is not there, unless it is open; or opens a log in a directory anew.
pub(super) fn opener(server: &Arc<Server>, jetstream: &Arc<JetStreamHandle>) -> OpenLocal {
    let (server, jetstream) = (Arc::downgrade(server), Arc::downgrade(jetstream));
    let turn = Arc::new(Mutex::new(()));
    Box::new(move |anew| {
        let (server, jetstream, turn) = (server.clone(), jetstream.clone(), turn.clone());
        let opening = async move {
            // One at a time: whoever comes second finds it open.
            let _turn = turn.lock().await;
            let gone = || "the server is gone".to_owned();
            let (server, jetstream) =
                (server.upgrade().ok_or_else(gone)?, jetstream.upgrade().ok_or_else(gone)?);
            match anew {
                None => open(&server, &jetstream).await,
                Some(log) => reopen(&server, &jetstream, log).await,
            }
        };
        Box::pin(async move {
            // Whoever waits may give up; a log that is half open helps nobody.
            tokio::spawn(opening).await.map_err(|panic| panic.to_string())?
        })
    })
}

async fn open(server: &Arc<Server>, jetstream: &JetStreamHandle) -> Result<LogId, String> {
    let attached = jetstream.engines().attached();
    if let Some((_, log)) = attached.into_iter().find(|(name, _)| name == LOCAL_LOG) {
        return Ok(log);
    }
    let id = serve(server, jetstream, LOCAL_LOG.to_owned()).await?;
    server.log.info(format_args!("Log {LOCAL_LOG} is open: streams of this node only"));
    Ok(id)
}

/// Closes a log in a directory of this node and opens it anew.
async fn reopen(
    server: &Arc<Server>,
    jetstream: &JetStreamHandle,
    log: LogId,
) -> Result<LogId, String> {
    let gone = jetstream.detach(log).ok_or("it is not open")?;
    let name = gone.name.clone();
    let closed = tokio::task::spawn_blocking(move || gone.handle.close()).await;
    server.logs.remove(&name);
    closed.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())?;
    serve(server, jetstream, name).await
}

async fn serve(
    server: &Arc<Server>,
    jetstream: &JetStreamHandle,
    name: String,
) -> Result<LogId, String> {
    let (opening, named) = (server.clone(), name.clone());
    let taken = tokio::task::spawn_blocking(move || take(&opening, &named));
    let taken = taken.await.map_err(|panic| panic.to_string())?;
    let (slot, core) = taken.inspect_err(|_| server.logs.remove(&name))?;
    let id = LogId(core.log_id());
    let spawned = core.spawn(&format!("log-{name}")).map_err(|error| error.to_string());
    let handle = spawned.inspect_err(|_| server.logs.remove(&name))?;
    let named = name.clone();
    let log = AttachedLog::new(id, slot, name, handle.clone());
    if let Err(why) = jetstream.attach(log).await {
        server.logs.remove(&named);
        // Its threads end; what is on the disk is found again.
        let closed = tokio::task::spawn_blocking(move || handle.close()).await;
        let also = closed.map_err(|panic| panic.to_string())?.err();
        let also = also.map(|error| format!("; closing it: {error}")).unwrap_or_default();
        return Err(format!("{why}{also}"));
    }
    Ok(id)
}

fn take(
    server: &Arc<Server>,
    name: &str,
) -> Result<(LogSlot, LogCore<Engine<ServerSink>>), String> {
    let options = server.options();
    let mut homes = match name {
        LOCAL_LOG => vec![durable_logs::local(&options, local_log::dir_of(&options))],
        _ => durable_logs::durable_logs(&options),
    };
    homes.retain(|home| home.name == name);
    if homes.is_empty() {
        return Err(format!("the configuration has no log {name:?}"));
    }
    let named = homes.iter().filter_map(|home| Some((home.name.clone(), home.dir(&options)?)));
    let known = KnownLogs::of(&options.jetstream.store_dir, named)?;
    let ready = vec![homes[0].ready(server, &options, &known)?];
    known.prepare()?;
    let mut taken = take_all(&homes, ready, server, &options)?;
    let Taken { opened: (core, _), identity } = taken.pop().expect("as many as were ready");
    known.note(identity.map(|identity| (name.to_owned(), identity)).into_iter().collect())?;
    Ok((homes[0].slot, core))
}
