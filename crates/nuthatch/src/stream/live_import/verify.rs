//! Comparing both sides of an import, message by message.

use nuthatch_protocol::import::{self, Imported};
use nuthatch_streams::control::import::{Action, Happened};
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use super::Import;
use super::source::Source;
use super::target::Target;
use crate::error::CliError;

/// A checksum over sequences, subjects, headers and payloads.
#[derive(Default)]
pub struct Sum {
    hasher: Xxh3,
    pub messages: u64,
}

impl Sum {
    pub fn add(&mut self, message: &Imported<'_>) {
        self.messages += 1;
        self.hasher.update(&message.seq.to_le_bytes());
        for part in [message.subject, message.headers, message.body] {
            self.hasher.update(&(part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
    }

    pub fn hex(&self) -> String {
        format!("{:032x}", self.hasher.digest128())
    }
}

/// Messages stored by the target, in order.
struct Stored<'a> {
    target: &'a mut Target,
    name: &'a str,
    batch: Vec<u8>,
    /// Messages of the batch that were taken.
    taken: usize,
    next: u64,
    last: u64,
}

impl Stored<'_> {
    /// Calls `look` with the next message; `false` once there is none.
    fn next(&mut self, look: &mut dyn FnMut(&Imported<'_>)) -> Result<bool, CliError> {
        loop {
            if !self.batch.is_empty() {
                let (messages, gap_to) = parse(&self.batch)?;
                if let Some(message) = messages.get(self.taken).filter(|m| m.seq <= self.last) {
                    self.taken += 1;
                    look(message);
                    return Ok(true);
                }
                self.next = gap_to + 1;
            }
            if self.next > self.last {
                return Ok(false);
            }
            let from = self.next;
            self.batch = self.target.read(self.name, from)?;
            self.taken = 0;
            if parse(&self.batch)?.1 < from {
                return Ok(false);
            }
        }
    }
}

fn parse(batch: &[u8]) -> Result<(Vec<Imported<'_>>, u64), CliError> {
    import::read(batch).map_err(|why| CliError::Failed(format!("what was stored: {why}")))
}

/// Compares what was brought since the last time. Messages that have left the source meanwhile are
/// no difference: they go here at the end.
pub fn compare(
    import: &mut Import,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), CliError> {
    loop {
        match import.action {
            Action::Compare { first, .. } => {
                difference(import, first, source, target)?;
                import.step(Happened::Compared);
            }
            Action::Note(verified) => {
                let told = json!({"action": "verified", "verified": verified});
                target.act(&import.name, &told)?;
                import.step(Happened::Noted);
            }
            _ => return Ok(()),
        }
    }
}

/// Compares both sides from `first` on; returns their checksums.
pub fn difference(
    import: &Import,
    first: u64,
    source: &mut Source,
    target: &mut Target,
) -> Result<(Sum, Sum), CliError> {
    let (name, last) = (import.name.as_str(), import.machine.stored());
    let mut stored = Stored { target, name, batch: Vec::new(), taken: 0, next: first, last };
    let (mut theirs, mut ours) = (Sum::default(), Sum::default());
    let mut reader = source.read(name, first, last)?;
    while let Some(message) = reader.next(source)? {
        let original = message.as_imported();
        theirs.add(&original);
        let mut found = None;
        // What is here and not there any more comes before it.
        while found.is_none_or(|seq| seq < original.seq) {
            let mut differs = false;
            let is_there = stored.next(&mut |copy| {
                found = Some(copy.seq);
                differs = copy.seq == original.seq && *copy != original;
                ours.add(copy);
            })?;
            if differs {
                let text = format!("message {} of {name} is not the same here", original.seq);
                return Err(CliError::Failed(text));
            }
            if !is_there || found.is_some_and(|seq| seq > original.seq) {
                let text = format!("message {} of {name} is not here", original.seq);
                return Err(CliError::Failed(text));
            }
        }
    }
    while stored.next(&mut |copy| ours.add(copy))? {}
    reader.close(source);
    Ok((theirs, ours))
}
