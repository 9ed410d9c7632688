//! What a subject `$JS.…` means to the JetStream of an account here, whatever form it is written in.
//!
//! Permissions, exports and what takes effect all follow from [`meaning`], so that no form of a
//! subject leads round them: there is no other place that takes a domain off. What a message asks for
//! is read in one place too, for clients, leaf nodes and imports ([`Request`]).

use memchr::{memchr, memchr_iter};
use ring::digest::{SHA256, digest};
use std::borrow::Cow;

const API: &[u8] = b"$JS.API.";
const ACK: &[u8] = b"$JS.ACK.";
const FLOW: &[u8] = b"$JS.FC.";
/// Where the domain stands in the longer form of an acknowledgement if there is none.
const NO_DOMAIN: &str = "_";
/// Dots behind `$JS.ACK.` in `<stream>.<consumer>.<delivered>.<stream_seq>.<consumer_seq>.<time>.<pending>`.
const ACK_DOTS: usize = 6;
/// Characters of a name's hash.
const HASH_CHARS: usize = 8;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Whose subjects are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The JetStream domain.
    domain: Option<&'a str>,
    /// The account's name.
    account: &'a str,
}

impl<'a> Place<'a> {
    pub(crate) fn new(domain: Option<&'a str>, account: &'a str) -> Self {
        Self { domain, account }
    }
}

/// What a subject means; each holds what follows the prefix of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// `$JS.API.`
    Api(&'a [u8]),
    /// `$JS.ACK.`, in the shorter form.
    Ack(&'a [u8]),
    /// `$JS.FC.`
    Flow(&'a [u8]),
    /// A subject of a key-value bucket or an object store, without the domain's prefix.
    Bucket(&'a [u8]),
}

impl Meaning<'_> {
    /// The subject that takes effect.
    pub(crate) fn subject(&self) -> Vec<u8> {
        let (prefix, rest) = self.parts();
        [prefix, rest].concat()
    }

    /// True if it takes effect as it is written.
    pub(crate) fn is_written(&self, subject: &[u8]) -> bool {
        let (prefix, rest) = self.parts();
        subject.strip_prefix(prefix) == Some(rest)
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        match *self {
            Self::Api(rest) => (API, rest),
            Self::Ack(rest) => (ACK, rest),
            Self::Flow(rest) => (FLOW, rest),
            Self::Bucket(subject) => (b"", subject),
        }
    }
}

/// What a message on a subject of JetStream's asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// `$JS.ACK.…`: an acknowledgement.
    Ack(AckSubject<'a>),
    /// `$JS.FC.<stream>.<consumer>.…`: an answer of flow control.
    Flow { stream: &'a [u8], consumer: &'a [u8] },
    /// `$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`: a pull.
    Pull { stream: &'a [u8], consumer: &'a [u8] },
    /// `$JS.API.DIRECT.GET.<stream>[.<subject>]`: a read without the API.
    DirectGet { stream: &'a [u8], subject: &'a [u8] },
    /// Any other call of the API: what follows `$JS.API.`.
    Call(&'a [u8]),
    /// A write to this subject of a key-value bucket or an object store.
    Bucket(&'a [u8]),
}

impl<'a> Meaning<'a> {
    /// What a message asks for; `None`: nothing, the subject is none that JetStream makes.
    #[inline]
    pub(crate) fn request(self) -> Option<Request<'a>> {
        match self {
            Self::Ack(rest) => AckSubject::parse(rest).map(Request::Ack),
            Self::Flow(rest) => {
                let (stream, rest) = split_first(rest)?;
                Some(Request::Flow { stream, consumer: split_first(rest)?.0 })
            }
            Self::Api(rest) => Request::of_api(rest),
            Self::Bucket(subject) => Some(Request::Bucket(subject)),
        }
    }
}

impl<'a> Request<'a> {
    /// What a message on `$JS.API.<rest>` asks for.
    #[inline]
    pub(crate) fn of_api(rest: &'a [u8]) -> Option<Self> {
        if let Some(rest) = rest.strip_prefix(b"CONSUMER.MSG.NEXT.") {
            let (stream, consumer) = split_first(rest)?;
            return Some(Self::Pull { stream, consumer });
        }
        if let Some(rest) = rest.strip_prefix(b"DIRECT.GET.") {
            let (stream, subject) = split_first(rest).unwrap_or((rest, b""));
            return Some(Self::DirectGet { stream, subject });
        }
        Some(Self::Call(rest))
    }
}

/// What a subject means to the JetStream of this account; `None`: nothing, it is an ordinary one.
/// Whether the account has a JetStream is for the caller to ask.
#[inline]
pub(crate) fn meaning<'a>(place: &Place<'_>, subject: &'a [u8]) -> Option<Meaning<'a>> {
    let rest = subject.strip_prefix(b"$JS.")?;
    if let Some(rest) = rest.strip_prefix(b"ACK.") {
        return if memchr_iter(b'.', rest).count() == ACK_DOTS {
            Some(Meaning::Ack(rest))
        } else {
            long_ack(place, rest).map(Meaning::Ack)
        };
    }
    if let Some(rest) = rest.strip_prefix(b"API.") {
        return Some(Meaning::Api(rest));
    }
    if let Some(rest) = rest.strip_prefix(b"FC.") {
        return Some(Meaning::Flow(rest));
    }
    let rest = rest.strip_prefix(place.domain?.as_bytes())?.strip_prefix(b".API.")?;
    Some(if is_of_bucket(rest) { Meaning::Bucket(rest) } else { Meaning::Api(rest) })
}

/// The subject that takes effect in place of this one: without the domain's prefix, and an
/// acknowledgement in its shorter form.
pub(crate) fn effective_subject<'a>(place: &Place<'_>, subject: &'a [u8]) -> Cow<'a, [u8]> {
    match meaning(place, subject) {
        Some(meaning) if !meaning.is_written(subject) => Cow::Owned(meaning.subject()),
        _ => Cow::Borrowed(subject),
    }
}

/// The shorter form within `<domain>.<account hash>.<shorter form>[.<more>]`, if the JetStream here
/// and this account are meant. Those of another domain are ordinary subjects, which are routed on.
#[cold]
fn long_ack<'a>(place: &Place<'_>, rest: &'a [u8]) -> Option<&'a [u8]> {
    let (domain, rest) = split_first(rest)?;
    if domain != place.domain.unwrap_or(NO_DOMAIN).as_bytes() {
        return None;
    }
    let (hash, rest) = split_first(rest)?;
    let mut dots = memchr_iter(b'.', rest);
    dots.nth(ACK_DOTS - 1)?;
    let end = dots.next().unwrap_or(rest.len());
    (hash == name_hash(place.account)).then(|| &rest[..end])
}

/// What nats-server makes of a name: of an account in the longer form of acknowledgements, of a server as a peer.
pub(crate) fn name_hash(name: &str) -> [u8; HASH_CHARS] {
    let digest = digest(&SHA256, name.as_bytes());
    let mut bytes = digest.as_ref().iter();
    std::array::from_fn(|_| {
        let byte = *bytes.next().expect("a digest has more bytes than a hash");
        DIGITS[usize::from(byte) % DIGITS.len()]
    })
}

/// True if a subject is one of a key-value bucket or an object store.
fn is_of_bucket(subject: &[u8]) -> bool {
    [&b"$KV."[..], b"$O.", b"$OBJ."].iter().any(|prefix| subject.starts_with(prefix))
}

/// Splits at the first dot.
pub(crate) fn split_first(text: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr(b'.', text).map(|dot| (&text[..dot], &text[dot + 1..]))
}

/// Numbers of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckSubject<'a> {
    pub(crate) stream: &'a [u8],
    pub(crate) consumer: &'a [u8],
    pub(crate) delivered: u64,
    pub(crate) stream_seq: u64,
    pub(crate) consumer_seq: u64,
}

impl<'a> AckSubject<'a> {
    /// `stream.consumer.delivered.stream_seq.consumer_seq.timestamp.pending`, which is what
    /// [`Meaning::Ack`] holds: how many dots there are has been looked at. Names are passed over once,
    /// and numbers read while their end is looked for, since each message that is acknowledged comes
    /// this way.
    fn parse(rest: &'a [u8]) -> Option<Self> {
        let (stream, rest) = split_first(rest)?;
        let (consumer, rest) = split_first(rest)?;
        let (delivered, rest) = number(rest)?;
        let (stream_seq, rest) = number(rest)?;
        let (consumer_seq, _) = number(rest)?;
        Some(Self { stream, consumer, delivered, stream_seq, consumer_seq })
    }
}

/// The number in front of the first dot, and what follows the dot.
#[inline]
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (*byte == b'.' && at > 0).then(|| (value, &text[at + 1..]));
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    None
}

#[cfg(test)]
mod tests;
