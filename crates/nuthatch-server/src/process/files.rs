//! Files for other programs: our process id, and the ports we got.

use crate::monitor::Listeners;
use crate::options::AuthOptions;
use crate::private_files::permit;
use crate::server::Server;
use serde::Serialize;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Files for other programs, before the umask that the process was started with.
const READABLE_MODE: u32 = 0o644;
/// Writes a file that others may read. One that is there keeps its mode.
fn write_readable(path: &Path, text: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = File::create(path)?;
    if is_new {
        permit(&file, READABLE_MODE)?;
    }
    file.write_all(text)
}

/// Keeps the token that was made for want of one (`token_file`): whether that was so.
///
/// # Errors
/// Those of the system; the file is whole or not there.
pub(super) fn keep_token(auth: &AuthOptions) -> io::Result<bool> {
    let (Some(path), Some(token)) = (&auth.token_file, &auth.token) else { return Ok(false) };
    if path.exists() {
        return Ok(false);
    }
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let start = STARTS.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}.{start}.tmp", std::process::id()));
    let mut file = File::create(&beside)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(format!("{}\n", token.expose()).as_bytes())?;
    file.sync_all()?;
    // Of two starts at the same time one keeps its token. The other one would serve with a token that
    // is kept nowhere.
    let kept = std::fs::hard_link(&beside, path);
    std::fs::remove_file(&beside)?;
    match kept {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("another start has just made {}: start again", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        kept => kept?,
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(true)
}

/// Writes the process id, without a newline.
pub(super) fn write_pid(server: &Server) {
    let options = server.options();
    let Some(path) = &options.pid_file else { return };
    if let Err(error) = write_readable(path, std::process::id().to_string().as_bytes()) {
        server.log.error(format_args!("Could not write pidfile {}: {error}", path.display()));
    }
}

/// `<executable>_<pid>.ports`: where clients and monitoring are reached.
pub(super) struct Ports {
    path: Option<PathBuf>,
    nats: Vec<String>,
    monitoring: Vec<String>,
    websocket: Vec<String>,
}

#[derive(Serialize)]
struct PortsFile<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    nats: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    monitoring: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    websocket: &'a [String],
}

impl Ports {
    pub(super) fn new(server: &Server, monitor: &Listeners) -> Self {
        let options = server.options();
        let port = server.client_port.load(Ordering::Relaxed);
        let scheme = if options.tls.is_some() { "tls" } else { "nats" };
        let nats = urls(scheme, &options.host, port);
        let host = &options.monitor.host;
        let mut monitoring = Vec::new();
        if let Some(port) = monitor.http_port() {
            monitoring.append(&mut urls("http", host, port));
        }
        if let Some(port) = monitor.https_port() {
            monitoring.append(&mut urls("https", host, port));
        }
        let websocket = options.websocket.as_ref().map_or_else(Vec::new, |websocket| {
            let scheme = if websocket.tls.is_some() { "wss" } else { "ws" };
            urls(scheme, &websocket.host, server.websocket_port.load(Ordering::Relaxed))
        });
        let path = options.ports_file_dir.as_ref().map(|directory| {
            let program = std::env::current_exe().ok();
            let started_as = std::env::args_os().next().map(PathBuf::from);
            let name = started_as.as_deref().or(program.as_deref()).and_then(|p| p.file_name());
            let name = name.map_or("nats-server".into(), |name| name.to_string_lossy());
            directory.join(format!("{name}_{}.ports", std::process::id()))
        });
        Self { path, nats, monitoring, websocket }
    }

    pub(super) fn write(&self, server: &Server) {
        let Some(path) = &self.path else { return };
        let file = PortsFile {
            nats: &self.nats,
            monitoring: &self.monitoring,
            websocket: &self.websocket,
        };
        let text = serde_json::to_vec(&file).unwrap_or_default();
        // Whoever polls for the file must never see half of it.
        let partial = path.with_extension("ports.tmp");
        let written =
            write_readable(&partial, &text).and_then(|()| std::fs::rename(&partial, path));
        if let Err(error) = written {
            server
                .log
                .error(format_args!("Error writing ports file ({}): {error}", path.display()));
        }
    }

    pub(super) fn remove(&self, server: &Server) {
        let Some(path) = &self.path else { return };
        if let Err(error) = std::fs::remove_file(path) {
            let path = path.display();
            server.log.error(format_args!("Error cleaning up ports file {path}: {error}"));
        }
    }
}

/// Under which addresses a listener is reached: its own, or the machine's if it listens on all.
fn urls(scheme: &str, host: &str, port: u16) -> Vec<String> {
    let everywhere = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let host = if everywhere { "127.0.0.1" } else { host };
    if host.contains(':') {
        vec![format!("{scheme}://[{host}]:{port}")]
    } else {
        vec![format!("{scheme}://{host}:{port}")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Secret;

    #[test]
    fn a_token_is_made_once_and_is_nobody_elses() {
        let dir = std::env::temp_dir().join(format!("nuthatch-token-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("token");
        let auth = |token: &str| AuthOptions {
            token: Some(Secret::new(token)),
            token_file: Some(path.clone()),
            ..AuthOptions::default()
        };
        // Of starts at the same time one keeps its token, and only that one goes on.
        let tokens: Vec<String> = (0..8).map(|n| format!("RACE{n}")).collect();
        let barrier = std::sync::Barrier::new(tokens.len());
        let kept: Vec<&String> = std::thread::scope(|scope| {
            let starts: Vec<_> = tokens
                .iter()
                .map(|token| {
                    let (auth, barrier) = (auth(token), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        keep_token(&auth).is_ok_and(|made| made).then_some(token)
                    })
                })
                .collect();
            starts.into_iter().filter_map(|start| start.join().unwrap()).collect()
        });
        let there = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.iter().map(|token| format!("{token}\n")).collect::<Vec<_>>(), [there]);
        std::fs::remove_file(&path).unwrap();
        assert!(keep_token(&auth("FIRST")).unwrap());
        assert!(!keep_token(&auth("SECOND")).unwrap());
        let (text, meta) =
            (std::fs::read_to_string(&path).unwrap(), std::fs::metadata(&path).unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((text.as_str(), meta.permissions().mode() & 0o777), ("FIRST\n", 0o600));
        assert!(!keep_token(&AuthOptions::default()).unwrap());
    }
}
