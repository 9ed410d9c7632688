//! Runs the nodes of a run as processes of this machine, or as threads of this process.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::node::{self, MAX_THREADS, MAX_WINDOWS, NodePlan, NodeReport, Role, Schedule};
use super::stamp::unix_ns;
use crate::harness::BenchError;
use crate::process;
use crate::queue::{self, QueueSpec};

/// Time that nodes get for starting and connecting before the run begins, and more for each.
const START_LEAD: Duration = Duration::from_millis(700);
const START_LEAD_PER_NODE: Duration = Duration::from_millis(60);

/// How often nodes are asked whether they have ended.
const POLL: Duration = Duration::from_millis(20);

/// Added to a run's own length before a node that has not ended is killed.
const END_GRACE: Duration = Duration::from_secs(90);

/// Nodes of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Threads per sender node.
    pub send_threads: usize,
    /// Threads per receiver node.
    pub receive_threads: usize,
    /// Sender nodes.
    pub senders: usize,
    /// Receiver nodes.
    pub receivers: usize,
}

impl Setting {
    /// Reads `THREADS:SENDERS:RECEIVERS` or `SEND_THREADS/RECEIVE_THREADS:SENDERS:RECEIVERS`, the
    /// first three columns of the seed's table.
    ///
    /// # Errors
    /// In words for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no setting such as 5:1:2 or 200/5:16:16");
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(bad);
        let parts: Vec<&str> = text.trim().split(':').collect();
        let [threads, senders, receivers] = parts[..] else { return Err(bad()) };
        let (send, receive) = threads.split_once('/').unwrap_or((threads, threads));
        let setting = Self {
            send_threads: number(send)?,
            receive_threads: number(receive)?,
            senders: number(senders)?,
            receivers: number(receivers)?,
        };
        if setting.send_threads.max(setting.receive_threads) > MAX_THREADS {
            return Err(format!("{text:?} has more than {MAX_THREADS} threads per node"));
        }
        Ok(setting)
    }

    /// All receiving threads.
    pub fn all_receivers(&self) -> usize {
        self.receivers * self.receive_threads
    }
}

/// Settings shared by all runs of a matrix.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RunPlan {
    /// Not measured.
    pub warmup: Duration,
    /// Length of a window.
    pub window: Duration,
    /// How many windows are measured.
    pub windows: u32,
    /// Receivers end after receiving nothing for this long.
    pub idle: Duration,
    /// But not later than this after the last window.
    pub drain_limit: Duration,
    /// Largest batch.
    pub batch: usize,
    /// Characters of a message.
    pub size: usize,
    /// Messages per second over all senders; `None` for a closed loop.
    pub rate: Option<f64>,
}

impl RunPlan {
    fn schedule(&self, nodes: usize) -> Schedule {
        let lead = START_LEAD + START_LEAD_PER_NODE * nodes as u32;
        self.schedule_from(unix_ns() + lead.as_nanos() as u64)
    }

    /// The schedule of a run that starts at a moment in nanoseconds since 1970.
    pub fn schedule_from(&self, start_ns: u64) -> Schedule {
        Schedule {
            start_ns,
            warmup: self.warmup,
            window: self.window,
            windows: self.windows.clamp(1, MAX_WINDOWS),
            idle: self.idle,
            drain_limit: self.drain_limit,
        }
    }

    fn node(&self, setting: &Setting, role: Role, node: u32, schedule: Schedule) -> NodePlan {
        let threads = match role {
            Role::Sender => setting.send_threads,
            Role::Receiver => setting.receive_threads,
        };
        let rate = self.rate.map(|rate| rate / setting.senders as f64);
        NodePlan { role, node, threads, schedule, batch: self.batch, size: self.size, rate }
    }
}

/// Makes the queue anew and runs all nodes of a setting, each in a process of its own, started from
/// this binary. With a port, node `n` serves its metrics on `127.0.0.1` at that port plus `n`.
/// Returns their reports and the schedule.
///
/// # Errors
/// When the queue cannot be made, or a node cannot be started. What happens later is in the
/// reports.
pub fn run(
    metrics_port: Option<u16>,
    spec: &QueueSpec,
    setting: &Setting,
    plan: &RunPlan,
) -> Result<(Vec<NodeReport>, Schedule), BenchError> {
    let queue = queue::open(spec)?;
    queue.prepare()?;
    let roles = [(Role::Receiver, setting.receivers), (Role::Sender, setting.senders)];
    let nodes = setting.receivers + setting.senders;
    let schedule = plan.schedule(nodes);
    let plans: Vec<NodePlan> = roles
        .iter()
        .flat_map(|(role, count)| (0..*count as u32).map(move |node| (*role, node)))
        .map(|(role, node)| plan.node(setting, role, node, schedule))
        .collect();
    let reports = run_processes(spec, &plans, metrics_port)?;
    Ok((reports, schedule))
}

/// A node process; killed when dropped.
struct NodeProcess {
    child: Child,
    plan: NodePlan,
    output: Option<thread::JoinHandle<std::io::Result<String>>>,
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_processes(
    spec: &QueueSpec,
    plans: &[NodePlan],
    metrics_port: Option<u16>,
) -> Result<Vec<NodeReport>, BenchError> {
    let mut running = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        let port = metrics_port.map(|port| port + index as u16);
        running.push(start(spec, plan, port)?);
    }
    let Some(schedule) = plans.first().map(|plan| plan.schedule) else { return Ok(Vec::new()) };
    let end_ns = schedule.end_ns() + (schedule.drain_limit + END_GRACE).as_nanos() as u64;
    let mut reports = Vec::new();
    while !running.is_empty() {
        let mut failed = false;
        let mut index = 0;
        while index < running.len() {
            let ended = running[index].child.try_wait().ok().flatten().is_some();
            if !ended && unix_ns() < end_ns {
                index += 1;
                continue;
            }
            let report = finish(running.swap_remove(index));
            failed |= report.error.is_some();
            reports.push(report);
        }
        if failed {
            // The run is lost; the others would only wait for what does not come.
            running.clear();
        }
        thread::sleep(POLL);
    }
    Ok(reports)
}

/// Input of a node process.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeOrder {
    /// Its queue.
    pub queue: QueueSpec,
    /// When.
    pub schedule: Schedule,
    /// Sends or receives.
    pub role: Role,
    /// Number among those of its role.
    pub node: u32,
    /// Threads.
    pub threads: usize,
    /// Largest batch.
    pub batch: usize,
    /// Characters of a message.
    pub size: usize,
    /// Messages per second of this node.
    pub rate: Option<f64>,
}

impl NodeOrder {
    /// Does what was ordered and returns the report.
    ///
    /// # Errors
    /// When the queue cannot be opened.
    pub fn run(&self, metrics: &Metrics) -> Result<NodeReport, BenchError> {
        let queue = queue::open(&self.queue)?;
        let plan = NodePlan {
            role: self.role,
            node: self.node,
            threads: self.threads,
            schedule: self.schedule,
            batch: self.batch,
            size: self.size,
            rate: self.rate,
        };
        Ok(node::run(queue.as_ref(), &plan, metrics))
    }
}

fn start(
    spec: &QueueSpec,
    plan: &NodePlan,
    metrics_port: Option<u16>,
) -> Result<NodeProcess, BenchError> {
    let failed = |source| BenchError::File { what: "cannot start a node".into(), source };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["mq", "node", "--order", "-"]);
    if let Some(port) = metrics_port {
        command.arg("--metrics").arg(format!("127.0.0.1:{port}"));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // SAFETY: only one async-signal-safe system call runs between fork and exec.
    unsafe { command.pre_exec(process::die_with_parent) };
    let mut child = command.spawn().map_err(failed)?;
    let order = NodeOrder {
        queue: spec.clone(),
        schedule: plan.schedule,
        role: plan.role,
        node: plan.node,
        threads: plan.threads,
        batch: plan.batch,
        size: plan.size,
        rate: plan.rate,
    };
    let text = serde_json::to_vec(&order).map_err(|err| BenchError::Failed(err.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&text).map_err(failed)?;
    }
    // Read as it comes: a report may be longer than a pipe holds.
    let output = child.stdout.take().map(|mut stdout| {
        thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        })
    });
    Ok(NodeProcess { child, plan: plan.clone(), output })
}

fn finish(mut node: NodeProcess) -> NodeReport {
    // Ended already, or has overstayed; either way its output ends here.
    let _ = node.child.kill();
    let status = node.child.wait().map(|status| status.to_string()).unwrap_or_default();
    let text = node.output.take().and_then(|output| output.join().ok()?.ok()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|_| NodeReport {
        role: node.plan.role,
        node: node.plan.node,
        threads: node.plan.threads,
        window_s: node.plan.schedule.window.as_secs_f64(),
        windows: Vec::new(),
        cpu_s: 0.0,
        confirmed: std::collections::BTreeMap::new(),
        seen: super::seen::Seen::default(),
        drain_cut: false,
        error: Some(format!("a node ended without a report ({status})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_as_in_the_table_of_the_seed() {
        let setting = Setting::parse("200/5:16:20").unwrap();
        assert_eq!((setting.send_threads, setting.receive_threads), (200, 5));
        assert_eq!((setting.senders, setting.receivers), (16, 20));
        assert_eq!(Setting::parse("25:1:2").unwrap().all_receivers(), 50);
        for bad in ["", "1:2", "0:1:1", "1:1:1:1", "a:1:1", "5000:1:1"] {
            assert!(Setting::parse(bad).is_err(), "{bad}");
        }
    }
}
