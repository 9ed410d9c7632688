//! Instructions that a process runs in user mode, counted by the kernel's performance events.

use std::fs;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

/// `PERF_TYPE_HARDWARE`, `PERF_COUNT_HW_INSTRUCTIONS` and the size of the first version of
/// `perf_event_attr` that has all we need.
const TYPE_HARDWARE: u32 = 0;
const COUNT_INSTRUCTIONS: u64 = 1;
const ATTR_BYTES: usize = 112;

/// Bits of the flags: threads that a counted thread starts count too; the kernel does not.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Counters on all threads of a process; they count from their making on.
#[derive(Debug)]
pub(super) struct Instructions(Vec<fs::File>);

impl Instructions {
    /// `None` where the machine or its permissions do not allow it.
    pub(super) fn of_process(pid: u32) -> Option<Self> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let ids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let counters: Option<Vec<fs::File>> = ids.map(open).collect();
        counters.filter(|counters| !counters.is_empty()).map(Self)
    }

    /// Instructions so far.
    pub(super) fn total(&self) -> Option<u64> {
        self.0.iter().map(read).sum()
    }
}

#[cfg(target_os = "linux")]
fn open(thread: libc::pid_t) -> Option<fs::File> {
    let mut attr = [0_u8; ATTR_BYTES];
    attr[0..4].copy_from_slice(&TYPE_HARDWARE.to_ne_bytes());
    attr[4..8].copy_from_slice(&(ATTR_BYTES as u32).to_ne_bytes());
    attr[8..16].copy_from_slice(&COUNT_INSTRUCTIONS.to_ne_bytes());
    let flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    attr[40..48].copy_from_slice(&flags.to_ne_bytes());
    let (any_cpu, no_group, no_flags): (libc::c_int, libc::c_int, libc::c_ulong) = (-1, -1, 0);
    // SAFETY: the attribute is a valid `perf_event_attr` of the size it names and lives through
    // the call, which only reads it.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), thread, any_cpu, no_group, no_flags)
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call has returned a new descriptor that nobody else owns.
    Some(fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(not(target_os = "linux"))]
fn open(_thread: libc::pid_t) -> Option<fs::File> {
    None
}

fn read(mut counter: &fs::File) -> Option<u64> {
    let mut value = [0; 8];
    counter.read_exact(&mut value).ok()?;
    Some(u64::from_ne_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_where_it_can_be() {
        let Some(counter) = Instructions::of_process(std::process::id()) else { return };
        let before = counter.total().unwrap();
        let sum: u64 = (0..100_000_u64).map(std::hint::black_box).sum();
        let after = counter.total().unwrap();
        assert!(sum > 0 && after - before >= 100_000, "{before} {after}");
    }
}
