//! Direct gets of streams that other nodes serve and this node follows.
//!
//! Where the stream allows it, they are answered here at once. Where this node is in another zone than the one that serves the
//! stream, that one is asked first whether the stream is as this node knows it: the request goes there by the same way as ever,
//! in its order with what the client sent before, and says up to where this node has read the log. It is answered there, or it
//! comes back and is answered here, of the same state: see `nuthatch_streams::engine`. Nothing of it is kept here meanwhile.

use super::Turn;
use crate::interest::Matched;
use crate::jetstream_port::followed::{FollowedMark, FollowedRequest, FollowedSight};
use crate::log_id::LogId;
use crate::served::StreamOwner;
use bytes::Bytes;
use memchr::{memchr, memchr_iter};
use nuthatch_log::Lsn;
use nuthatch_protocol::wire::Publish;

const DIRECT_GET: &[u8] = b"$JS.API.DIRECT.GET.";

/// A larger request goes to the node that serves the stream: it would travel up to three times.
const NEAR_GET_BYTES_MAX: usize = 16 << 10;

/// Begins a question of a node: a direct get, unless the stream has changed.
const ASK: &str = "G.";
/// Begins what is sent back: it has not.
const BACK: &str = "R.";

/// Tokens in front of the stream's name in what is sent back: the prefix, the token, [`BACK`], and those of the mark.
const BACK_TOKENS: usize = 7;

impl Turn<'_> {
    /// Takes a direct get of a client that this node may answer; `false`: it goes the way of all messages.
    pub(super) fn near_get(&mut self, publish: &Publish<'_>) -> bool {
        let Some(rest) = publish.subject.strip_prefix(DIRECT_GET) else { return false };
        let is_small = publish.message.len() + publish.subject.len() <= NEAR_GET_BYTES_MAX;
        is_small && !self.reader.conn.is_node() && self.get_followed(publish, rest).is_some()
    }

    #[cold]
    fn get_followed(&mut self, publish: &Publish<'_>, rest: &[u8]) -> Option<()> {
        let reply = publish.reply?;
        let (server, account) = (self.reader.server.clone(), self.reader.session.account.clone());
        let followed = server.jetstream().followed()?;
        let name = &rest[..memchr(b'.', rest).unwrap_or(rest.len())];
        let stream = std::str::from_utf8(name).ok()?;
        let rest = std::str::from_utf8(rest).ok()?;
        let owner = account.served.owner(stream)?;
        let sight = followed.look(account.id, &owner.log, stream)?;
        let is_stale = sight.mark.stream.is_stale && publish.headers().is_empty();
        if !(is_stale || self.is_far(&owner)) || !self.is_alone(publish.subject, &owner) {
            return None;
        }
        // What came before it is ahead of it.
        self.hand_over();
        if is_stale {
            let request = request(account.id, sight.mark, rest.as_bytes(), publish);
            followed.answer(request);
            return Some(());
        }
        let FollowedSight { log, position, mark } = sight;
        let back = owner.subject_back(&format!("{BACK}{}{rest}", mark.tokens()))?;
        let question = format!("{ASK}{}.{}.{back}", position.0, log.0);
        if let Some(full) = owner.send(&question, reply, publish.headers(), publish.payload()) {
            self.scratch.egress.note_full_node(full);
        }
        Some(())
    }

    /// True if that node is in another zone, and understands the question.
    fn is_far(&self, owner: &StreamOwner) -> bool {
        let options = self.reader.server.options();
        let own = options.cluster.as_ref().and_then(|cluster| cluster.zone.as_ref());
        let theirs = &*owner.gets.zone;
        owner.gets.sends_back && !theirs.is_empty() && own.is_some_and(|own| own.as_str() != theirs)
    }

    /// True if nobody but that node takes the request: who listens to requests goes on hearing all of them.
    fn is_alone(&self, subject: &[u8], owner: &StreamOwner) -> bool {
        let mut matched = Matched::default();
        self.reader.session.account.interest.match_into(subject, &mut matched);
        // One for all that a node serves; what its clients listen to comes beside it.
        let [only] = matched.plain() else { return false };
        owner.is_behind(&only.outlet) && matched.groups().next().is_none()
    }

    /// Takes a question of another node, or what it sends back; `false`: it is something else.
    pub(super) fn gets_of_nodes(&mut self, what: &[u8], publish: &Publish<'_>) -> bool {
        if let Some(rest) = what.strip_prefix(ASK.as_bytes()) {
            // One that is not understood, or whose stream has gone, has no answer, as from there ever.
            let _ = self.asked_get(rest, publish);
            return true;
        }
        let Some(rest) = what.strip_prefix(BACK.as_bytes()) else { return false };
        if publish.message.len() + publish.subject.len() > 2 * NEAR_GET_BYTES_MAX {
            // None was sent.
            return true;
        }
        let account = self.reader.session.account.id;
        let read = std::str::from_utf8(rest).ok().and_then(FollowedMark::read);
        if let (Some((mark, rest)), Some(followed)) =
            (read, self.reader.server.jetstream().followed())
        {
            followed.answer(request(account, mark, rest.as_bytes(), publish));
        }
        true
    }

    fn asked_get(&mut self, rest: &[u8], publish: &Publish<'_>) -> Option<()> {
        let number = |part: &[u8]| std::str::from_utf8(part).ok()?.parse::<u64>().ok();
        let mut dots = memchr_iter(b'.', rest);
        let (one, two) = (dots.next()?, dots.next()?);
        let (position, log) = (number(&rest[..one])?, number(&rest[one + 1..two])?);
        let back = &rest[two + 1..];
        let start = memchr_iter(b'.', back).nth(BACK_TOKENS - 1)? + 1;
        let (stream, subject) = stream_and_rest(&back[start..]);
        self.direct_get(publish, (stream, subject), Some((LogId(log), Lsn(position), back)));
        Some(())
    }
}

/// What a request names behind its prefix: the stream, and the subject if there is one.
fn stream_and_rest(rest: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b'.', rest) {
        Some(dot) => (&rest[..dot], &rest[dot + 1..]),
        None => (rest, b""),
    }
}

/// `rest` is what follows the prefix in the request's subject.
fn request(
    account: nuthatch_streams::AccountId,
    mark: FollowedMark,
    rest: &[u8],
    publish: &Publish<'_>,
) -> FollowedRequest {
    let (_, literal) = stream_and_rest(rest);
    let subject = [DIRECT_GET, rest].concat();
    FollowedRequest {
        account,
        mark,
        literal_at: subject.len() - literal.len(),
        subject: subject.into(),
        reply: Bytes::copy_from_slice(publish.reply.unwrap_or_default()),
        headers: Bytes::copy_from_slice(publish.headers()),
        body: Bytes::copy_from_slice(publish.payload()),
    }
}
