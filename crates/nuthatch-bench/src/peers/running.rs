//! A peer that runs: started with an empty directory, ended with everything it started, and its
//! directory removed, whatever happens.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Launch, Peer, Site, User};
use crate::harness::BenchError;
use crate::meter;
use crate::process;
use crate::queue::{self, DRIVERS, QueueSpec};

/// A peer that does not answer by then counts as broken.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A peer that has not ended by then is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How often a peer is asked whether it is up or has ended.
const POLL: Duration = Duration::from_millis(50);

/// How much of a peer's log an error quotes.
const LOG_QUOTE_BYTES: usize = 600;

/// The queue that is made to see whether a peer is up.
const PROBE_QUEUE: &str = "probe";

/// A running peer.
#[derive(Debug)]
pub struct Running {
    /// What it is.
    pub peer: &'static Peer,
    /// Its address for the driver.
    pub url: String,
    /// Its directory.
    pub dir: PathBuf,
    child: Child,
    beside: Vec<Child>,
    stop_signal: i32,
}

impl Running {
    /// Starts a peer below `base` and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, does not start, or does not answer.
    pub fn start(peer: &'static Peer, base: &Path) -> Result<Self, BenchError> {
        let program = (peer.find)().ok_or_else(|| {
            let text = format!("{} is not installed; get it with: {}", peer.name, peer.package);
            BenchError::Usage(text)
        })?;
        // The peers run in their own directory, so a relative path would lead elsewhere.
        let base = std::path::absolute(base).map_err(file_error("find", base))?;
        let dir = base.join(format!("{}-{:x}", peer.name, nuthatch_client::random_u64()));
        fs::create_dir_all(&dir).map_err(file_error("create", &dir))?;
        let started = start_in(peer, &program, &dir);
        if started.is_err() {
            // What it left is only in the way.
            let _ = fs::remove_dir_all(&dir);
        }
        started
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process and those beside it, such as the store that it keeps its data in.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(&self.child).chain(&self.beside).map(Child::id).collect()
    }

    /// A queue on it.
    pub fn spec(&self, name: &str) -> QueueSpec {
        self.peer.spec(&self.url, name)
    }

    /// Space its directory takes on the disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        meter::disk_bytes(&self.dir)
    }

    /// True if it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait_ready(&mut self, port: Option<u16>) -> Result<(), BenchError> {
        let started = Instant::now();
        loop {
            let answer = self.probe(port);
            let Err(reason) = answer else { return Ok(()) };
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > START_LIMIT {
                let what =
                    ended.map_or(format!("no answer: {reason}"), |status| status.to_string());
                let log = log_end(&self.dir);
                let text = format!("{} did not start ({what}): {log}", self.peer.name);
                return Err(BenchError::Failed(text));
            }
            thread::sleep(POLL);
        }
    }

    fn probe(&self, port: Option<u16>) -> Result<(), String> {
        match port {
            Some(port) => TcpStream::connect(("127.0.0.1", port)).map(drop),
            None => UnixStream::connect(&self.url).map(drop),
        }
        .map_err(|err| err.to_string())?;
        let built = DRIVERS.iter().any(|d| d.name == self.peer.driver && d.built);
        if !built {
            return Ok(());
        }
        let prepare = || queue::open(&self.spec(PROBE_QUEUE))?.prepare();
        prepare().map_err(|err| err.to_string())
    }

    fn stop(&mut self) {
        let pids = meter::family_pids(self.child.id());
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
            unsafe { libc::kill(pid, self.stop_signal) };
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        // Whatever is left of its family; each id is checked to be what it was.
        for pid in pids {
            if let (true, Ok(pid)) = (runs_in(pid, &self.dir), libc::pid_t::try_from(pid)) {
                // SAFETY: a plain system call.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_alive() {
            self.stop();
        }
        self.beside.iter_mut().chain([&mut self.child]).for_each(end);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// True if a process still is one that works in this directory.
fn runs_in(pid: u32, dir: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}

fn start_in(peer: &'static Peer, program: &Path, dir: &Path) -> Result<Running, BenchError> {
    let mut ports = [0; 3];
    for port in &mut ports {
        *port = nuthatch_ports::free_port().map_err(file_error("find a free port for", dir))?;
    }
    let mut site = Site { program, dir, ports, user: None };
    let launch = (peer.launch)(&site)?;
    if launch.not_root && process::is_root() {
        site.user = other_user();
    }
    for (name, text) in &launch.files {
        let path = dir.join(name);
        fs::write(&path, text).map_err(file_error("write", &path))?;
    }
    if let Some(user) = site.user {
        chown(dir, Some(user.uid), Some(user.gid)).map_err(file_error("give away", dir))?;
    }
    for command in &launch.before {
        run_to_end(command, &launch, &site)?;
    }
    let beside: Result<Vec<Child>, _> =
        launch.beside.iter().map(|command| spawn(command, &launch, &site)).collect();
    let mut beside = beside?;
    let child = wait_beside(&launch, dir).and_then(|()| spawn(&launch.command, &launch, &site));
    let child = child.inspect_err(|_| beside.iter_mut().for_each(end))?;
    let mut running = Running {
        peer,
        url: launch.url.clone(),
        dir: dir.to_owned(),
        child,
        beside,
        stop_signal: launch.stop_signal,
    };
    running.wait_ready(launch.port)?;
    Ok(running)
}

/// Ends a process at once.
pub(super) fn end(child: &mut Child) {
    // Both fail only when the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until what runs beside a peer answers, where it must before the peer is started.
fn wait_beside(launch: &Launch, dir: &Path) -> Result<(), BenchError> {
    match launch.beside_ready {
        Some((port, path)) => wait_answers(port, path, dir),
        None => Ok(()),
    }
}

/// Waits until an HTTP request to a port of this machine succeeds; `dir` has the log otherwise.
pub(super) fn wait_answers(port: u16, path: &str, dir: &Path) -> Result<(), BenchError> {
    let started = Instant::now();
    while started.elapsed() < START_LIMIT {
        if answers(port, path).unwrap_or(false) {
            return Ok(());
        }
        thread::sleep(POLL);
    }
    Err(BenchError::Failed(format!("what runs beside it did not start: {}", log_end(dir))))
}

/// True if a request over HTTP succeeds.
fn answers(port: u16, path: &str) -> std::io::Result<bool> {
    const SUCCESS: &[u8] = b"HTTP/1.1 200";
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut status = [0; SUCCESS.len()];
    socket.read_exact(&mut status)?;
    Ok(status == SUCCESS)
}

fn command(words: &[String], launch: &Launch, site: &Site<'_>) -> Result<Command, BenchError> {
    let path = site.dir.join("log");
    let log = File::options().create(true).append(true).open(&path);
    let log = log.map_err(file_error("open", &path))?;
    let error_log = log.try_clone().map_err(file_error("open", &path))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(launch.env.iter().cloned()).current_dir(site.dir);
    command.stdin(Stdio::null()).stdout(log).stderr(error_log);
    if let Some(user) = site.user {
        command.gid(user.gid).uid(user.uid);
    }
    // Not in our group, so that Ctrl-C reaches us first.
    command.process_group(0);
    // SAFETY: only one async-signal-safe system call runs between fork and exec.
    unsafe { command.pre_exec(process::die_with_parent) };
    Ok(command)
}

fn spawn(words: &[String], launch: &Launch, site: &Site<'_>) -> Result<Child, BenchError> {
    command(words, launch, site)?.spawn().map_err(file_error("start", Path::new(&words[0])))
}

fn run_to_end(words: &[String], launch: &Launch, site: &Site<'_>) -> Result<(), BenchError> {
    let status = command(words, launch, site)?.status();
    let status = status.map_err(file_error("start", Path::new(&words[0])))?;
    match status.success() {
        true => Ok(()),
        false => {
            let log = log_end(site.dir);
            Err(BenchError::Failed(format!("{} failed ({status}): {log}", words[0])))
        }
    }
}

/// The end of a peer's log.
fn log_end(dir: &Path) -> String {
    let log = fs::read(dir.join("log")).unwrap_or_default();
    let from = log.len().saturating_sub(LOG_QUOTE_BYTES);
    String::from_utf8_lossy(&log[from..]).trim().to_owned()
}

/// `postgres` if there is such a user, else `nobody`.
fn other_user() -> Option<User> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let find = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2);
        let uid = numbers.next()?.parse().ok()?;
        let gid = numbers.next()?.parse().ok()?;
        Some(User { uid, gid })
    };
    find("postgres").or_else(|| find("nobody"))
}

fn file_error<'a>(
    action: &'a str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> BenchError + 'a {
    crate::compare::file_error(action, path)
}
