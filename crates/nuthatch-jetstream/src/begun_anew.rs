//! What comes back when the log in memory begins anew: its streams, without messages and consumers.

use crate::engines::EVENT_BASE_BYTES;
use nuthatch_log::{LogHandle, StreamId};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_server::jetstream_port::Peer;
use nuthatch_server::server::Server;
use nuthatch_streams::{AccountId, Event, Op, OpOutcome, Respond};
use tokio::sync::oneshot;

/// Sequences of a stream in one epoch of the log in memory, at most: so many messages in a stream between two losses, and
/// one that comes back is above every sequence that it gave out.
const EPOCH_SEQUENCES_BITS: u32 = 40;

/// The first id that a log gives to a stream.
const FIRST: StreamId = StreamId(1);

async fn run(handle: &LogHandle<Event<Peer>>, op: Op) -> Result<OpOutcome, String> {
    let (sender, outcome) = oneshot::channel();
    let respond: Respond = Box::new(move |result| {
        // Who has asked may be gone.
        let _ = sender.send(result);
    });
    let weight = EVENT_BASE_BYTES + op.weight_bytes();
    if handle.send_privileged(Event::Op(op, respond), weight).is_err() {
        return Err("the log takes nothing".to_owned());
    }
    let outcome = outcome.await.map_err(|_| "the log was closed".to_owned())?;
    outcome.map_err(|error| error.description.to_string())
}

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Restored {
    /// How many streams.
    pub(super) count: usize,
    /// The last one that did not, and why.
    pub(super) failed: Option<(String, String)>,
}

/// Makes the streams again that a log had which has begun anew in an epoch, before anybody is told that it is served;
/// `None`: it has not, or this node knows of none.
pub(super) async fn restore(
    server: &Server,
    handle: &LogHandle<Event<Peer>>,
    epoch: u32,
) -> Option<Restored> {
    let known = server.nodes.memory_streams();
    // A log that cannot be asked cannot be attached either, which says why.
    let Ok(OpOutcome::Catalog { next_id, .. }) = run(handle, Op::Catalog).await else {
        return None;
    };
    if next_id != FIRST || known.is_empty() {
        return None;
    }
    let (mut id, mut restored) = (FIRST, Restored::default());
    let accounts = server.accounts.all();
    for (account, configs) in &known {
        let Some(account) = accounts.iter().find(|one| one.name == *account) else {
            let why = format!("account {account} is not known here");
            restored.failed = configs.last().map(|config| (config.name.clone(), why));
            continue;
        };
        for config in configs {
            match create(handle, (id, account.id), config, epoch).await {
                Ok(()) => restored.count += 1,
                Err(why) => restored.failed = Some((config.name.clone(), why)),
            }
            id = StreamId(id.0 + 1);
        }
    }
    Some(restored)
}

async fn create(
    handle: &LogHandle<Event<Peer>>,
    (id, account): (StreamId, AccountId),
    config: &StreamConfig,
    epoch: u32,
) -> Result<(), String> {
    let floor = u64::from(epoch) << EPOCH_SEQUENCES_BITS;
    let first_seq = match config.mirror {
        // Its sequences are those of its origin.
        Some(_) => config.first_seq,
        None => config.first_seq.max(floor),
    };
    let begun = Box::new(StreamConfig { first_seq, ..config.clone() });
    run(handle, Op::CreateStream { id, account, config: begun }).await?;
    // Who creates it as it was finds it so.
    run(handle, Op::UpdateStream { id, config: Box::new(config.clone()) }).await?;
    Ok(())
}
