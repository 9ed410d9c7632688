//! The systems that the workbench compares: whether they are installed, how to get them from a
//! package registry, and how to run one on the loopback interface in a temporary directory.

mod catalog;
pub mod cli;
mod jvm;
pub mod minio;
pub mod objects;
mod rabbit;
mod running;

use std::path::{Path, PathBuf};

use crate::harness::BenchError;
use crate::queue::QueueSpec;

pub use catalog::PEERS;
pub use running::Running;

/// A system with its setting.
pub struct Peer {
    /// Its name on the command line and in campaigns.
    pub name: &'static str,
    /// What it is, and its setting where there are several.
    pub what: &'static str,
    /// The driver that speaks to it, see [`crate::queue::DRIVERS`].
    pub driver: &'static str,
    /// Whether it speaks the NATS protocol, so that workloads for that alone can use it.
    pub speaks_nats: bool,
    /// The exact package, and the command that brings it.
    pub package: &'static str,
    /// Its licence.
    pub licence: &'static str,
    /// How it is started, in words.
    pub config: &'static str,
    /// Settings of the driver; `fsync` is the guarantee where the server does not tell.
    pub settings: &'static [(&'static str, &'static str)],
    /// Whether its data are objects, so that the limit of puts is its own, not that of the disk.
    pub on_objects: bool,
    /// Finds its program; `None` when it is not installed.
    pub find: fn() -> Option<PathBuf>,
    /// Asks the program for its version.
    pub version: fn(&Path) -> Option<String>,
    /// Says how to start it in a directory.
    pub launch: fn(&Site<'_>) -> Result<Launch, BenchError>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Peer {
    /// Finds one by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<&'static Self, BenchError> {
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| {
            let names: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
            BenchError::Usage(format!("no peer {name:?}; the peers are {}", names.join(", ")))
        })
    }

    /// The queue `name` on a server of this kind.
    pub fn spec(&self, url: &str, name: &str) -> QueueSpec {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        QueueSpec {
            driver: self.driver.into(),
            url: url.into(),
            name: name.into(),
            settings: self.settings.iter().map(pair).collect(),
        }
    }
}

/// Directory and ports for a peer.
#[derive(Debug)]
pub struct Site<'a> {
    /// Its program.
    pub program: &'a Path,
    /// An empty directory of its own.
    pub dir: &'a Path,
    /// Free ports of the loopback interface.
    pub ports: [u16; 3],
    /// The user it runs as, when we are root and it must not be.
    pub user: Option<User>,
}

/// A user of this machine.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// How to start a peer.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Files to write first, below the directory.
    pub files: Vec<(String, String)>,
    /// Commands to run to their end first.
    pub before: Vec<Vec<String>>,
    /// Servers that run beside it and end with it.
    pub beside: Vec<Vec<String>>,
    /// Port and path that answer an HTTP request with success before the server is started.
    pub beside_ready: Option<(u16, &'static str)>,
    /// The server.
    pub command: Vec<String>,
    /// Environment of all of these.
    pub env: Vec<(String, String)>,
    /// Address for the driver.
    pub url: String,
    /// TCP port that answers when it is up; none for a Unix socket in `url`.
    pub port: Option<u16>,
    /// Whether it refuses to run as root.
    pub not_root: bool,
    /// The signal that ends it in order.
    pub stop_signal: i32,
}

/// Looks for a program: a variable with its path, the directory of the workbench, the search path,
/// further directories.
fn find_program(variable: &str, name: &str, further: &[PathBuf]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return path.is_file().then_some(path);
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(home_dir())
        .chain(std::env::split_paths(&search))
        .chain(further.iter().cloned())
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// Where programs that no package manager installs are kept: `NUTHATCH_PEERS`, else
/// `~/.cache/nuthatch-peers`.
fn home_dir() -> PathBuf {
    match std::env::var_os("NUTHATCH_PEERS") {
        Some(dir) => PathBuf::from(dir),
        None => user_dir(".cache/nuthatch-peers"),
    }
}

fn user_dir(below: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(below)
}

/// The first line a program prints with some options.
fn first_line(program: &Path, options: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(options).output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text);
    text.lines().next().map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_drivers_exist() {
        for (index, peer) in PEERS.iter().enumerate() {
            assert!(PEERS[..index].iter().all(|other| other.name != peer.name), "{}", peer.name);
            let known = crate::queue::DRIVERS.iter().any(|driver| driver.name == peer.driver);
            assert!(known, "{}", peer.driver);
        }
        assert!(Peer::named("nope").unwrap_err().to_string().contains("redis"));
    }
}
