//! What a soak measures: the process from outside, the server by its own `/metrics`.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// Memory that a server at rest may have beyond what it had, in bytes: caches have budgets, and an
/// allocator keeps what it may need again.
const MEMORY_SLACK: u64 = 64 << 20;
/// File handles, likewise: segments and files of the log come and go.
const FILES_SLACK: u64 = 24;
/// Tasks of the runtime, likewise: a scrape is one.
const TASKS_SLACK: u64 = 4;

/// Ports that the server was given.
pub struct Ports {
    pub monitor: u16,
    pub websocket: String,
}

pub fn ports(dir: &Path) -> Ports {
    let mut entries = std::fs::read_dir(dir.join("ports")).expect("ports").flatten();
    let text = std::fs::read_to_string(entries.next().expect("a ports file").path()).expect("text");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let after = |name: &str| {
        let url = value[name][0].as_str().unwrap_or_else(|| panic!("no {name} in {value}"));
        url.rsplit_once("//").expect("a URL").1.to_owned()
    };
    let monitor = after("monitoring");
    let port = monitor.rsplit_once(':').expect("a port").1.parse().expect("a number");
    Ports { monitor: port, websocket: after("websocket") }
}

/// A server at one moment.
#[derive(Debug)]
pub struct Gauges {
    pub connections: u64,
    pub subscriptions: u64,
    pub consumers: u64,
    pub streams: u64,
    pub tasks: u64,
    pub threads: u64,
    pub files: u64,
    /// Resident memory without what the caches hold, which have their own budget.
    pub memory: u64,
}

impl Gauges {
    pub fn read(monitor: u16) -> Self {
        let page = scrape(monitor);
        let sum = |name: &str| -> u64 {
            let lines = page.lines().filter(|line| !line.starts_with('#'));
            let values = lines.filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let value = rest.rsplit_once(' ')?.1;
                (rest.starts_with(' ') || rest.starts_with('{'))
                    .then(|| value.parse::<f64>().ok())?
            });
            values.sum::<f64>() as u64
        };
        Self {
            connections: sum("nuthatch_connections"),
            subscriptions: sum("nuthatch_subscriptions"),
            consumers: sum("nuthatch_jetstream_consumers"),
            streams: sum("nuthatch_jetstream_streams"),
            tasks: sum("nuthatch_runtime_tasks"),
            threads: sum("nuthatch_threads"),
            files: sum("process_open_fds"),
            memory: sum("process_resident_memory_bytes")
                .saturating_sub(sum("nuthatch_log_cache_bytes")),
        }
    }

    /// Before the first client, or after the last one has been noticed to be gone.
    pub fn of_nobody(monitor: u16) -> Self {
        loop {
            let gauges = Self::read(monitor);
            if gauges.connections == 0 {
                return gauges;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// True if nobody is there any more, as at the beginning: the server has subscriptions of its
    /// own, and the work queue its consumer.
    pub fn is_at_rest(&self, idle: &Self) -> bool {
        let left = |gauges: &Self| (gauges.connections, gauges.subscriptions, gauges.consumers);
        left(self) == left(idle)
    }

    /// What there is more of than there was before.
    pub fn beyond(&self, before: &Self) -> Option<String> {
        if !self.is_at_rest(before) || self.streams != before.streams {
            return Some("connections, subscriptions, consumers or streams".to_owned());
        }
        let limits = [
            ("tasks", self.tasks, before.tasks + TASKS_SLACK),
            ("files", self.files, before.files + FILES_SLACK),
            ("threads", self.threads, before.threads + 2),
            ("memory", self.memory, before.memory + before.memory / 2 + MEMORY_SLACK),
        ];
        let (what, value, limit) = limits.into_iter().find(|(_, value, limit)| value > limit)?;
        Some(format!("{what}: {value}, at most {limit}"))
    }
}

fn scrape(monitor: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", monitor)).expect("monitoring");
    stream.set_read_timeout(Some(super::support::TIMEOUT)).expect("a timeout");
    stream.write_all(b"GET /metrics?consumers=0 HTTP/1.0\r\n\r\n").expect("ask");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200"), "{text}");
    text
}
