//! Ports of the loopback interface for servers that tests and the workbench start.
//!
//! A server is told its port before it listens there, and a test may end it and start it again. A port that the system
//! gave (`bind` to port 0) is free for others meanwhile: the next `bind` to port 0 or an outgoing connection of whatever
//! runs beside may get it. Ports given here are therefore below those that the system gives of itself, each is given once
//! by a process, and no other process that asks here is given it before this one ends: each has blocks of ports, held by
//! locks on files. `tests/ports.py` and the Go tests of `integrations/milvus` hold to the same locks.

use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The first port that is given. Well-known ports of servers are below.
const FIRST: u16 = 12_000;

/// The end of the ports that are given, where the system's own begin there or later.
const END: u16 = 32_768;

/// So many ports are needed below the system's own; where there are fewer, those up to [`END`] are given all the same.
const LEAST: u16 = 2_048;

/// Ports of a block.
const BLOCK: u16 = 32;

/// The block that this process gives ports of.
struct Block {
    next: u16,
    end: u16,
    /// Open, and so locked, for as long as the process lives.
    _lock: File,
}

static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// A port of the loopback interface that nobody listens on, and that nobody else who asks here is given for as long as
/// this process lives.
///
/// # Errors
/// No block is free, or the directory of the locks (`nuthatch-ports-UID` in the directory for temporary files) cannot be
/// made.
pub fn free_port() -> Result<u16> {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(block) = blocks.last_mut() {
            for port in block.next..block.end {
                block.next = port + 1;
                if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                    return Ok(port);
                }
            }
        }
        blocks.push(take_block()?);
    }
}

/// As many addresses of the loopback interface, each with a port of [`free_port`].
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let address = |_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().expect("a free port")));
    (0..count).map(address).collect()
}

/// The end of the ports that are given on this machine.
fn end() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    end_below(range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok()))
}

/// The same, given where the ports begin that the system gives of itself.
fn end_below(system: Option<u16>) -> u16 {
    system.filter(|first| *first >= FIRST + LEAST).unwrap_or(END).min(END)
}

/// Takes a block that no process holds, beginning at one that depends on this process: what still talks to a server that
/// has ended a moment ago is not to meet a new one.
fn take_block() -> Result<Block> {
    let uid = rustix::process::geteuid().as_raw();
    let dir = std::env::temp_dir().join(format!("nuthatch-ports-{uid}"));
    std::fs::create_dir_all(&dir)?;
    let count = (end() - FIRST) / BLOCK;
    let start = std::process::id() % u32::from(count);
    for step in 0..count {
        let number = (u32::from(step) + start) % u32::from(count);
        let number = u16::try_from(number).expect("below the count of blocks");
        if let Some(lock) = try_lock(dir.join(number.to_string()))? {
            let first = FIRST + number * BLOCK;
            return Ok(Block { next: first, end: first + BLOCK, _lock: lock });
        }
    }
    let end = FIRST + count * BLOCK;
    let why = format!("no block of ports from {FIRST} to {end} is free: see {}", dir.display());
    Err(Error::new(ErrorKind::AddrInUse, why))
}

/// The lock of a block; `None` if another process has it.
fn try_lock(path: PathBuf) -> Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_given_once_and_are_none_of_the_systems() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port().expect("a port")).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| (FIRST..end()).contains(port)), "{ports:?}");
    }

    #[test]
    fn there_are_ports_wherever_the_systems_own_begin() {
        for (system, end) in [
            (None, END),
            (Some(1024), END),
            (Some(FIRST + LEAST - 1), END),
            (Some(20_000), 20_000),
            (Some(40_000), END),
        ] {
            assert_eq!(end_below(system), end, "{system:?}");
        }
    }

    #[test]
    fn a_port_that_is_listened_on_is_passed_over() {
        let port = free_port().expect("a port");
        let next = TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1));
        assert_ne!(free_port().expect("a port"), port + 1, "{next:?}");
    }

    /// A block is locked by the file, not by the process: another opening of it does not get the lock.
    #[test]
    fn a_block_is_given_to_one() {
        let (one, other) = (take_block().expect("a block"), take_block().expect("a block"));
        assert_ne!(one.end, other.end);
    }
}
