//! Events sent to an engine.
//!
//! One socket read becomes one [`ClientBatch`]: the items borrow from the read buffer by [`Span`],
//! so five hundred publishes cost one enqueue and no allocation per message.

use crate::consumer::EndOfPulls;
use crate::op::{Op, Respond};
use bytes::Bytes;
use nuthatch_log::{Lsn, StreamId};
use std::any::Any;

/// A half-open range of bytes inside a [`ClientBatch::buf`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes; none for an absent part.
    ///
    /// # Panics
    /// The span does not lie in the buffer: what would be stored is not what was sent.
    #[must_use]
    pub fn of<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let Some(bytes) = buf.get(self.start as usize..self.end as usize) else {
            assert!(self.is_empty(), "a span lies in the buffer of its batch");
            return b"";
        };
        bytes
    }

    /// True if the span is empty (an absent reply, say).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// An event for an engine. `P` identifies the connection it came from ([`crate::Sink::Peer`]).
pub enum Event<P> {
    /// The JetStream traffic of one socket read, in its order.
    Batch(ClientBatch<P>),
    /// A management operation with whoever waits for its outcome.
    Op(Op, Respond),
    /// Interest in a subject appeared or vanished; `None`: look at all deliver subjects again.
    Interest(Option<Bytes>),
    /// The log is about to be closed here: every pull request that waits is told, and is over.
    EndPulls {
        /// What they are told.
        why: EndOfPulls,
        /// Called once that is handed to the connections; it must be quick.
        told: Box<dyn FnOnce() + Send>,
    },
    /// Some connection that refused deliveries ([`crate::Sink::ready`]) takes them again.
    Writable,
    /// A stream that has left ([`Op::Leave`]) and is durable elsewhere ([`Op::Settle`]): this log
    /// forgets it, and what its engine keeps of it in memory is handed over.
    Depart {
        /// Which stream.
        id: StreamId,
        /// Takes it; called exactly once, on the sequencer thread: must be quick.
        respond: Box<dyn FnOnce(Option<HandOff>) + Send>,
        /// Told once this log has durably forgotten the stream, or why it does not. Until then the
        /// stream must not be deleted, nor leave the log in which it is now: a start that finds it
        /// here and not there could not tell whether it has ever arrived.
        forgotten: Respond,
    },
    /// The other end of [`Event::Depart`]: the stream goes on here with what waited for it.
    Install {
        /// Its identity in this log.
        id: StreamId,
        /// State handed over by the old engine.
        hand_off: HandOff,
    },
}

/// In-memory state of a stream, handed over to another engine of the same kind.
pub struct HandOff(pub(crate) Box<dyn Any + Send>);

/// JetStream traffic of one connection.
pub struct ClientBatch<P> {
    /// The connection it came from.
    pub peer: P,
    /// The read buffer that every span points into.
    pub buf: Bytes,
    /// Its items, in order.
    pub items: Vec<Item>,
}

/// One message of a [`ClientBatch`].
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A publish to a subject that a stream owns.
    Publish(PublishItem),
    /// An acknowledgement (`$JS.ACK.…`).
    Ack(AckItem),
    /// A pull request (`$JS.API.CONSUMER.MSG.NEXT.…`).
    Pull(PullItem),
    /// A direct get (`$JS.API.DIRECT.GET.…`).
    DirectGet(DirectGetItem),
    /// An answer to a flow control request (`$JS.FC.<stream>.<consumer>.<token>`).
    Flow(FlowItem),
}

impl Item {
    /// The stream that it is for.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        match self {
            Self::Publish(item) => item.stream,
            Self::Ack(item) => item.stream,
            Self::Pull(item) => item.stream,
            Self::DirectGet(item) => item.stream,
            Self::Flow(item) => item.stream,
        }
    }

    /// It goes to this stream, of another log perhaps: what a node has read of the former log says nothing of that.
    pub const fn move_to(&mut self, stream: StreamId) {
        if let Self::DirectGet(get) = self {
            get.unless_changed = None;
        }
        *self.stream_mut() = stream;
    }

    const fn stream_mut(&mut self) -> &mut StreamId {
        match self {
            Self::Publish(item) => &mut item.stream,
            Self::Ack(item) => &mut item.stream,
            Self::Pull(item) => &mut item.stream,
            Self::DirectGet(item) => &mut item.stream,
            Self::Flow(item) => &mut item.stream,
        }
    }
}

/// A publish into a stream.
#[derive(Clone, Copy, Debug)]
pub struct PublishItem {
    /// The stream that owns the subject.
    pub stream: StreamId,
    /// Opaque to the engine; handed back with the reply ([`crate::Sink::reply`]).
    pub hint: u32,
    /// Subject.
    pub subject: Span,
    /// Reply subject of the acknowledgement; empty: none is sent.
    pub reply: Span,
    /// Header block or empty.
    pub headers: Span,
    /// Payload.
    pub body: Span,
}

/// An acknowledgement of a delivered message.
#[derive(Clone, Copy, Debug)]
pub struct AckItem {
    /// The stream named in the subject.
    pub stream: StreamId,
    /// Opaque to the engine.
    pub hint: u32,
    /// Consumer name.
    pub consumer: Span,
    /// Delivery count as stated in the subject.
    pub delivered: u64,
    /// Stream sequence as stated.
    pub stream_seq: u64,
    /// Consumer sequence as stated.
    pub consumer_seq: u64,
    /// Reply subject of a confirmation (double ack, `+NXT`); empty: none is sent.
    pub reply: Span,
    /// `+ACK`, `-NAK …` and so on.
    pub body: Span,
}

/// A pull request.
#[derive(Clone, Copy, Debug)]
pub struct PullItem {
    /// The stream named in the subject.
    pub stream: StreamId,
    /// Opaque to the engine.
    pub hint: u32,
    /// Header block or empty.
    pub headers: Span,
    /// Consumer name.
    pub consumer: Span,
    /// Subject for messages and statuses.
    pub reply: Span,
    /// Empty, a number, or JSON.
    pub body: Span,
}

/// A direct get (ADR-31).
#[derive(Clone, Copy, Debug)]
pub struct DirectGetItem {
    /// The stream named in the subject, or a mirror of it.
    pub stream: StreamId,
    /// It is a mirror, asked in the place of its origin: `mirror_direct` must allow it.
    pub for_origin: bool,
    /// Opaque to the engine.
    pub hint: u32,
    /// Header block or empty.
    pub headers: Span,
    /// The last-by-subject form: the subject after the stream name; else empty.
    pub subject: Span,
    /// Subject for messages.
    pub reply: Span,
    /// JSON request, or empty with `subject`.
    pub body: Span,
    /// Another node asks which can answer it, unless the stream has changed.
    pub unless_changed: Option<UnlessChanged>,
}

/// What a node that follows the log says of itself with a direct get of one of its clients.
#[derive(Clone, Copy, Debug)]
pub struct UnlessChanged {
    /// It has read the log up to here.
    pub position: Lsn,
    /// Under this subject the request goes back to it, with its reply, headers and body, if the stream is as it was there.
    pub back: Span,
}

/// An answer to a flow control request. Without it a push consumer with flow control stalls.
#[derive(Clone, Copy, Debug)]
pub struct FlowItem {
    /// The stream named in the subject.
    pub stream: StreamId,
    /// Consumer name.
    pub consumer: Span,
    /// The whole subject: it must be the one that was asked for.
    pub subject: Span,
    /// Header block or empty: up to where messages are done with, if that acknowledges.
    pub headers: Span,
}
