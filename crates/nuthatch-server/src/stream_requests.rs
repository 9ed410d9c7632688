//! Subjects that are for a stream beside its own ones, and have its name in them: acknowledgements, flow control, pulls and
//! direct gets.

use memchr::{memchr, memmem};

/// What all of these subjects begin with.
pub(crate) const PREFIX: &[u8] = b"$JS.";

const ACK: &[u8] = b"ACK.";
const FLOW_CONTROL: &[u8] = b"FC.";
const PULL: &[u8] = b"API.CONSUMER.MSG.NEXT.";
const DIRECT_GET: &[u8] = b"API.DIRECT.GET.";

/// The stream for which a literal subject is.
pub(crate) fn stream_of(subject: &[u8]) -> Option<&str> {
    let rest = subject.strip_prefix(PREFIX)?;
    let of = |prefix: &[u8]| rest.strip_prefix(prefix).map(first_token);
    let (name, behind) = [ACK, FLOW_CONTROL, PULL, DIRECT_GET].into_iter().find_map(of)?;
    let fits = match behind {
        None => rest.starts_with(DIRECT_GET),
        Some(behind) => {
            let is_one = || memchr(b'.', behind).is_none();
            are_tokens(behind) && (!rest.starts_with(PULL) || is_one())
        }
    };
    fits.then(|| std::str::from_utf8(name).ok()).flatten()
}

/// The first token of a subject, and what comes behind its dot.
fn first_token(subject: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'.', subject) {
        Some(dot) => (&subject[..dot], Some(&subject[dot + 1..])),
        None => (subject, None),
    }
}

/// True if these are tokens, none of them empty.
fn are_tokens(text: &[u8]) -> bool {
    let at_the_ends = text.first().is_none_or(|c| *c == b'.') || text.last() == Some(&b'.');
    !at_the_ends && memmem::find(text, b"..").is_none()
}
