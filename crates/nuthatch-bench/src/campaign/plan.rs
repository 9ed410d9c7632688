//! A campaign as its file describes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ingest;
use crate::harness::BenchError;
use crate::mq::processes::{RunPlan, Setting};
use crate::mq::stamp::MESSAGE_CHARS;
use crate::peers::Peer;
use crate::workbench::latency::TestSize;
use crate::workbench::partitions::Plan as PartitionPlan;
use crate::workbench::pubsub::Shape;

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Title of the report.
    pub name: String,
    /// What readers must know about it, such as that its windows are short.
    #[serde(default)]
    pub note: String,
    /// How often everything is measured.
    #[serde(default = "three")]
    pub repeats: usize,
    /// A measurement that takes longer has its server killed and counts as failed, in seconds.
    #[serde(default = "default_limit")]
    pub limit_s: u64,
    /// Names of peers, in the order of the report.
    pub systems: Vec<String>,
    /// Seed 003, if wanted.
    pub latency: Option<LatencySection>,
    /// Seed 000, if wanted.
    pub pubsub: Option<PubSubSection>,
    /// Seed 001, if wanted.
    pub partitions: Option<PartitionsSection>,
    /// Seed 002, if wanted.
    pub log: Option<LogSection>,
    /// Seed 004, if wanted.
    pub mq: Option<MqSection>,
    /// Seeds 000 and 002, if wanted: an index that is fed and searched.
    pub ingest: Option<IngestSection>,
}

fn three() -> usize {
    3
}

fn default_limit() -> u64 {
    300
}

/// Seed 003.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencySection {
    /// Counts and sizes of core publish and subscribe.
    pub core: TestSize,
    /// Counts and sizes of durable queues.
    pub durable: TestSize,
    /// A payload size that takes longer ends with the messages it has, in seconds.
    pub size_limit_s: Option<f64>,
}

/// Seed 000.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PubSubSection {
    /// Names of shapes.
    pub shapes: Vec<String>,
    /// Operations of each.
    pub operations: usize,
}

/// Seed 001.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionsSection {
    /// Streams.
    pub partitions: u32,
    /// Messages of the phases with batches.
    pub messages: u64,
    /// Messages of the synchronous phase.
    pub sync_messages: u64,
}

/// Seed 002.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSection {
    /// Body sizes in bytes.
    pub sizes: Vec<usize>,
    /// Length of each of the two measurements of a size, in seconds.
    pub seconds: f64,
}

/// An index that is fed by a log and searched meanwhile.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngestSection {
    /// Rows that are inserted.
    pub rows: u64,
}

/// Seed 004.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqSection {
    /// Settings as `THREADS:SENDERS:RECEIVERS`.
    pub matrix: Vec<String>,
    /// Not measured, in seconds.
    pub warmup_s: f64,
    /// Length of a window in seconds.
    pub window_s: f64,
    /// Windows.
    #[serde(default = "one")]
    pub windows: u32,
    /// Receivers end after receiving nothing for this long, in seconds.
    pub idle_s: f64,
    /// But not later than this after the last window, in seconds.
    pub drain_s: f64,
    /// Messages per second over all senders for an open loop beside the closed one, with the first
    /// setting of the matrix.
    pub open_rate: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Work of one measurement of a campaign; the server is started anew for each.
#[derive(Debug, Clone)]
pub enum Work {
    /// Core publish and subscribe.
    CoreLatency(TestSize),
    /// A durable queue, one message at a time, and how long each payload size may take.
    DurableLatency(TestSize, Option<Duration>),
    /// One shape, so many operations.
    PubSub(Shape, usize),
    /// The three phases.
    Partitions(PartitionPlan),
    /// Body sizes, and the length of each measurement.
    Log(Vec<usize>, Duration),
    /// One setting.
    Mq(Setting, RunPlan),
    /// So many rows.
    Ingest(u64),
}

impl Work {
    /// The workload and the seed, for headings.
    pub fn section(&self) -> &'static str {
        match self {
            Self::CoreLatency(_) => "latency: core publish and subscribe (seed 003)",
            Self::DurableLatency(..) => "latency: durable queues (seed 003)",
            Self::PubSub(..) => "pubsub (seed 000)",
            Self::Partitions(_) => "partitions (seed 001)",
            Self::Log(..) => "log (seed 002)",
            Self::Mq(..) => "mq (seed 004)",
            Self::Ingest(_) => "ingest and search (seeds 000 and 002)",
        }
    }

    /// True if this system can do it: some need the NATS protocol.
    pub fn suits(&self, peer: &Peer) -> bool {
        match self {
            Self::CoreLatency(_) | Self::Partitions(_) => peer.speaks_nats,
            Self::Ingest(_) => ingest::knows(peer),
            Self::DurableLatency(..) | Self::PubSub(..) | Self::Log(..) | Self::Mq(..) => true,
        }
    }

    /// The part of its name beside the section, for progress.
    pub fn variant(&self) -> String {
        match self {
            Self::CoreLatency(size) | Self::DurableLatency(size, _) => {
                format!("{} messages", size.messages())
            }
            Self::PubSub(shape, _) => shape.name.to_owned(),
            Self::Partitions(plan) => format!("{} messages", plan.messages),
            Self::Log(sizes, _) => format!("{} body sizes", sizes.len()),
            Self::Mq(setting, plan) => mq_variant(setting, plan),
            Self::Ingest(rows) => ingest::variant(*rows),
        }
    }
}

/// Name of a row of the matrix.
pub fn mq_variant(setting: &Setting, plan: &RunPlan) -> String {
    let threads = match (setting.send_threads, setting.receive_threads) {
        (send, receive) if send == receive => send.to_string(),
        (send, receive) => format!("{send}/{receive}"),
    };
    let loop_kind = match plan.rate {
        Some(rate) => format!(", open loop at {} msgs/s", crate::report::thousands(rate)),
        None => String::new(),
    };
    format!(
        "{threads} thread(s) per node, {} sender and {} receiver node(s){loop_kind}",
        setting.senders, setting.receivers
    )
}

impl Campaign {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// In words for the user.
    pub fn parse(text: &str) -> Result<Self, BenchError> {
        let campaign: Self = toml::from_str(text)
            .map_err(|err| BenchError::Usage(format!("the campaign: {err}")))?;
        if campaign.repeats == 0 || campaign.systems.is_empty() {
            let text = "a campaign needs at least one system and one repeat";
            return Err(BenchError::Usage(text.into()));
        }
        campaign.peers()?;
        campaign.works()?;
        Ok(campaign)
    }

    /// Its systems.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn peers(&self) -> Result<Vec<&'static Peer>, BenchError> {
        self.systems.iter().map(|name| Peer::named(name)).collect()
    }

    /// Everything that each system is to do.
    ///
    /// # Errors
    /// When a shape or setting makes no sense.
    pub fn works(&self) -> Result<Vec<Work>, BenchError> {
        let mut works = Vec::new();
        if let Some(section) = &self.latency {
            works.push(Work::CoreLatency(section.core));
            let limit = section.size_limit_s.map(seconds).transpose()?;
            works.push(Work::DurableLatency(section.durable, limit));
        }
        if let Some(section) = &self.pubsub {
            for name in &section.shapes {
                let shape = Shape::parse(name).map_err(BenchError::Usage)?;
                works.push(Work::PubSub(shape, section.operations.max(1)));
            }
        }
        if let Some(section) = &self.partitions {
            works.push(Work::Partitions(PartitionPlan {
                partitions: section.partitions.max(1),
                messages: section.messages,
                sync_messages: section.sync_messages,
            }));
        }
        if let Some(section) = &self.log {
            works.push(Work::Log(section.sizes.clone(), seconds(section.seconds)?));
        }
        if let Some(section) = &self.mq {
            works.extend(mq_works(section)?);
        }
        if let Some(section) = &self.ingest {
            works.push(Work::Ingest(section.rows));
        }
        Ok(works)
    }
}

fn seconds(value: f64) -> Result<Duration, BenchError> {
    Duration::try_from_secs_f64(value).map_err(|err| BenchError::Usage(format!("{value} s: {err}")))
}

fn mq_works(section: &MqSection) -> Result<Vec<Work>, BenchError> {
    let settings: Result<Vec<Setting>, String> =
        section.matrix.iter().map(|text| Setting::parse(text)).collect();
    let settings = settings.map_err(BenchError::Usage)?;
    let plan = RunPlan {
        warmup: seconds(section.warmup_s)?,
        window: seconds(section.window_s)?,
        windows: section.windows,
        idle: seconds(section.idle_s)?,
        drain_limit: seconds(section.drain_s)?,
        batch: 10,
        size: MESSAGE_CHARS,
        rate: None,
    };
    let mut works: Vec<Work> = settings.iter().map(|setting| Work::Mq(*setting, plan)).collect();
    if let (Some(rate), Some(setting)) = (section.open_rate, settings.first()) {
        works.push(Work::Mq(*setting, RunPlan { rate: Some(rate), ..plan }));
    }
    Ok(works)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_repository_are_understood() {
        for text in [
            include_str!("../../../../bench/campaigns/seeds.toml"),
            include_str!("../../../../bench/campaigns/seeds-short.toml"),
        ] {
            let campaign = Campaign::parse(text).unwrap();
            let sections: std::collections::BTreeSet<_> =
                campaign.works().unwrap().iter().map(Work::section).collect();
            assert_eq!(sections.len(), 6, "both latencies and four more: {sections:?}");
        }
    }

    #[test]
    fn the_ingest_campaign_is_understood() {
        let text = include_str!("../../../../bench/campaigns/ingest.toml");
        let campaign = Campaign::parse(text).unwrap();
        let works = campaign.works().unwrap();
        assert_eq!(works.len(), 1);
        assert!(campaign.peers().unwrap().iter().all(|peer| works[0].suits(peer)));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str, word: &str| {
            let err = Campaign::parse(text).unwrap_err().to_string();
            assert!(err.contains(word), "{err}");
        };
        check("name = 'x'\nsystems = ['nope']", "nope");
        check("name = 'x'\nsystems = []", "at least one");
        check("name = 'x'\nsystems = ['nats']\nrepeets = 3", "repeets");
        check(
            "name = 'x'\nsystems = ['nats']\n[pubsub]\nshapes = ['9MB*9']\noperations = 1",
            "9MB*9",
        );
    }
}
