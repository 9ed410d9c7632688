//! Transient messages: ordered with a stream, told to whoever follows it, never stored.
//!
//! A publish with the header `Nuthatch-Transient` takes no sequence. Once everything that the stream had
//! assigned before is durable it goes, by core routing, to `$JS.EVENT.TRANSIENT.STREAM`, with the
//! last of those sequences; on each connection it comes before any message with a later one.

use super::Engine;
use super::pending::Transient;
use crate::event::{ClientBatch, PublishItem};
use crate::sink::Sink;
use crate::stream::{Publish, PublishHeaders};
use nuthatch_log::{LogAccess, StreamId};
use nuthatch_protocol::headers::append;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::wire::write::push_u64;

/// Where followers of a stream listen; its name comes behind it.
const FOLLOWERS: &str = "$JS.EVENT.TRANSIENT.";
/// Header: the last sequence before the message.
const LAST_SEQUENCE: &[u8] = b"Nuthatch-Last-Sequence";
/// Header: the subject that it was published to.
const SUBJECT: &[u8] = b"Nats-Subject";

impl<S: Sink> Engine<S> {
    /// Takes a transient message, and answers it.
    #[cold]
    pub(super) fn transient<L: LogAccess>(
        &mut self,
        batch: &ClientBatch<S::Peer>,
        item: &PublishItem,
        publish: &Publish<'_>,
        headers: &PublishHeaders<'_>,
        log: &mut L,
    ) {
        let told = self.tell_followers(publish, headers, item.stream, log);
        let slot = self.streams.get(item.stream);
        match told {
            Err(error) => self.out.refuse(slot, batch, item, &error),
            Ok(last_seq) => {
                let mut body = slot.map_or_else(Vec::new, |slot| slot.ack_prefix.to_vec());
                push_u64(&mut body, last_seq);
                body.extend_from_slice(b",\"transient\": true}");
                self.out.answer(slot, batch, item, body, None);
            }
        }
    }

    /// Returns the last sequence before the message.
    fn tell_followers<L: LogAccess>(
        &mut self,
        publish: &Publish<'_>,
        headers: &PublishHeaders<'_>,
        id: StreamId,
        log: &mut L,
    ) -> Result<u64, JsError> {
        self.out.check_log()?;
        let stream = &self.streams.live(id)?.stream;
        if !headers.batch_id.is_empty() {
            let error = JsError::ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH;
            return Err(error.with("header", "Nuthatch-Transient"));
        }
        if self.out.pending_acks() >= self.config.pending_acks_max {
            return Err(JsError::STREAM_TOO_MANY_REQUESTS);
        }
        stream.check_size(publish)?;
        let last_seq = stream.contents().assigned_totals().last_seq;
        let mut block = publish.headers.to_vec();
        append(&mut block, LAST_SEQUENCE, last_seq.to_string().as_bytes());
        append(&mut block, SUBJECT, publish.subject);
        let message = Transient {
            account: stream.account(),
            subject: [FOLLOWERS, &stream.config().name].concat().into_bytes().into(),
            headers: block.into(),
            body: publish.body.into(),
        };
        let after = stream.contents().uncommitted().filter(|&lsn| lsn > log.committed());
        self.out.tell_followers(message, after)?;
        Ok(last_seq)
    }
}
