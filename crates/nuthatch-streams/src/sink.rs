//! Receiver of an engine's outputs: the core router of the server, or a vector in tests.

use bytes::Bytes;

/// Identity of an account inside a server. 0 is the global account `$G`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct AccountId(pub u32);

impl AccountId {
    /// The global account `$G`.
    pub const GLOBAL: Self = Self(0);
}

/// A message for core routing: status, advisory, answer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Subject.
    pub subject: &'a [u8],
    /// Reply subject or empty.
    pub reply: &'a [u8],
    /// Header block or empty.
    pub headers: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
}

/// A stored message on its way to a consumer's client.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The message's own subject (not the inbox it travels by).
    pub subject: &'a [u8],
    /// Ack reply subject, or empty (ack none still carries it).
    pub reply: &'a [u8],
    /// Header block or empty.
    pub headers: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
    /// The buffer that `body` lies in, so that large payloads are shared, not copied.
    pub owner: Option<&'a Bytes>,
}

/// The services that an engine needs of the server. Calls come from the sequencer thread and must
/// not block; outputs are staged until [`Sink::flush`].
pub trait Sink: Send + 'static {
    /// The connection an event came from.
    type Peer: Clone + Send + 'static;
    /// Subscribers of a deliver subject, resolved once and cached by the consumer or pull request.
    type Target: Send + 'static;

    /// Answers a client's publish, ack, pull or direct get: `message.subject` is its reply subject
    /// and `hint` what the item carried. The quick path of [`Sink::publish`].
    fn reply(&mut self, account: AccountId, peer: &Self::Peer, hint: u32, message: &Message<'_>);

    /// Sends a request back to the node that it came from: only that one may see the subject.
    fn send_back(&mut self, _peer: &Self::Peer, _message: &Message<'_>) {}

    /// Publishes through core routing.
    fn publish(&mut self, account: AccountId, message: &Message<'_>);

    /// Publishes through core routing, and streams whose subjects match store it, as if a client had
    /// published it. Nobody is answered.
    fn publish_and_store(&mut self, account: AccountId, message: &Message<'_>) {
        self.publish(account, message);
    }

    /// Resolves a deliver subject; `None` if it has no subscriber. With a queue group a member of
    /// that group must listen; `group` is empty for none.
    fn resolve(&mut self, account: AccountId, subject: &[u8], group: &[u8])
    -> Option<Self::Target>;

    /// True if anybody still listens (a generation check when nothing changed).
    fn refresh(&mut self, target: &mut Self::Target) -> bool;

    /// True if the receivers' buffers have room. `false`: [`crate::Event::Writable`] follows.
    fn ready(&mut self, target: &Self::Target) -> bool;

    /// Delivers to one of the target's subscribers of each queue group and all plain ones. `false`:
    /// it has no subscriber any more.
    fn deliver(&mut self, target: &mut Self::Target, delivery: &Delivery<'_>) -> bool;

    /// Hands everything staged over to the connections.
    fn flush(&mut self);
}

/// A sink for an engine without clients: tools that open or build a log. Outputs are dropped, and
/// no consumer has a receiver.
#[derive(Clone, Copy, Default, Debug)]
pub struct NullSink;

impl Sink for NullSink {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, _: &Message<'_>) {}

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        None
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        false
    }

    fn ready(&mut self, (): &()) -> bool {
        false
    }

    fn deliver(&mut self, (): &mut (), _: &Delivery<'_>) -> bool {
        false
    }

    fn flush(&mut self) {}
}
