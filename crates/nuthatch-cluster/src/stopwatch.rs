//! How long the parts of a takeover take.

use nuthatch_quorum::doing::{Activity, Doing};
use nuthatch_quorum::types::{Epoch, Time};
use std::fmt;

/// How a takeover came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// The owner was lost.
    Loss,
    /// The owner handed the log over.
    Handover,
}

/// A takeover by this node, from the former owner's last word until clients were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takeover {
    /// The owner was lost, or its log had none; otherwise it was handed over.
    pub is_after_loss: bool,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// The parts of a takeover, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    epoch: Epoch,
    by: By,
    /// Claiming the epoch while the former owner served.
    prepared: u64,
    /// From the former owner's last word to the claim.
    detection: u64,
    /// Both changes of the catalog, as far as they were waited for.
    catalog: u64,
    /// Until the former owner's lease had ended.
    lease: u64,
    seal: u64,
    bring: u64,
    start: u64,
    /// When the node began to own the log.
    pub(crate) owned_at: Time,
}

impl Shares {
    /// The line that tells them, of a node that takes clients now and needed so long to apply the log.
    pub(crate) fn line(&self, apply: u64, now: Time) -> String {
        let parts = self.parts(apply, now);
        let mut line = format!("takeover: epoch={} by={}", self.epoch.0, self.by);
        let more = [("total", self.takeover(apply, now).micros), ("prepared", self.prepared)];
        for (name, micros) in parts.into_iter().chain(more) {
            line.push_str(&format!(" {name}_ms={}.{}", micros / 1_000, micros % 1_000 / 100));
        }
        line
    }

    /// The same as numbers.
    pub(crate) fn takeover(&self, apply: u64, now: Time) -> Takeover {
        let micros = self.parts(apply, now).iter().map(|(_, micros)| micros).sum();
        Takeover { is_after_loss: self.by == By::Loss, micros }
    }

    fn parts(&self, apply: u64, now: Time) -> [(&'static str, u64); 8] {
        let open = now.since(self.owned_at).saturating_sub(apply);
        [
            ("detection", self.detection),
            ("catalog", self.catalog),
            ("lease", self.lease),
            ("seal", self.seal),
            ("bring", self.bring),
            ("start", self.start),
            ("apply", apply),
            ("open", open),
        ]
    }
}

impl fmt::Display for By {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Loss => "loss",
            Self::Handover => "handover",
        })
    }
}

/// Watches what a node is doing, step by step.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    doing: Doing,
    since: Time,
    /// Of the attempt that is under way.
    shares: Shares,
    /// When the former owner was last heard, as that was known when the attempt began.
    heard: Option<Time>,
}

impl Default for Stopwatch {
    fn default() -> Self {
        let (doing, since) = (Doing::Following, Time(0));
        Self { doing, since, shares: Shares::none(), heard: None }
    }
}

impl Shares {
    const fn none() -> Self {
        Self {
            epoch: Epoch(0),
            by: By::Handover,
            prepared: 0,
            detection: 0,
            catalog: 0,
            lease: 0,
            seal: 0,
            bring: 0,
            start: 0,
            owned_at: Time(0),
        }
    }
}

impl Stopwatch {
    /// Takes over what a node is doing after a step. Gives the shares of a takeover when that has ended well.
    pub(crate) fn note(
        &mut self,
        activity: Activity,
        owned: Option<Epoch>,
        now: Time,
    ) -> Option<Shares> {
        if let Some(leased) = activity.leased
            && self.doing == Doing::Sealing
        {
            self.shares.lease = leased.since(self.since);
        }
        if activity.doing == self.doing {
            return None;
        }
        let took = now.since(self.since);
        match self.doing {
            // An owner that changes its set takes over from itself.
            Doing::Following | Doing::Owning => {
                self.shares = Shares::none();
                self.heard = activity.heard;
            }
            Doing::Asking => self.shares.by = By::Loss,
            Doing::Claiming if activity.doing == Doing::Prepared => self.shares.prepared = took,
            Doing::Claiming | Doing::Deciding => self.shares.catalog += took,
            Doing::Prepared => {}
            Doing::Sealing => self.shares.seal += took.saturating_sub(self.shares.lease),
            Doing::Bringing => self.shares.bring += took,
            Doing::Starting => self.shares.start += took,
        }
        if activity.doing == Doing::Claiming && self.shares.by == By::Loss {
            self.shares.detection = self.heard.map_or(0, |heard| now.since(heard));
        }
        (self.doing, self.since) = (activity.doing, now);
        let epoch = owned.filter(|_| activity.doing == Doing::Owning)?;
        Some(Shares { epoch, owned_at: now, ..self.shares })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(watched: &[(Doing, u64, Option<u64>)]) -> String {
        let mut watch = Stopwatch::default();
        let shares = watched.iter().filter_map(|(doing, at, leased)| {
            let (heard, leased) = (Some(Time(100_000)), leased.map(Time));
            let activity = Activity { doing: *doing, heard, leased };
            watch.note(activity, Some(Epoch(7)), Time(*at))
        });
        let shares = shares.last().expect("it owns the log in the end");
        shares.line(2_000, Time(shares.owned_at.0 + 30_000))
    }

    #[test]
    fn the_shares_of_a_takeover_after_a_loss_end_where_the_next_begins() {
        let watched = [
            (Doing::Following, 90_000, None),
            (Doing::Asking, 110_000, None),
            (Doing::Following, 120_000, None),
            (Doing::Asking, 130_000, None),
            (Doing::Claiming, 140_000, None),
            (Doing::Sealing, 145_000, None),
            (Doing::Sealing, 300_000, Some(300_000)),
            (Doing::Bringing, 310_500, Some(300_000)),
            (Doing::Starting, 312_000, Some(300_000)),
            (Doing::Owning, 313_000, None),
            (Doing::Owning, 320_000, None),
        ];
        let expected = "takeover: epoch=7 by=loss detection_ms=40.0 catalog_ms=5.0 lease_ms=155.0 seal_ms=10.5 \
            bring_ms=1.5 start_ms=1.0 apply_ms=2.0 open_ms=28.0 total_ms=243.0 prepared_ms=0.0";
        assert_eq!(line(&watched), expected);
    }

    #[test]
    fn what_was_prepared_while_the_owner_served_is_no_part_of_a_handover() {
        let watched = [
            (Doing::Claiming, 110_000, None),
            (Doing::Prepared, 115_000, None),
            (Doing::Sealing, 180_000, None),
            (Doing::Bringing, 182_000, None),
            (Doing::Deciding, 183_000, None),
            (Doing::Starting, 184_000, None),
            (Doing::Owning, 185_000, None),
        ];
        let expected = "takeover: epoch=7 by=handover detection_ms=0.0 catalog_ms=1.0 lease_ms=0.0 seal_ms=2.0 \
            bring_ms=1.0 start_ms=1.0 apply_ms=2.0 open_ms=28.0 total_ms=35.0 prepared_ms=5.0";
        assert_eq!(line(&watched), expected);
    }

    #[test]
    fn an_owner_that_takes_over_from_itself_begins_to_count_anew() {
        let watched = [
            (Doing::Asking, 110_000, None),
            (Doing::Claiming, 140_000, None),
            (Doing::Sealing, 145_000, Some(300_000)),
            (Doing::Starting, 310_000, None),
            (Doing::Owning, 320_000, None),
            (Doing::Sealing, 900_000, None),
            (Doing::Starting, 902_000, None),
            (Doing::Owning, 903_000, None),
        ];
        let expected = "takeover: epoch=7 by=handover detection_ms=0.0 catalog_ms=0.0 lease_ms=0.0 seal_ms=2.0 \
            bring_ms=0.0 start_ms=1.0 apply_ms=2.0 open_ms=28.0 total_ms=33.0 prepared_ms=0.0";
        assert_eq!(line(&watched), expected);
    }
}
