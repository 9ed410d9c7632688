//! Servers under test: started with an empty store on a free loopback port, and killed with their
//! store removed whatever happens.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{BenchError, Target};
use crate::process;
use nuthatch_client::ConnectOptions;
use nuthatch_client::js;

/// A server that has not answered by then counts as broken; recovery of many messages included.
const START_LIMIT: Duration = Duration::from_secs(180);

/// A server that has not ended by then after SIGTERM is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How often a starting server is asked whether it is ready.
const START_POLL: Duration = Duration::from_millis(1);

/// Limit for single requests, and for the wait for the next ack or message.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest message the servers are configured for, above the largest one measured.
const MAX_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;

/// How much of a server's log an error quotes.
const LOG_QUOTE_BYTES: usize = 600;

/// A server and its setting.
#[derive(Debug, Clone)]
pub struct Contender {
    /// Short name, such as `nats-server, sync always`.
    pub name: String,
    /// The command that runs it, before `-c FILE`.
    pub command: Vec<PathBuf>,
    /// `sync_interval` for its configuration; `None` for its own default.
    pub sync_interval: Option<&'static str>,
    /// Whether every publish waits for the disk one by one, so that fewer messages are enough.
    pub slow_publish: bool,
    /// What else is set.
    pub further: Further,
}

/// Further settings of a server.
#[derive(Debug, Clone, Default)]
pub struct Further {
    /// Lines of the `jetstream` block of its configuration.
    pub jetstream: String,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Whether it has a port for monitoring.
    pub monitoring: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
    contender: Contender,
    port: u16,
    monitoring: Option<u16>,
    /// Time from the start of the process until JetStream answered.
    pub start_time: Duration,
    /// Whether the store goes with the server.
    remove: bool,
}

impl Server {
    /// Starts a server with an empty store below `base`.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn start(contender: &Contender, base: &Path) -> Result<Self, BenchError> {
        let dir = base.join(format!("store-{:x}", nuthatch_client::random_u64()));
        fs::create_dir_all(&dir).map_err(file_error("create", &dir))?;
        Self::start_in(contender, dir)
    }

    fn start_in(contender: &Contender, dir: PathBuf) -> Result<Self, BenchError> {
        let port = nuthatch_ports::free_port().map_err(file_error("find a free port for", &dir))?;
        let monitoring = match contender.further.monitoring {
            true => Some(
                nuthatch_ports::free_port().map_err(file_error("find a free port for", &dir))?,
            ),
            false => None,
        };
        let started = Instant::now();
        let child = spawn(contender, &dir, port, monitoring)?;
        let contender = contender.clone();
        let start_time = Duration::ZERO;
        let mut server = Self { child, dir, contender, port, monitoring, start_time, remove: true };
        server.wait_ready(started)?;
        server.start_time = started.elapsed();
        Ok(server)
    }

    /// Ends this server, by SIGTERM or at once, and starts one on the same store.
    ///
    /// # Errors
    /// When the new one cannot be started or does not answer.
    pub fn restart(mut self, contender: &Contender, kill: bool) -> Result<Self, BenchError> {
        self.remove = false;
        let dir = self.dir.clone();
        if !kill {
            self.terminate();
        }
        drop(self);
        Self::start_in(contender, dir)
    }

    /// Ends this server by SIGTERM, and removes its store.
    pub fn stop(mut self) {
        self.terminate();
    }

    /// Where to measure.
    ///
    /// # Errors
    /// Never in practice: the address is our own.
    pub fn target(&self) -> Result<Target, BenchError> {
        let options = ConnectOptions::new(&format!("127.0.0.1:{}", self.port))?;
        Ok(Target {
            options,
            server_pid: Some(self.child.id()),
            timeout: REQUEST_TIMEOUT,
            watched: None,
        })
    }

    /// Its port for monitoring, if it was to have one.
    pub fn monitoring(&self) -> Option<u16> {
        self.monitoring
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_ready(&mut self, started: Instant) -> Result<(), BenchError> {
        let target = self.target()?;
        loop {
            let answer = target.connect().map_err(BenchError::from).and_then(|mut client| {
                Ok(js::api(&mut client, "INFO", &Value::Null, target.timeout)?)
            });
            let Err(err) = answer else { return Ok(()) };
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > START_LIMIT {
                let what = ended.map_or(format!("no answer: {err}"), |status| status.to_string());
                let text =
                    format!("{} did not start ({what}): {}", self.contender.name, self.log());
                return Err(BenchError::Failed(text));
            }
            thread::sleep(START_POLL);
        }
    }

    /// The end of the server's log.
    fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let mut from = log.len().saturating_sub(LOG_QUOTE_BYTES);
        while !log.is_char_boundary(from) {
            from += 1;
        }
        log[from..].to_owned()
    }

    /// Asks it to end and waits for that.
    fn terminate(&mut self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(START_POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.remove {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn spawn(
    contender: &Contender,
    dir: &Path,
    port: u16,
    monitoring: Option<u16>,
) -> Result<Child, BenchError> {
    let sync = match contender.sync_interval {
        Some(interval) => format!("sync_interval: {interval}"),
        None => String::new(),
    };
    let http = monitoring.map_or_else(String::new, |port| format!("http: 127.0.0.1:{port}\n"));
    let (store, further) = (dir.join("store"), &contender.further.jetstream);
    let config = format!(
        "host: 127.0.0.1\nport: {port}\nmax_payload: {MAX_PAYLOAD_BYTES}\n{http}\
         jetstream {{ store_dir: '{}'\n{sync}\n{further} }}\n",
        store.display(),
    );
    let config_path = dir.join("server.conf");
    fs::write(&config_path, config).map_err(file_error("write", &config_path))?;
    let log_path = dir.join("log");
    let log = File::create(&log_path).map_err(file_error("create", &log_path))?;
    let error_log = log.try_clone().map_err(file_error("open", &log_path))?;
    let mut command = Command::new(&contender.command[0]);
    command.args(&contender.command[1..]).arg("-c").arg(&config_path);
    command.envs(contender.further.env.iter().cloned());
    command.stdin(Stdio::null()).stdout(log).stderr(error_log);
    // SAFETY: only one async-signal-safe system call runs between fork and exec.
    unsafe { command.pre_exec(process::die_with_parent) };
    command.spawn().map_err(file_error("start", &contender.command[0]))
}

/// Puts an action and a path before a system error.
pub fn file_error<'a>(
    action: &'a str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> BenchError + 'a {
    move |source| BenchError::File { what: format!("cannot {action} {}", path.display()), source }
}
