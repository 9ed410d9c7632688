//! What zones mean for the nodes that keep the logs: which zone takes the majority with it, and how people are told.

use crate::roll::Roll;
use nuthatch_catalog_group::{Roster, Zone, Zones};
use nuthatch_log::Reporter;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// What is known of zones is told after so long though a node that keeps logs was not met: it may be away for long.
const MET_WITHIN: Duration = Duration::from_secs(30);

/// The nodes of a cluster by their zones, as far as they were met since this node began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZonesSight {
    /// The names of the nodes that keep the logs and say a zone, by that.
    pub keepers: BTreeMap<Zone, Vec<String>>,
    /// How many nodes keep the logs in all.
    pub keeper_count: usize,
    /// The names of the nodes, spares included, that say no zone while another one does.
    pub without_zone: Vec<String>,
}

/// A zone whose loss leaves no majority of the nodes that keep the logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneRisk {
    /// The zone.
    pub zone: Zone,
    /// The names of the nodes there that keep the logs.
    pub nodes: Vec<String>,
    /// How many nodes keep the logs in all.
    pub keeper_count: usize,
}

impl fmt::Display for ZoneRisk {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, left) = (self.keeper_count, self.keeper_count - self.nodes.len());
        let (zone, nodes) = (&self.zone, self.nodes.join(", "));
        write!(
            to,
            "the loss of zone {zone} ({nodes}) leaves {left} of {of} nodes that keep the logs: nothing is taken then"
        )
    }
}

impl ZonesSight {
    pub(crate) fn of(roster: &Roster, zones: &Zones) -> Self {
        let (mut keepers, mut without) = (BTreeMap::<Zone, Vec<String>>::new(), vec![]);
        for (node, enrolled) in &roster.nodes {
            match zones.of(*node) {
                Some(zone) if enrolled.keeps => {
                    keepers.entry(zone.clone()).or_default().push(enrolled.name.clone());
                }
                None if zones.has_met(*node) => without.push(enrolled.name.clone()),
                Some(_) | None => {}
            }
        }
        let names_zone = roster.nodes.keys().any(|node| zones.of(*node).is_some());
        Self {
            keepers,
            keeper_count: roster.nodes.values().filter(|one| one.keeps).count(),
            without_zone: if names_zone { without } else { vec![] },
        }
    }

    /// The zone whose loss leaves no majority of the nodes that keep the logs. The first such one: there is one at most
    /// where an odd number of nodes keeps them. Nodes of which no zone is known are taken to be elsewhere.
    #[must_use]
    pub fn risk(&self) -> Option<ZoneRisk> {
        let keeper_count = self.keeper_count;
        let no_majority = |nodes: &[String]| takes_majority(nodes.len(), keeper_count);
        let (zone, nodes) = self.keepers.iter().find(|(_, nodes)| no_majority(nodes))?;
        Some(ZoneRisk { zone: zone.clone(), nodes: nodes.clone(), keeper_count })
    }
}

/// True if the loss of so many of some nodes leaves no majority of them.
#[must_use]
pub const fn takes_majority(lost: usize, of: usize) -> bool {
    of - lost <= of / 2
}

/// Something that people are told of when it becomes so, or otherwise so, and when it is over.
#[derive(Debug, Default)]
struct Told(Option<String>);

impl Told {
    /// Takes in what is so now, and says what is new of it.
    fn look(&mut self, now: Option<String>, over: &str, report: &Reporter) {
        if self.0 == now {
            return;
        }
        match &now {
            Some(text) => report.say(text),
            None => report.note(over),
        }
        self.0 = now;
    }

    /// As it was told, if it was: what has only become otherwise so is not told.
    fn or_as_told(&self, now: Option<String>) -> Option<String> {
        now.map(|text| self.0.clone().unwrap_or(text))
    }
}

/// Tells people what zones mean, once of each thing.
pub(crate) struct ZoneWatch {
    began: Instant,
    report: Reporter,
    risk: Told,
    without_zone: Told,
    owner_zones: Told,
    other_owner_zones: Told,
}

impl ZoneWatch {
    pub(crate) fn new(report: Reporter, now: Instant) -> Self {
        let (risk, without_zone, owner_zones, other_owner_zones) = Default::default();
        Self { began: now, report, risk, without_zone, owner_zones, other_owner_zones }
    }

    /// Looks at what is known, once all nodes that keep logs were met, or might have been.
    pub(crate) fn look(&mut self, roll: &Roll, now: Instant) {
        let (roster, zones) = (roll.roster(), roll.zones());
        let is_met = |node: &NodeId| zones.has_met(*node);
        if now.duration_since(self.began) < MET_WITHIN && !roll.keepers().iter().all(is_met) {
            return;
        }
        let (sight, report) = (ZonesSight::of(&roster, &zones), &self.report);
        let risk = sight.risk().map(|risk| {
            format!("{risk}. Have spares in other zones take places (nuthatch cluster replace)")
        });
        let over =
            "whichever zone is lost, a majority of the nodes that keep the logs is left again";
        self.risk.look(risk, over, report);
        let without = self.without_zone.or_as_told(without_zone(&sight));
        self.without_zone.look(without, "all nodes that are there say their zones", report);
        let nobody = nobody_in(roll.owner_zones(), &sight);
        self.owner_zones.look(nobody, "a node that keeps the logs is in owner_zones again", report);
        let other = other_owner_zones(roll);
        self.other_owner_zones.look(
            other,
            "all nodes that say so have the same owner_zones",
            report,
        );
    }
}

fn without_zone(sight: &ZonesSight) -> Option<String> {
    let names = sight.without_zone.join(", ");
    (!names.is_empty()).then(|| {
        format!("other nodes say their zones, and these do not: {names}. Set the zone of every node (--zone)")
    })
}

/// That another node has logs owned in other zones than this one.
fn other_owner_zones(roll: &Roll) -> Option<String> {
    let list = |zones: &[Zone]| match zones {
        [] => "none".to_owned(),
        zones => zones.iter().map(Zone::as_str).collect::<Vec<_>>().join(", "),
    };
    roll.other_owner_zones().map(|(node, zones)| {
        format!(
            "node {} has other owner_zones ({}) than this one ({}): logs pass to and fro between them. Give all nodes the same",
            roll.name(node),
            list(&zones),
            list(roll.owner_zones())
        )
    })
}

/// That no node is in the zones in which logs are to be owned.
fn nobody_in(owner_zones: &[Zone], sight: &ZonesSight) -> Option<String> {
    let is_nowhere = owner_zones.iter().all(|zone| !sight.keepers.contains_key(zone));
    (!owner_zones.is_empty() && is_nowhere).then(|| {
        let names: Vec<&str> = owner_zones.iter().map(Zone::as_str).collect();
        format!(
            "no node that keeps the logs says that it is in one of owner_zones ({}): they are owned wherever their places are",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
