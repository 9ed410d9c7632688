//! The doctor mends a log that was damaged while it was used: it opens again, and every message that clients
//! know is there, or named as one that may be lost.

use super::host::{Host, Style};
use super::model::Model;
use super::outside::Outside;
use super::server::{Homes, LOGS, Parts};
use super::streams::Kind;
use super::violation::Violation;
use nuthatch_log::doctor::{DecodedState, Diagnosis, StateDecoder, StreamPreview, diagnose};
use nuthatch_log::env::{Clock, OwnableDisk};
use nuthatch_log::{Disk, StreamId};
use nuthatch_streams::op::GetMessage;
use nuthatch_streams::{Op, OpOutcome, decoded_state};
use std::sync::Arc;

/// Numbers of operations that are asked at once.
const AT_ONCE: u64 = u64::MAX;
/// Drawn by nobody: what a mended log draws decides nothing.
const SALT: u64 = 1;

/// Decodes records as the command `nuthatch doctor` does.
struct Decoder {
    clock: Arc<dyn Clock>,
    style: Style,
}

impl StateDecoder for Decoder {
    fn state(&self, body: &[u8]) -> Option<DecodedState> {
        decoded_state::state(body)
    }

    fn log_state(&self, body: &[u8]) -> Option<(StreamId, Vec<StreamId>)> {
        decoded_state::log_state(body)
    }

    fn snapshot(&self, snapshot: &[u8]) -> Option<Vec<(StreamId, DecodedState)>> {
        decoded_state::snapshot(snapshot)
    }

    fn is_later(&self, snapshot: &[u8]) -> bool {
        decoded_state::is_later(snapshot)
    }

    fn advance(&self) -> Vec<u8> {
        decoded_state::advance()
    }

    fn orphan(&self, stream: StreamId, last: u64) -> (String, Vec<u8>) {
        decoded_state::orphan(stream, last)
    }

    fn preview(&self, disk: Arc<dyn OwnableDisk>) -> Result<Vec<StreamPreview>, String> {
        let clock = Arc::clone(&self.clock);
        let host = Host::open((disk, None), clock, self.style, SALT, &Outside::default());
        host.map(|host| host.previews()).map_err(|error| error.to_string())
    }
}

fn unexpected(log: usize, what: &str, diagnosis: &Diagnosis) -> Violation {
    let findings: Vec<_> = diagnosis.findings.iter().map(|f| (f.kind, &f.what)).collect();
    Violation::Unexpected {
        what: format!("the doctor and log {}: {what}: {findings:?}", LOGS[log]),
    }
}

/// Mends a copy of a log and compares it with what clients know; how many messages it gave up. The mended log's
/// clock begins where the machine's wall clock is, as after any start: messages may be too old by it that were not
/// by the clock of the process before.
pub fn look_mended(
    model: &mut Model,
    parts: &Parts,
    log: usize,
    homes: &Homes,
    style: Style,
) -> Result<u64, Violation> {
    let style = Style { by_hand: false, ..style };
    let clock: Arc<dyn Clock> =
        Arc::new(nuthatch_streams::steady::SteadyClock::new(parts.time.clone(), Box::new(|_| {})));
    let decoder = Decoder { clock: Arc::clone(&clock), style };
    let local = &parts.disks[log];
    let disk: Arc<dyn Disk> = Arc::new(local.clone());
    let examine = || {
        diagnose(&disk, &decoder, Default::default()).map_err(|error| Violation::Unexpected {
            what: format!("the doctor and log {}: {error}", LOGS[log]),
        })
    };
    let diagnosis = examine()?;
    if !diagnosis.is_mendable() {
        return Err(unexpected(log, "not mendable", &diagnosis));
    }
    if !diagnosis.changes.is_empty() {
        let applied = diagnosis.apply(local, "now");
        applied.map_err(|error| unexpected(log, &error.to_string(), &diagnosis))?;
        let again = examine()?;
        if !again.is_healthy() {
            return Err(unexpected(log, "not healthy when it is mended", &again));
        }
    }
    let opened = (Arc::new(local.clone()) as Arc<dyn OwnableDisk>, None);
    model.clock_max = model.clock_max.max(clock.now().0);
    let mut host = Host::open(opened, clock, style, SALT, &Outside::default())
        .map_err(|error| unexpected(log, &error.to_string(), &diagnosis))?;
    let at_home = |kind: &Kind| homes[*kind as usize].filter(|home| home.log == log);
    let mut given_up = 0;
    for (kind, home) in Kind::ALL.into_iter().filter_map(|kind| Some((kind, at_home(&kind)?))) {
        given_up += compare(model, &mut host, (kind, home.stream), &diagnosis)?;
    }
    Ok(given_up)
}

/// Every message of a stream that somebody has seen is what it was, may be gone, or is named as lost.
fn compare(
    model: &mut Model,
    host: &mut Host,
    (kind, id): (Kind, StreamId),
    diagnosis: &Diagnosis,
) -> Result<u64, Violation> {
    let stream = kind.name();
    let is_lost = |seq: u64| {
        let lost =
            diagnosis.lost.iter().any(|l| l.stream == id && (l.first..=l.last).contains(&seq));
        lost || diagnosis.uncertain.iter().any(|u| u.stream == id && seq > u.last)
    };
    let last = model.streams[kind as usize].seen.last_key_value().map_or(0, |(seq, _)| *seq);
    let mut given_up = 0;
    for seq in model.streams[kind as usize].seen.keys().copied().collect::<Vec<_>>() {
        let request = GetMessage { seq, ..GetMessage::default() };
        match host.ask(AT_ONCE, Op::GetMessage { id, request }) {
            Some(Ok(OpOutcome::Message(found))) => model.see(kind, seq, &found.body)?,
            Some(Err(_)) if is_lost(seq) => given_up += 1,
            Some(Err(_)) if model.may_be_gone(kind, seq, last) => {}
            Some(Err(_)) => return Err(Violation::MessageLost { stream, seq }),
            other => {
                let what = format!("message {seq} of {stream} behind the doctor: {other:?}");
                return Err(Violation::Unexpected { what });
            }
        }
    }
    Ok(given_up)
}
