//! Signals to processes under test.

use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait until all threads of a process have stopped.
const STOPPED: Duration = Duration::from_secs(60);

/// Sends a signal by its name for `kill`. After `-STOP` the process stands still: on a busy machine its threads run on
/// for a while after the signal is sent, and answer.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "kill {name} {pid}");
    let deadline = Instant::now() + STOPPED;
    while name == "-STOP" && !stands_still(pid) {
        assert!(Instant::now() < deadline, "process {pid} runs on after SIGSTOP");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads of a process have stopped (proc(5): the state follows the name in parentheses).
fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.flatten().all(|thread| {
        let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
