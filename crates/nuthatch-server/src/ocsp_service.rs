//! OCSP as a service: responses for the server's own certificates are asked for, kept and renewed, and the
//! cache of those about others is written.

use crate::options::{OcspCache, Options};
use crate::server::Server;
use crate::tls::ocsp::{
    FetchError, PeerCache, Response, ResponseError, Status, Way, fetch, read, replace, request,
};
use crate::tls::staple::{Staple, is_current};
use crate::tls::{Loaded, TlsError};
use ring::digest;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, timeout_at};

/// Longest wait for a responder that is asked for a response to staple.
pub const STAPLE_FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait at the start for the responses of all certificates together.
pub const STAPLE_START_TIMEOUT: Duration = Duration::from_secs(150);
/// When a response that says no end is renewed.
pub const STAPLE_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// When a response that is over, or could not be had, is asked for again.
pub const STAPLE_RETRY: Duration = Duration::from_secs(120);
/// Responders are asked no more often than this for one certificate.
pub const STAPLE_PAUSE: Duration = Duration::from_secs(1);
/// Subdirectory of the store directory with the responses.
const DIRECTORY: &str = "ocsp";

/// Why there is no response to staple.
#[derive(Debug, thiserror::Error)]
enum StapleError {
    #[error("no available ocsp servers")]
    NoResponders,
    #[error("exhausted ocsp servers: {0}")]
    Fetch(#[from] FetchError),
    #[error("exhausted ocsp servers: failed to get remote status from {responder}: {source}")]
    Response { responder: String, source: ResponseError },
    #[error(
        "exhausted ocsp servers: failed to get remote status from {0}: it is over, or has not begun"
    )]
    NotCurrent(String),
    #[error("the response is older than the one that is shown")]
    Older,
}

/// Gets the responses that certificates need to be shown, all within `limit`, and begins to keep them new.
///
/// # Errors
/// There is none for a certificate that counts, or it says that the server must not run.
pub async fn start(server: &Arc<Server>, loaded: &Loaded, limit: Duration) -> Result<(), TlsError> {
    let options = server.options();
    let end = Instant::now() + limit;
    for staple in loaded.staples() {
        if recall(server, staple).is_none()
            && let Err(error) = timeout_at(end, renew(server, &options, staple))
                .await
                .unwrap_or(Err(StapleError::Fetch(FetchError::Timeout(limit))))
        {
            let file = staple.file.display();
            let text = format!("bad OCSP status update for certificate at '{file}': {error}");
            return Err(TlsError::Ocsp(text));
        }
        check(staple)?;
    }
    begin(server, loaded);
    keep_cache(server);
    Ok(())
}

/// As [`start`], for a configuration that was read again: what is not there yet comes later.
///
/// # Errors
/// A response says that the server must not run with one of the certificates.
pub(crate) fn prepare(server: &Server, loaded: &Loaded) -> Result<(), TlsError> {
    for staple in loaded.staples() {
        recall(server, staple);
        check(staple)?;
    }
    Ok(())
}

/// Replaces the tasks that keep responses new.
pub(crate) fn restart(server: &Arc<Server>, loaded: &Loaded) {
    begin(server, loaded);
}

/// Makes the cache anew if its options have changed.
pub(crate) fn restart_cache(server: &Arc<Server>, old: &Options) {
    let new = server.options();
    if old.ocsp_cache != new.ocsp_cache
        || old.checks_peers() != new.checks_peers()
        || old.needs_revocations() != new.needs_revocations()
    {
        off_worker(|| {
            save(server);
            keep_cache(server);
        });
    }
}

/// Reads and writes files of many MiB while other tasks of this thread go on.
fn off_worker(work: impl FnOnce()) {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Writes what the cache holds.
pub(crate) fn save(server: &Server) {
    if let Some(cache) = server.tls.peers.cache.load_full()
        && let Err(error) = cache.save()
    {
        server.log.error(format_args!("Unable to save OCSP peer cache: {error}"));
    }
}

/// Refuses a certificate that is known not to be good, if that stops the server.
fn check(staple: &Staple) -> Result<(), TlsError> {
    let Some(current) = staple.current().filter(|_| staple.stops) else { return Ok(()) };
    let (status, file) = (current.response.status, staple.file.display());
    if status == Status::Good {
        return Ok(());
    }
    let status = status.text();
    let text = format!("found existing OCSP status for certificate at '{file}': {status}");
    Err(TlsError::Ocsp(text))
}

/// The response from before a reload, or that of the disk, if one counts.
fn recall(server: &Server, staple: &Staple) -> Option<Response> {
    let now = SystemTime::now();
    let all = server.tls.staples.all.lock();
    let same = all.iter().find(|one| one.link.certificate == staple.link.certificate);
    let shown = same.and_then(|one| one.current()).map(|current| current.raw.clone());
    drop(all);
    let of_disk = || read_kept(&path(&server.options(), staple)?).ok();
    let raw = shown.or_else(of_disk)?;
    let response = read(&raw, &staple.link, now).ok()?;
    is_current(&response, now).then(|| {
        staple.set(raw, response);
        response
    })
}

/// Where the response for a certificate is kept; `None`: nowhere, as there is no store.
fn path(options: &Options, staple: &Staple) -> Option<PathBuf> {
    let mut name = String::with_capacity(64);
    for byte in digest::digest(&digest::SHA256, &staple.link.certificate).as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    let store = &options.jetstream;
    store.enabled.then(|| store.store_dir.join(DIRECTORY).join(name))
}

fn read_kept(path: &Path) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    let limit = crate::tls::ocsp::RESPONSE_BYTES_MAX as u64;
    fs::File::open(path)?.take(limit).read_to_end(&mut raw)?;
    Ok(raw)
}

fn keep(path: &Path, raw: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    replace(path, raw)
}

/// Asks the responders, one after another, and shows the certificate with what comes.
async fn renew(
    server: &Arc<Server>,
    options: &Options,
    staple: &Staple,
) -> Result<Response, StapleError> {
    let (raw, response) = asked(server, options, staple).await?;
    if !staple.set(raw.clone(), response) {
        return Err(StapleError::Older);
    }
    if let Some(path) = path(options, staple) {
        let kept = tokio::task::spawn_blocking(move || keep(&path, &raw).map_err(|e| (path, e)));
        if let Ok(Err((path, error))) = kept.await {
            let path = path.display();
            server.log.error(format_args!("failed to write ocsp status to {path}: {error}"));
        }
    }
    Ok(response)
}

async fn asked(
    server: &Server,
    options: &Options,
    staple: &Staple,
) -> Result<(Vec<u8>, Response), StapleError> {
    let responders = match options.ocsp.urls.as_slice() {
        [] => &staple.link.responders,
        urls => urls,
    };
    let message = request(&staple.link);
    let mut last = StapleError::NoResponders;
    for responder in responders {
        server.log.debug(format_args!("Asking for an OCSP response at {responder}"));
        let posted = fetch(responder, &message, Way::Post, STAPLE_FETCH_TIMEOUT).await;
        let raw = match posted {
            Ok(raw) => raw,
            Err(_) => match fetch(responder, &message, Way::Get, STAPLE_FETCH_TIMEOUT).await {
                Ok(raw) => raw,
                Err(error) => {
                    last = error.into();
                    continue;
                }
            },
        };
        let now = SystemTime::now();
        match read(&raw, &staple.link, now) {
            Ok(response) if is_current(&response, now) => return Ok((raw, response)),
            Ok(_) => last = StapleError::NotCurrent(responder.clone()),
            Err(source) => {
                last = StapleError::Response { responder: responder.clone(), source };
            }
        }
    }
    Err(last)
}

/// Starts a task for each certificate, in place of those that ran.
fn begin(server: &Arc<Server>, loaded: &Loaded) {
    for warning in loaded.warnings() {
        server.log.warn(format_args!("{warning}"));
    }
    let staples = &server.tls.staples;
    *staples.all.lock() = loaded.staples().to_vec();
    let Some(runtime) = server.runtime() else { return };
    let mut tasks = staples.tasks.lock();
    tasks.drain(..).for_each(|task| task.abort());
    for staple in loaded.staples() {
        let file = staple.file.display();
        server.log.info(format_args!("OCSP Stapling enabled for certificate '{file}'"));
        let task = runtime.spawn(keep_new(server.clone(), staple.clone()));
        tasks.push(task.abort_handle());
    }
}

/// Renews the response for a certificate for as long as it is shown.
async fn keep_new(server: Arc<Server>, staple: Arc<Staple>) {
    let file = staple.file.display();
    loop {
        let response = staple.current().map(|current| current.response);
        let pause = pause(response.as_ref(), SystemTime::now());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Who has connected gets nothing; those who come next may.
            () = staple.wanted.notified() => tokio::time::sleep(STAPLE_PAUSE.min(pause)).await,
        }
        match renew(&server, &server.options(), &staple).await {
            Ok(response) if response.status == Status::Good => {
                let line = format_args!("Received OCSP status for certificate '{file}': good");
                server.log.info(line);
            }
            Ok(response) => {
                let status = response.status.text();
                let line = format!("Received OCSP status for certificate '{file}': {status}");
                server.log.error(format_args!("{line}"));
                if staple.stops {
                    server.fatal.raise(&line);
                }
            }
            Err(error) => server
                .log
                .error(format_args!("Bad OCSP status update for certificate '{file}': {error}")),
        }
    }
}

/// How long until a response is asked for again: half the time that the last one still counts.
fn pause(last: Option<&Response>, now: SystemTime) -> Duration {
    let Some(last) = last else { return STAPLE_PAUSE };
    let Some(end) = last.next_update else { return STAPLE_CHECK_INTERVAL };
    match end.duration_since(now) {
        Ok(left) => (left / 2).max(STAPLE_PAUSE),
        Err(_) => STAPLE_RETRY,
    }
}

/// Reads the cache, which takes the place of another one at once, and writes it from time to time, if anybody's
/// certificates are checked.
fn keep_cache(server: &Arc<Server>) {
    let options = server.options();
    let peers = &server.tls.peers;
    if !options.checks_peers() {
        return peers.cache.store(None);
    }
    let Some(cache) =
        PeerCache::new(&options.ocsp_cache, options.needs_revocations()).map(Arc::new)
    else {
        peers.cache.store(None);
        return server.log.info(format_args!("OCSP peer cache online, type [none]"));
    };
    if let Err(error) = cache.load() {
        server.log.warn(format_args!("Unable to load OCSP peer cache: {error}"));
    }
    server.log.info(format_args!("OCSP peer cache online, type [local]"));
    peers.cache.store(Some(cache.clone()));
    if let Some(runtime) = server.runtime() {
        runtime.spawn(save_regularly(server.clone(), cache, options.ocsp_cache.clone()));
    }
}

/// Writes the cache until there is another one.
async fn save_regularly(server: Arc<Server>, cache: Arc<PeerCache>, options: OcspCache) {
    loop {
        tokio::time::sleep(options.save_interval).await;
        let present = server.tls.peers.cache.load_full();
        if !present.is_some_and(|present| Arc::ptr_eq(&present, &cache)) {
            return;
        }
        let server = server.clone();
        // Thousands of responses may have to be written.
        let _ = tokio::task::spawn_blocking(move || save(&server)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_response_is_renewed_before_it_ends() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let until = |next_update: Option<u64>| Response {
            status: Status::Good,
            this_update: at(0),
            next_update: next_update.map(at),
        };
        let seconds = Duration::from_secs;
        for (response, expected) in [
            (None, STAPLE_PAUSE),
            (Some(until(None)), STAPLE_CHECK_INTERVAL),
            (Some(until(Some(1100))), seconds(50)),
            (Some(until(Some(1000))), STAPLE_PAUSE),
            (Some(until(Some(999))), STAPLE_RETRY),
        ] {
            assert_eq!(pause(response.as_ref(), at(1000)), expected, "{response:?}");
        }
    }
}
