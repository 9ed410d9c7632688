//! Commands of whoever plays the faults.

use crate::mounted::Shared;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

/// Takes commands at a socket from now on.
pub fn listen(socket: &str, shared: &Shared) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let shared = shared.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(mut answers) = stream.try_clone() else { continue };
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let answer =
                    obey(&line, &shared).unwrap_or_else(|| format!("no such command: {line}"));
                if writeln!(answers, "{answer}").is_err() {
                    break;
                }
            }
        }
    });
    Ok(())
}

fn obey(line: &str, shared: &Shared) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    if words == ["die"] {
        shared.die();
        return Some("ok".into());
    }
    let mut state = shared.lock();
    match *words.first()? {
        "cut" => {
            let lost = state.cut(number(1)?, number(2)?);
            return Some(format!("ok {lost}"));
        }
        "settle" => state.disk.settle(),
        "slow" => state.slow_ms = number(1)?,
        "fail" => state.failing_syncs = number(1)?,
        "full" => state.disk.is_full = number(1)? != 0,
        "count" => return Some(format!("ok {}", state.disturbed())),
        _ => return None,
    }
    Some("ok".into())
}
