//! The two servers of a comparison: started on loopback with an empty store, killed when dropped.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Attempts with another port, should somebody have taken the one that was free a moment ago.
const START_ATTEMPTS: u32 = 3;

/// How a kind of server is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What comes before the server's own flags.
    pub args: Vec<String>,
}

impl Program {
    /// The server of this repository, or another one named by `NUTHATCH_DIFF_SUBJECT`.
    pub fn ours() -> Self {
        match std::env::var_os("NUTHATCH_DIFF_SUBJECT") {
            Some(path) => Self { path: path.into(), args: Vec::new() },
            None => {
                Self { path: env!("CARGO_BIN_EXE_nuthatch").into(), args: vec!["serve".to_owned()] }
            }
        }
    }

    /// The reference, nats-server: `NATS_SERVER`, else what `tests/peers.sh` has built. `None`
    /// when absent and `NUTHATCH_SKIP_PEERS` says that this is intended.
    ///
    /// # Panics
    /// When it is absent and must not be.
    pub fn reference() -> Option<Self> {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/nats-server");
        let path = std::env::var_os("NATS_SERVER").map_or(built, PathBuf::from);
        if path.is_file() {
            return Some(Self { path, args: Vec::new() });
        }
        if std::env::var_os("NUTHATCH_SKIP_PEERS").is_some() {
            eprintln!("skipped: {} is absent and NUTHATCH_SKIP_PEERS is set", path.display());
            return None;
        }
        panic!(
            "{} is absent: run tests/peers.sh once, or name a nats-server 2.15.2 with NATS_SERVER, \
             or set NUTHATCH_SKIP_PEERS to leave this test out",
            path.display()
        );
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
    stopped: bool,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts `program` with JetStream on and, when not empty, a configuration file.
    pub fn start(program: &Program, config: &str) -> Result<Self, String> {
        let mut last = String::new();
        for _ in 0..START_ATTEMPTS {
            match Self::try_start(program, config) {
                Ok(server) => return Ok(server),
                Err(err) => last = err,
            }
        }
        Err(last)
    }

    fn try_start(program: &Program, config: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nuthatch-differential-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let text = |err: std::io::Error| format!("{}: {err}", program.path.display());
        // A process of the same number may have been killed here.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(text)?;
        let port = nuthatch_ports::free_port().map_err(text)?;
        let mut command = Command::new(&program.path);
        command.args(&program.args).args(["-a", "127.0.0.1", "-p", &port.to_string()]);
        command.args(["-js", "-sd"]).arg(dir.join("store"));
        if !config.is_empty() {
            fs::write(dir.join("server.conf"), config).map_err(text)?;
            command.arg("-c").arg(dir.join("server.conf"));
        }
        let log = fs::File::create(dir.join("log")).map_err(text)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(text)?;
        let mut server = Self { child, dir, stopped: false, port };
        server.wait_until_open().map_err(|why| format!("{}: {why}", program.path.display()))?;
        Ok(server)
    }

    fn wait_until_open(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while !greets(self.port) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended with {status}\n{}", self.log_tail()));
            }
            if Instant::now() > deadline {
                return Err(format!("does not listen\n{}", self.log_tail()));
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Whoever greets could be somebody else who was quicker to take the port.
        thread::sleep(Duration::from_millis(10));
        if self.is_alive() { Ok(()) } else { Err("ended early".to_owned()) }
    }

    /// The end of what the server has logged.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Asks it to stop (SIGTERM).
    pub fn stop(&mut self) {
        self.stopped = true;
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGTERM is sent");
    }

    /// True if it was asked to stop.
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// True if the process is still there.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

fn greets(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut word = [0; 5];
    let _ = socket.set_read_timeout(Some(START_LIMIT));
    socket.read_exact(&mut word).is_ok() && &word == b"INFO "
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let _ = fs::remove_dir_all(&self.dir);
        // A thread that panics need not end the process. (`panic:` is how Go says it.)
        let panicked = log.contains("panicked at");
        assert!(!panicked || thread::panicking(), "the server panicked:\n{log}");
    }
}
