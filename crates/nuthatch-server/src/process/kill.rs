//! `-sl`: sends a signal to a running server.

use super::signals::CLOCK_SIGNAL;
use crate::options::{SignalCommand, SignalTarget};
use std::fs;

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum KillError {
    /// There is no server to send it to.
    #[error("no nats-server processes running")]
    None,
    /// It is not clear which server is meant.
    #[error("multiple nats-server processes running:\n{0}")]
    Several(String),
    /// The system refused.
    #[error("signal to process {pid}: {source}")]
    Refused {
        /// Which.
        pid: u32,
        /// Why.
        source: std::io::Error,
    },
}

/// Sends it.
pub(super) fn send(command: SignalCommand, target: SignalTarget) -> Result<(), KillError> {
    let pid = match target {
        SignalTarget::Pid(pid) => pid,
        SignalTarget::OnlyServer => only_server()?,
    };
    let signal = match command {
        SignalCommand::Stop => libc::SIGKILL,
        SignalCommand::Quit => libc::SIGINT,
        SignalCommand::Term => libc::SIGTERM,
        SignalCommand::Reopen => libc::SIGUSR1,
        SignalCommand::Reload => libc::SIGHUP,
        SignalCommand::LameDuck => libc::SIGUSR2,
        SignalCommand::Clock => CLOCK_SIGNAL,
    };
    let Ok(target) = libc::pid_t::try_from(pid) else { return Err(KillError::None) };
    // SAFETY: `kill` takes plain numbers; the target is positive, so one process.
    if unsafe { libc::kill(target, signal) } == 0 {
        return Ok(());
    }
    Err(KillError::Refused { pid, source: std::io::Error::last_os_error() })
}

/// The one other process that runs this program as a server.
fn only_server() -> Result<u32, KillError> {
    let me = std::process::id();
    let found: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != me && is_server(pid))
        .collect();
    match found[..] {
        [] => Err(KillError::None),
        [pid] => Ok(pid),
        _ => {
            let list: Vec<_> = found.iter().map(ToString::to_string).collect();
            Err(KillError::Several(list.join("\n")))
        }
    }
}

fn is_server(pid: u32) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = line.split(|&byte| byte == 0);
    let program = words.next().unwrap_or_default();
    let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name == b"nats-server" || (name == b"nuthatch" && words.next() == Some(b"serve"))
}
