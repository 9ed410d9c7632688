//! Resolution, at a start, of streams whose migration between logs was interrupted.
//!
//! A move takes these steps, and each is durable before the next one begins:
//!
//! 1. the new log has a copy that says where it comes from ([`crate::Op::Arrive`]);
//! 2. messages are copied while the stream goes on in the old log ([`crate::Op::Mirror`]);
//! 3. the old log says where the stream is about to go, and holds everything back
//!    ([`crate::Op::Leave`]);
//! 4. the rest is copied;
//! 5. the new log has the stream's state ([`crate::Op::Settle`]): **now it counts, and not the old
//!    one**;
//! 6. the old log forgets the stream ([`crate::Event::Depart`]), and what waited goes on in the new
//!    one ([`crate::Event::Install`]).
//!
//! A stop before 5 leaves the stream where it was, and the copy to be gone on with, unless the old
//! log has refused that very copy. After 5 what the old log still has of it is to be forgotten, and
//! until that is durable the stream is not to leave the new log: not by a deletion, and not by a
//! further move.
//!
//! In a cluster a log may be at another node than it was, and the other log of a move with it or not. Then
//! the node that has what the stream left asks ([`deciding`]): the other log refuses a copy that has not
//! taken over, for good ([`crate::Op::RefuseCopy`]), or says that the stream lives there. A copy whose
//! source is elsewhere stays until that does not name it any more ([`left_copy`]).

pub mod deciding;
pub mod left_copy;
pub mod mover;

use crate::op::CatalogEntry;
use crate::rules::{NEW_HOME_COUNTS, UNDECIDED_WAITS};
use crate::stream::StreamLocation;
use nuthatch_log::StreamId;

/// A stream in a log, by the log's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStream {
    /// Which log.
    pub log: usize,
    /// The stream's identity there.
    pub stream: StreamId,
}

/// A copy to go on with.
#[derive(Clone, PartialEq, Debug)]
pub struct Resume {
    /// Location of the copy.
    pub copy: LogStream,
    /// Location of the stream.
    pub source: LogStream,
}

/// Result: streams to serve, copies to continue, and remains to forget.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Resolution {
    /// Streams that live, with the numbers of their logs.
    pub serve: Vec<(usize, CatalogEntry)>,
    /// Copies to go on with.
    pub resume: Vec<Resume>,
    /// Remains of streams that live elsewhere, and copies of streams that are gone.
    pub forget: Vec<LogStream>,
    /// Copies that are neither served nor touched: their origin is in a log that is not there, or they were refused.
    pub waiting: Vec<(usize, CatalogEntry)>,
    /// Streams that may live in a log of another node, or whose copy here is refused: held until that is known.
    pub undecided: Vec<(usize, CatalogEntry)>,
}

/// Where logs may be that are not among those that are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherLogs {
    /// Nowhere: there is one server.
    Nowhere,
    /// At other nodes of the cluster.
    AtNodes,
}

/// Why streams cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MigrationError {
    /// It may live in a log that is not there.
    #[error(
        "stream {name:?} of log {log} was about to move to log {to}, which the configuration does \
         not name: it may live there now. Add that log to the configuration again. Nothing was \
         changed"
    )]
    TargetMissing {
        /// The stream.
        name: String,
        /// The log it was in.
        log: String,
        /// The log it may be in.
        to: String,
    },
    /// The log that it may live in knows nothing of it.
    #[error(
        "stream {name:?} of log {log} was about to move to log {to} as id {id}, but log {to} does \
         not have it. Is that the right directory or bucket? Nothing was changed"
    )]
    TargetEmpty {
        /// The stream.
        name: String,
        /// The log it was in.
        log: String,
        /// The log it should be in.
        to: String,
        /// Its identity there.
        id: StreamId,
    },
}

/// Location that a log records to refuse this copy in another log for good: no stream goes to the
/// log that it is in.
#[must_use]
pub fn refusal_of(here: &str, copy: StreamId) -> StreamLocation {
    StreamLocation { log: here.to_owned(), stream: copy }
}

fn refuses(here: &str, to: &StreamLocation, copy: StreamId) -> bool {
    *to == refusal_of(here, copy)
}

fn find<'a>(
    logs: &[&str],
    catalogs: &'a [Vec<CatalogEntry>],
    place: &StreamLocation,
) -> Option<(usize, Option<&'a CatalogEntry>)> {
    let log = logs.iter().position(|name| *name == place.log)?;
    let entry = catalogs.get(log)?.iter().find(|entry| entry.id == place.stream);
    Some((log, entry))
}

/// Decides about every stream of these logs. `catalogs` has what each log holds, in the order of
/// `logs`, which are their names.
///
/// # Errors
/// [`MigrationError`], if a stream may live where nobody can look.
pub fn resolve(
    logs: &[&str],
    catalogs: &[Vec<CatalogEntry>],
    others: OtherLogs,
) -> Result<Resolution, MigrationError> {
    let mut resolution = Resolution::default();
    let all = || catalogs.iter().enumerate().flat_map(|(log, c)| c.iter().map(move |e| (log, e)));
    // Who has arrived from somewhere makes what is left there worthless.
    for (_, entry) in all().filter(|(_, entry)| !entry.provenance.arriving) {
        if NEW_HOME_COUNTS.holds()
            && let Some(place) = &entry.provenance.from
            && let Some((log, Some(left))) = find(logs, catalogs, place)
            && is_same(entry, left)
            // A user may have had it go on where it was.
            && !left.provenance.to.as_ref().is_some_and(|to| refuses(logs[log], to, entry.id))
        {
            resolution.forget.push(LogStream { log, stream: left.id });
        }
    }
    for (log, entry) in all() {
        let here = LogStream { log, stream: entry.id };
        if resolution.forget.contains(&here) {
            continue;
        }
        if entry.provenance.arriving {
            resolution.place_copy(here, entry, logs, catalogs);
            continue;
        }
        match target_of(logs, catalogs, log, entry) {
            Target::Stays => resolution.serve.push((log, entry.clone())),
            Target::Refused => resolution.undecided.push((log, entry.clone())),
            Target::Empty(why) => return Err(why),
            Target::Missing(why) => match others {
                OtherLogs::Nowhere => return Err(why),
                OtherLogs::AtNodes if UNDECIDED_WAITS.holds() => {
                    resolution.undecided.push((log, entry.clone()));
                }
                OtherLogs::AtNodes => resolution.serve.push((log, entry.clone())),
            },
        }
    }
    Ok(resolution)
}

/// True if these are one stream: names of logs of different nodes, and identities in them, may be equal.
fn is_same(entry: &CatalogEntry, other: &CatalogEntry) -> bool {
    (entry.account, &entry.config.name) == (other.account, &other.config.name)
}

/// True if this copy never takes over.
fn is_refused(copy: &CatalogEntry) -> bool {
    copy.provenance.arriving && copy.provenance.to.is_some()
}

impl Resolution {
    fn place_copy(
        &mut self,
        copy: LogStream,
        entry: &CatalogEntry,
        logs: &[&str],
        catalogs: &[Vec<CatalogEntry>],
    ) {
        let origin = entry.provenance.from.as_ref().and_then(|place| find(logs, catalogs, place));
        match origin {
            None => self.waiting.push((copy.log, entry.clone())),
            Some((_, Some(_))) if is_refused(entry) => {
                self.waiting.push((copy.log, entry.clone()));
            }
            // The move was given up.
            Some((log, Some(source)))
                if source
                    .provenance
                    .to
                    .as_ref()
                    .is_some_and(|to| refuses(logs[log], to, entry.id)) =>
            {
                self.forget.push(copy);
            }
            Some((log, Some(source))) => {
                self.resume.push(Resume { copy, source: LogStream { log, stream: source.id } });
            }
            // It was deleted meanwhile.
            Some((_, None)) => self.forget.push(copy),
        }
    }
}

/// What the log says that a stream was about to go to.
enum Target {
    /// None, or it did not go: an arrived one would have led to this one being forgotten.
    Stays,
    /// The copy was refused, which this log does not remember yet.
    Refused,
    /// The log does not have it.
    Empty(MigrationError),
    /// The log is not among these.
    Missing(MigrationError),
}

fn target_of(
    logs: &[&str],
    catalogs: &[Vec<CatalogEntry>],
    log: usize,
    entry: &CatalogEntry,
) -> Target {
    let Some(place) = &entry.provenance.to else { return Target::Stays };
    let (name, here, to) = (entry.config.name.clone(), logs[log].to_owned(), place.log.clone());
    if here == to {
        return Target::Stays;
    }
    match find(logs, catalogs, place) {
        Some((_, Some(copy))) if is_refused(copy) => Target::Refused,
        Some((_, Some(_))) => Target::Stays,
        Some((_, None)) => {
            Target::Empty(MigrationError::TargetEmpty { name, log: here, to, id: place.stream })
        }
        None => Target::Missing(MigrationError::TargetMissing { name, log: here, to }),
    }
}

#[cfg(test)]
mod tests;
