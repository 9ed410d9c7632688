//! Power cuts under streams with one writer: writers open them with higher and higher terms, and those
//! that were there before go on publishing.
//!
//! Once an opening was acknowledged nothing that is published with a lower term is acknowledged, or
//! there, with a sequence above the one that the opening told; neither then nor after any restart.
//! What was acknowledged before stays. The harness must find it when the check is turned off.

use super::rig::{Outside, Rig, config, sequence};
use super::{Dark, Lit, seeds};
use nuthatch_log::env::{Fault, MemDisk, SeededEntropy};
use nuthatch_log::{OpenError, StreamId};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::BTreeMap;

/// Power cuts in one history.
const CUTS: u64 = 4;
/// Histories.
const HISTORIES: u64 = 200;
/// Rounds of work between two cuts.
const ROUNDS: u64 = 60;
const STREAM: StreamId = StreamId(1);

/// What the outside world knows.
struct World {
    chance: SeededEntropy,
    next_token: u64,
    /// The highest term that was acknowledged, and the last sequence that the answer told.
    opened: (u64, u64),
    /// The highest term that was asked for.
    asked: u64,
    acked: BTreeMap<u64, Vec<u8>>,
    refused: u64,
}

impl World {
    /// Publishes one to three messages with terms around the newest one.
    fn publish(&mut self, rig: &mut Rig) -> Result<Lit<()>, String> {
        let mut publishes = Vec::new();
        let mut terms = BTreeMap::new();
        for _ in 0..=self.chance.below(3) {
            self.next_token += 1;
            let term = self.asked.saturating_sub(self.chance.below(3));
            let mut body = term.to_le_bytes().to_vec();
            body.extend_from_slice(&self.next_token.to_le_bytes());
            body.resize(16 + self.chance.below(300) as usize, 7);
            terms.insert(self.next_token, (term, body.clone()));
            publishes.push((self.next_token, term, body));
        }
        rig.publish_with_terms(STREAM, &publishes);
        let answers = rig.take_answers();
        let mut lit = Ok(());
        for (token, (term, body)) in terms {
            let Some(answer) = answers.get(&token) else {
                lit = Err(Dark);
                continue;
            };
            match sequence(answer) {
                Some(seq) => {
                    if term < self.opened.0 {
                        return Err(format!("term {term} wrote {seq} after {:?}", self.opened));
                    }
                    self.acked.insert(seq, body);
                }
                None if answer.contains("\"err_code\":2000") => self.refused += 1,
                None => lit = Err(Dark),
            }
        }
        Ok(lit)
    }

    fn open_writer(&mut self, rig: &mut Rig) -> Lit<()> {
        self.asked += self.chance.below(3);
        let term = self.asked.max(1);
        self.asked = term;
        match rig.op(Op::Fence { id: STREAM, term })? {
            OpOutcome::Fenced { term, last_seq } => {
                if term > self.opened.0 {
                    self.opened = (term, last_seq);
                }
                Ok(())
            }
            other => panic!("an opening is answered with {other:?}"),
        }
    }

    fn work(&mut self, rig: &mut Rig) -> Result<(), String> {
        if rig.catalog().is_empty() {
            let (id, account) = (STREAM, AccountId::GLOBAL);
            if rig.op(Op::CreateStream { id, account, config: config() }).is_err() {
                return Ok(());
            }
        }
        for _ in 0..ROUNDS {
            if self.chance.below(6) == 0 && self.open_writer(rig).is_err() {
                return Ok(());
            }
            if self.publish(rig)?.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Everything that was acknowledged is there, and nothing of a fenced writer behind the fence.
    fn check(&mut self, rig: &mut Rig) -> Result<(), String> {
        let Some(entry) = rig.catalog().into_iter().next() else {
            return match self.acked.is_empty() && self.opened.0 == 0 {
                true => Ok(()),
                false => Err("the stream is lost".to_owned()),
            };
        };
        for (seq, body) in &self.acked {
            if rig.read(STREAM, *seq).as_ref() != Some(body) {
                return Err(format!("message {seq} is not there"));
            }
        }
        for seq in self.opened.1 + 1..=entry.last_seq {
            let Some(body) = rig.read(STREAM, seq) else { continue };
            let term = u64::from_le_bytes(body[..8].try_into().expect("eight bytes"));
            if term < self.opened.0 {
                return Err(format!("message {seq} of term {term} lies behind {:?}", self.opened));
            }
        }
        // A writer that was fenced finds that out from any server that has the log.
        if self.opened.0 > 1 {
            self.next_token += 1;
            let late = (self.next_token, self.opened.0 - 1, b"too late".to_vec());
            rig.publish_with_terms(STREAM, &[late]);
            let answer = rig.take_answers().remove(&self.next_token).unwrap_or_default();
            if !answer.contains("\"err_code\":20001") {
                return Err(format!("a fenced writer is told {answer:?}"));
            }
        }
        Ok(())
    }
}

/// Returns how often a writer was refused.
fn history(seed: u64) -> Result<u64, String> {
    let mut disk = MemDisk::default();
    let chance = SeededEntropy::new(seed);
    let (acked, opened) = (BTreeMap::new(), (0, 0));
    let mut world = World { chance, next_token: 0, opened, asked: 0, acked, refused: 0 };
    for cut in 0..CUTS {
        disk.inject(Fault::PowerCut(disk.operations() + 1 + world.chance.below(250)));
        let (salt, outside) = (seed * 31 + cut, Outside::default());
        match Rig::open(&disk, salt, &outside) {
            Ok(mut rig) => world.work(&mut rig)?,
            Err(OpenError::Io { .. }) => {}
            Err(error) => return Err(format!("does not open: {error}")),
        }
        disk = disk.crash(seed ^ (cut << 32));
        let mut rig = Rig::open(&disk, salt ^ 7, &outside)
            .map_err(|error| format!("does not open after a cut: {error}"))?;
        world.check(&mut rig)?;
        // What this look did to the disk is lost as well.
        disk = disk.crash(salt);
    }
    Ok(world.refused)
}

#[test]
fn no_fenced_writer_is_acknowledged_over_power_cuts() {
    let mut refused = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        refused += history(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(refused > HISTORIES, "writers that were fenced have hardly published");
}
