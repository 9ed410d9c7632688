//! Resource use of a group of processes over time: CPU and memory of a server with all its
//! children, sampled a few times a second.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process;

/// Time between samples.
const INTERVAL: Duration = Duration::from_millis(250);

/// Samples kept; at the interval above this is more than a day.
const MAX_SAMPLES: usize = 500_000;

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    cpu: Duration,
    memory_bytes: u64,
}

/// A measurement going on in a thread of its own.
#[derive(Debug)]
pub struct Meter {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

/// Use between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time in seconds, of all processes.
    pub cpu_s: f64,
    /// Highest memory in bytes: the resident set of a single process, the sum of proportional set
    /// sizes of several, because they share pages.
    pub peak_memory_bytes: u64,
}

/// Samples of a meter.
#[derive(Debug)]
pub struct Readings(Vec<Sample>);

impl Meter {
    /// Starts with some processes and everything they start.
    pub fn start(roots: Vec<u32>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut samples = vec![sample(&roots)];
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if samples.len() < MAX_SAMPLES {
                    samples.push(sample(&roots));
                }
            }
            samples.push(sample(&roots));
            samples
        });
        Self { stop, thread }
    }

    /// Ends it.
    pub fn finish(self) -> Readings {
        // The thread ends only on this message, so it is there to take it.
        let _ = self.stop.send(());
        Readings(self.thread.join().unwrap_or_default())
    }
}

impl Readings {
    /// Use between two moments, interpolated between samples.
    pub fn between(&self, from: Instant, to: Instant) -> Used {
        let cpu = self.cpu_at(to) - self.cpu_at(from);
        let inside = self.0.iter().filter(|s| s.at >= from && s.at <= to + INTERVAL);
        Used {
            cpu_s: cpu.max(0.0),
            peak_memory_bytes: inside.map(|s| s.memory_bytes).max().unwrap_or(0),
        }
    }

    fn cpu_at(&self, at: Instant) -> f64 {
        let after = self.0.partition_point(|s| s.at <= at);
        let seconds = |s: &Sample| s.cpu.as_secs_f64();
        match (after.checked_sub(1).and_then(|i| self.0.get(i)), self.0.get(after)) {
            (Some(a), Some(b)) => {
                let span = b.at.duration_since(a.at).as_secs_f64().max(1e-9);
                let part = at.duration_since(a.at).as_secs_f64() / span;
                seconds(a) + (seconds(b) - seconds(a)) * part
            }
            (Some(only), None) | (None, Some(only)) => seconds(only),
            (None, None) => 0.0,
        }
    }
}

fn sample(roots: &[u32]) -> Sample {
    let family = family(roots);
    let cpu = family.iter().map(|member| member.cpu).sum();
    let memory_bytes = match &family[..] {
        [only] => process::usage(only.pid).map_or(0, |usage| usage.rss_bytes),
        several => several.iter().filter_map(|member| proportional_bytes(member.pid)).sum(),
    };
    Sample { at: Instant::now(), cpu, memory_bytes }
}

/// A process of the group.
#[derive(Debug, Clone, Copy)]
struct Member {
    pid: u32,
    /// Its own CPU time and that of its children that have ended.
    cpu: Duration,
}

/// Some processes and all that descend from them.
fn family(roots: &[u32]) -> Vec<Member> {
    let mut found: BTreeSet<u32> = roots.iter().copied().collect();
    let all = processes();
    // Children usually have higher numbers than their parents, so this takes a pass or two.
    loop {
        let before = found.len();
        for (pid, parent, _) in &all {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            break;
        }
    }
    let member = |(pid, _, ended): &(u32, u32, Duration)| {
        found.contains(pid).then(|| {
            let own = process::usage(*pid).map(|usage| usage.cpu).unwrap_or_default();
            Member { pid: *pid, cpu: own + *ended }
        })
    };
    all.iter().filter_map(member).collect()
}

/// Identifiers of a process and all that descend from it, children before their parents.
pub fn family_pids(root: u32) -> Vec<u32> {
    let mut pids: Vec<u32> = family(&[root]).into_iter().map(|member| member.pid).collect();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    pids
}

/// All processes: identifier, parent, CPU time of ended children.
fn processes() -> Vec<(u32, u32, Duration)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (parent, ended) = process::stat_family(&stat)?;
            Some((pid, parent, ended))
        })
        .collect()
}

fn proportional_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Pss:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Space that a directory takes on its disk, in bytes.
pub fn disk_bytes(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    const BLOCK_BYTES: u64 = 512;
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks() * BLOCK_BYTES;
    if !meta.is_dir() {
        return own;
    }
    let Ok(entries) = fs::read_dir(path) else { return own };
    own + entries.flatten().map(|entry| disk_bytes(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_and_grandchildren_count() {
        // The inner shell burns CPU and stays; the outer one only waits.
        let burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done; sleep 30";
        let script = format!("sh -c '{burn}'; true");
        let mut child =
            Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let meter = Meter::start(vec![child.id()]);
        let started = Instant::now();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let ended = Instant::now();
        let pids = family_pids(child.id());
        let used = meter.finish().between(started, ended);
        for pid in &pids {
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        }
        child.wait().unwrap();
        assert!(pids.len() >= 2, "{pids:?}");
        assert!(used.cpu_s > 0.005 && used.peak_memory_bytes > 100_000, "{used:?}");
    }

    #[test]
    fn cpu_is_interpolated() {
        let at = Instant::now();
        let sample = |s: u64| Sample {
            at: at + Duration::from_secs(s),
            cpu: Duration::from_secs(2 * s),
            memory_bytes: s,
        };
        let readings = Readings(vec![sample(0), sample(10), sample(20)]);
        let second = |s: u64| at + Duration::from_secs(s);
        let used = readings.between(second(5), second(15));
        assert!((used.cpu_s - 20.0).abs() < 1e-6);
        assert_eq!(used.peak_memory_bytes, 10);
    }

    #[test]
    fn disk_space_of_a_directory() {
        let dir = std::env::temp_dir().join(format!("nuthatch-du-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).unwrap();
        fs::write(dir.join("inner/file"), vec![1; 100_000]).unwrap();
        let bytes = disk_bytes(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!((100_000..250_000).contains(&bytes), "{bytes}");
    }
}
