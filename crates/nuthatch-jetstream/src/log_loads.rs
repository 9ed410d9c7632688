//! How much clients ask of the quorum logs of this node now, and of those of the others: what balance goes by
//! (`nuthatch_cluster::balance::loads`).

use crate::log_traffic::Asked;
use crate::logs_port::LogsPort;
use crate::node_questions::NodeLoad;
use crate::other_nodes::OtherNodes;
use crate::registry::is_quorum_log;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::logs::{BUSY, Loads, LogLoad, LogNumber};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What was asked within this counts most: a rate comes two thirds of the way to a new value in it.
const SMOOTHED_OVER: Duration = Duration::from_secs(60);

/// The rates of a log.
struct Meter {
    name: String,
    counted: Asked,
    /// Bytes a second: of clients of this node.
    own: f64,
    others: BTreeMap<String, f64>,
}

/// The rates of the quorum logs that this node owns.
pub(super) struct LogLoads {
    logs: Arc<dyn LogsPort>,
    nodes: Arc<OtherNodes>,
    meters: Mutex<(BTreeMap<LogId, Meter>, Instant)>,
}

impl LogLoads {
    pub(super) fn new(logs: Arc<dyn LogsPort>, nodes: Arc<OtherNodes>) -> Self {
        Self { logs, nodes, meters: Mutex::new((BTreeMap::new(), Instant::now())) }
    }

    /// What this node says of itself.
    pub(super) fn of_node(&self) -> NodeLoad {
        let (meters, attached) = (self.meters.lock(), self.logs.attached());
        let is_here = |log: &LogId| attached.iter().any(|(_, id)| id == log);
        let here = meters.0.iter().filter(|(log, _)| is_here(log));
        NodeLoad { rate: here.map(|(_, meter)| meter.load("").rate).sum() }
    }

    /// Looks at what was counted since the last look.
    fn look(&self, now: Instant) {
        let mut meters = self.meters.lock();
        let (known, since) = &mut *meters;
        let passed = now.duration_since(*since);
        *since = now;
        let asked = self.logs.asked();
        known.retain(|log, _| asked.iter().any(|(_, id, _)| id == log));
        for (name, log, counted) in asked {
            match known.get_mut(&log) {
                Some(meter) => meter.pass(counted, passed),
                None if is_quorum_log(&name) => {
                    known.insert(log, Meter::new(name, counted));
                }
                None => {}
            }
        }
    }

    /// Looks, and asks the others where this node has enough to do that some of it may go to one of them; `node`: this one,
    /// which knows the numbers of logs by `number`.
    pub(super) async fn loads(
        &self,
        node: &str,
        number: impl Fn(&str) -> Option<LogNumber>,
    ) -> Loads {
        self.look(Instant::now());
        let of = |meter: &Meter| Some((number(&meter.name)?, meter.load(node)));
        let own: BTreeMap<_, _> = self.meters.lock().0.values().filter_map(of).collect();
        let total: u64 = own.values().map(|load| load.rate).sum();
        let others = if total < BUSY { BTreeMap::new() } else { self.nodes.loads().await };
        Loads { own, others }
    }
}

impl Meter {
    fn new(name: String, counted: Asked) -> Self {
        Self { name, counted, own: 0.0, others: BTreeMap::new() }
    }

    fn pass(&mut self, counted: Asked, passed: Duration) {
        let seconds = passed.as_secs_f64().max(0.001);
        let share = 1.0 - (-seconds / SMOOTHED_OVER.as_secs_f64()).exp();
        let follow = |rate: f64, now: u64, before: u64| {
            rate + share * (now.saturating_sub(before) as f64 / seconds - rate)
        };
        self.own = follow(self.own, counted.own, self.counted.own);
        for (node, now) in &counted.others {
            let before = self.counted.others.get(node).copied().unwrap_or(0);
            let rate = self.others.entry(node.clone()).or_default();
            *rate = follow(*rate, *now, before);
        }
        self.counted = counted;
    }

    /// As others hear it; `node`: this one.
    fn load(&self, node: &str) -> LogLoad {
        let mut from: BTreeMap<String, u64> =
            self.others.iter().map(|(node, rate)| (node.clone(), *rate as u64)).collect();
        from.insert(node.to_owned(), self.own as u64);
        LogLoad { rate: from.values().sum(), from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(own: u64, others: &[(&str, u64)]) -> Asked {
        let others = others.iter().map(|(node, asked)| ((*node).to_owned(), *asked)).collect();
        Asked { own, others }
    }

    #[test]
    fn a_rate_follows_what_is_asked() {
        let mut meter = Meter::new("default".to_owned(), asked(500, &[]));
        // 1,000 bytes a second of clients here, 3,000 of those of another node.
        for at in 1..=60 {
            let counted = asked(500 + at * 10_000, &[("n2", at * 30_000)]);
            meter.pass(counted, Duration::from_secs(10));
            let rate = meter.load("n1").rate;
            let is_due = match at {
                1 => (500..800).contains(&rate),
                6 => (2_400..2_700).contains(&rate),
                30.. => (3_950..=4_000).contains(&rate),
                _ => true,
            };
            assert!(is_due, "after {at}0 s it is {rate}");
        }
        let load = meter.load("n1");
        assert_eq!(load.from.keys().collect::<Vec<_>>(), ["n1", "n2"]);
        assert!(load.from["n2"] > 2 * load.from["n1"]);
        // Nobody asks any more.
        for _ in 0..60 {
            let counted = meter.counted.clone();
            meter.pass(counted, Duration::from_secs(10));
        }
        assert_eq!(meter.load("n1").rate, 0);
    }
}
