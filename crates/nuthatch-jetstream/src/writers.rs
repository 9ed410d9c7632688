//! `STREAM.FENCE`: one writer takes a stream for itself.

use crate::envelope::{self, ResponseType};
use crate::outcome::unexpected;
use crate::request::parse;
use crate::service::{Answer, JetStream};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Default)]
#[serde(default)]
struct FenceBody {
    term: u64,
}

#[derive(Serialize)]
struct FencedBody {
    term: u64,
    last_seq: u64,
}

impl JetStream {
    /// From the answer on the stream takes records of the writer with this term only.
    pub(super) async fn stream_fence(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let FenceBody { term } = parse(body, self.settings.strict)?;
        let entry = self.streams.entry(account, name)?;
        match self.calls.run(entry.engine, Op::Fence { id: entry.id, term }).await? {
            OpOutcome::Fenced { term, last_seq } => {
                Ok(envelope::ok(ResponseType("stream_fence"), &FencedBody { term, last_seq }))
            }
            other => Err(unexpected(&other)),
        }
    }
}
