//! Resource use of the process: memory and processor.

/// Resident memory in bytes, and processor use in percent of one core, since the last call.
pub(super) fn usage() -> (u64, f64) {
    (resident_bytes().unwrap_or(0), cpu_percent().unwrap_or(0.0))
}

/// Threads of the process: id, name and state.
pub(super) fn threads() -> Vec<(u64, String, char)> {
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut threads: Vec<_> = entries.flatten().filter_map(|e| thread(&e.path())).collect();
    threads.sort_unstable();
    threads
}

/// `id (name) state …`; the name may hold anything.
fn thread(directory: &std::path::Path) -> Option<(u64, String, char)> {
    let text = std::fs::read_to_string(directory.join("stat")).ok()?;
    let (before, after) = (text.find('(')?, text.rfind(')')?);
    let id = text.get(..before)?.trim().parse().ok()?;
    let name = text.get(before + 1..after)?.to_owned();
    Some((id, name, text.get(after + 1..)?.trim_start().chars().next()?))
}

/// Open file handles of the process, sockets included.
pub(super) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1))
}

/// File handles that the process may have; `None`: any number.
pub(super) fn max_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Resident memory in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: `sysconf` takes a plain number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}

fn cpu_percent() -> Option<f64> {
    use parking_lot::Mutex;
    use std::time::Instant;
    static LAST: Mutex<Option<(Instant, f64)>> = Mutex::new(None);
    let used = cpu_seconds()?;
    let now = Instant::now();
    let mut last = LAST.lock();
    let percent = match *last {
        Some((at, before)) => {
            let elapsed = (now - at).as_secs_f64();
            if elapsed > 0.0 { (used - before) / elapsed * 100.0 } else { 0.0 }
        }
        None => 0.0,
    };
    *last = Some((now, used));
    Some((percent * 10.0).round() / 10.0)
}

/// Processor time used by the process so far.
pub(super) fn cpu_seconds() -> Option<f64> {
    // SAFETY: `usage` is plain data that the call only writes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) == 0).then_some(usage)?
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Some(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}
