//! What was measured on: without it numbers mean little.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine and the versions of the servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel version.
    pub kernel: String,
    /// Server names and versions.
    pub versions: Vec<(String, String)>,
}

impl Machine {
    /// Reads it from the kernel.
    pub fn read(versions: &[(String, String)]) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let memory_kib: u64 = field(&meminfo, "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .unwrap_or(0);
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib * 1024,
            kernel: kernel.trim().to_owned(),
            versions: versions.to_vec(),
        }
    }
}

/// Value of the first `key : value` line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
