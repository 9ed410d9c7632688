//! Rerouting of events that were sent by routes from before a stream changed its log.

use super::{LogId, Peer, StreamRoute};
use nuthatch_streams::ClientBatch;

/// Splits a batch for `log` by where its streams live now, in its order. `None`: none of them has
/// moved.
pub fn split(
    log: LogId,
    batch: &ClientBatch<Peer>,
    moved: impl Fn(StreamRoute) -> Option<StreamRoute>,
) -> Option<Vec<(LogId, ClientBatch<Peer>)>> {
    let mut parts: Vec<(LogId, ClientBatch<Peer>)> = Vec::new();
    let mut has_moved = false;
    for item in &batch.items {
        let mut item = *item;
        let old = StreamRoute { log, stream: item.stream() };
        let new = moved(old).unwrap_or(old);
        has_moved |= new != old;
        item.move_to(new.stream);
        match parts.iter_mut().find(|(known, _)| *known == new.log) {
            Some((_, part)) => part.items.push(item),
            None => {
                let (peer, buf) = (batch.peer.clone(), batch.buf.clone());
                parts.push((new.log, ClientBatch { peer, buf, items: vec![item] }));
            }
        }
    }
    has_moved.then_some(parts)
}
