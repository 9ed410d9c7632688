//! Resource use of a process: CPU time and peak memory, read from the kernel.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use nuthatch_client::ServerUrl;

/// CPU time and memory of a process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// CPU time of all its threads, living and ended.
    pub cpu: Duration,
    /// The part of it spent in user mode, by the kernel's coarse clock (10 ms steps).
    pub user: Duration,
    /// The part of it spent in the kernel, likewise.
    pub system: Duration,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Highest resident memory in bytes, since the start or the last [`reset_peak`].
    pub peak_rss_bytes: u64,
}

/// Cost of a run for a process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessCost {
    /// The process.
    pub pid: u32,
    /// CPU time per message in microseconds.
    pub cpu_us_per_msg: f64,
    /// CPU time of the run in seconds.
    pub cpu_s: f64,
    /// The part of [`Self::cpu_s`] spent in user mode (10 ms steps).
    pub user_s: f64,
    /// The part of [`Self::cpu_s`] spent in the kernel (10 ms steps).
    pub system_s: f64,
    /// Resident memory at the end of the run in bytes.
    pub rss_bytes: u64,
    /// Highest resident memory in bytes.
    pub peak_rss_bytes: u64,
    /// Whether the peak is of this run alone, or of the whole life of the process.
    pub peak_is_of_this_run: bool,
}

/// Reads what a process has used so far; `None` when it is gone or not ours to see.
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let (user, system) = stat_times(&stat)?;
    let cpu = cpu_clock(pid).unwrap_or(user + system);
    Some(Usage {
        cpu,
        user,
        system,
        rss_bytes: status_kib(&status, "VmRSS:").unwrap_or(0) * 1024,
        peak_rss_bytes: status_kib(&status, "VmHWM:").unwrap_or(0) * 1024,
    })
}

/// CPU time used by this process so far.
pub fn own_cpu() -> Duration {
    cpu_clock(std::process::id()).unwrap_or_default()
}

/// Makes the peak of the resident memory start anew. Returns whether the kernel allowed it.
pub fn reset_peak(pid: u32) -> bool {
    const RESET_PEAK_RSS: &str = "5";
    fs::write(format!("/proc/{pid}/clear_refs"), RESET_PEAK_RSS).is_ok()
}

/// The process behind a server address, when the address is one of this machine and the process
/// is ours to see.
pub fn find_server(server: &ServerUrl) -> Option<u32> {
    let local = match server.host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => server.host == "localhost",
    };
    if local { find_listener(server.port) } else { None }
}

/// The process that listens on a TCP port of this machine.
pub fn find_listener(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| holds_socket(*pid, &wanted))
}

fn holds_socket(pid: u32, wanted: &[String]) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .any(|link| wanted.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

/// Socket inodes that listen on `port`, from a table in the format of `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    const ADDRESS: usize = 1;
    const STATE: usize = 3;
    const INODE: usize = 9;
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = fields.get(ADDRESS)?.rsplit_once(':')?;
        let matches = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(STATE)? == LISTEN;
        matches.then(|| fields.get(INODE).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// Has the kernel kill a child when we end in whatever way; to be called between fork and exec.
///
/// # Errors
/// The system's.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: a plain system call without pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True if this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// User and system time from the text of `/proc/PID/stat`.
fn stat_times(stat: &str) -> Option<(Duration, Duration)> {
    // The command's name may hold spaces and parentheses; the fields proper follow the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = ticks_per_second();
    let duration = |count: u64| Duration::from_secs_f64(count as f64 / ticks);
    Some((duration(user), duration(system)))
}

/// Parent, and CPU time of ended children that have been waited for, from the text of
/// `/proc/PID/stat`.
pub fn stat_family(stat: &str) -> Option<(u32, Duration)> {
    const PARENT: usize = 1;
    const CHILDREN_USER: usize = 13;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let parent = fields.get(PARENT)?.parse().ok()?;
    let user: u64 = fields.get(CHILDREN_USER)?.parse().ok()?;
    let system: u64 = fields.get(CHILDREN_USER + 1)?.parse().ok()?;
    Some((parent, Duration::from_secs_f64((user + system) as f64 / ticks_per_second())))
}

fn status_kib(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn ticks_per_second() -> f64 {
    // SAFETY: `sysconf` has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// The nanosecond CPU clock of a process.
fn cpu_clock(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to live local variables of the right types.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    if failed {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn own_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(find_listener(port), Some(std::process::id()));
        let url = ServerUrl::parse(&format!("127.0.0.1:{port}")).unwrap();
        assert_eq!(find_server(&url), Some(std::process::id()));
        assert_eq!(find_server(&ServerUrl::parse(&format!("10.9.8.7:{port}")).unwrap()), None);
    }

    #[test]
    fn own_usage_grows() {
        let before = usage(std::process::id()).unwrap();
        let mut sum = 0u64;
        while own_cpu() < before.cpu + Duration::from_millis(5) {
            sum = sum.wrapping_add(1);
        }
        let after = usage(std::process::id()).unwrap();
        assert!(after.cpu > before.cpu && after.rss_bytes > 0 && sum > 0);
    }
}
