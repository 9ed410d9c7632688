//! `stream gaps`: sequences that were removed from inside a stream.

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_protocol::js::{StreamInfoRequest, StreamState};
use serde_json::json;

use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, Table};

/// Options of `stream gaps`.
#[derive(Debug, Clone, Args)]
pub struct GapsArgs {
    /// Stream name
    stream: String,
}

/// A run of sequences without messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    first: u64,
    last: u64,
}

/// Runs `stream gaps`.
pub fn run(args: &GapsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let stream = &args.stream;
    let mut session = Session::open(connect)?;
    let request = StreamInfoRequest { deleted_details: true, ..StreamInfoRequest::default() };
    let state = super::fetch(&mut session, stream, &request)?.value.state;
    let gaps = runs(state.deleted.clone());
    let told = |gap: &Gap| json!({ "first": gap.first, "last": gap.last });
    let json = json!({
        "stream": stream, "first_seq": state.first_seq,
        "last_seq": state.last_seq, "gaps": gaps.iter().map(told).collect::<Vec<_>>(),
    });
    session.print(&json, || text(stream, &state, &gaps))
}

fn text(stream: &str, state: &StreamState, gaps: &[Gap]) -> String {
    let (first, last) = (state.first_seq, state.last_seq);
    if gaps.is_empty() {
        return format!("Stream {stream} has no gaps between sequences {first} and {last}\n");
    }
    let mut table = Table::new(&["First", "Last", "Messages"]);
    for gap in gaps {
        let size = show::count(gap.last - gap.first + 1);
        table.row(vec![gap.first.to_string(), gap.last.to_string(), size]);
    }
    let removed = gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
    let (removed, count) =
        (show::plural(removed, "message"), show::plural(gaps.len() as u64, "gap"));
    let sum = format!("{removed} removed in {count} between sequences {first} and {last}\n");
    table.render() + &sum
}

/// Sequences put together to runs.
fn runs(mut sequences: Vec<u64>) -> Vec<Gap> {
    sequences.sort_unstable();
    let mut gaps: Vec<Gap> = Vec::new();
    for seq in sequences {
        match gaps.last_mut() {
            Some(gap) if seq <= gap.last => {}
            Some(gap) if seq == gap.last + 1 => gap.last = seq,
            _ => gaps.push(Gap { first: seq, last: seq }),
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_gap() {
        let expected = [Gap { first: 2, last: 4 }, Gap { first: 7, last: 7 }];
        assert_eq!(runs(vec![7, 2, 4, 3, 3]), expected);
        assert_eq!(runs(Vec::new()), []);
    }
}
