//! Consumers of the JetStream workloads: their creation, and what their messages say.

use serde_json::{Value, json};

use crate::harness::{BenchError, Target};
use nuthatch_client::Client;
use nuthatch_client::frame::decimal;
use nuthatch_client::js::{self, CONSUMER_NOT_FOUND, STREAM_NOT_FOUND};

/// How messages are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AckMode {
    /// Every message.
    Explicit,
    /// The last of what has arrived, for all before it.
    All,
    /// Not at all.
    None,
}

impl AckMode {
    /// JetStream's word for it.
    pub fn policy(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::All => "all",
            Self::None => "none",
        }
    }
}

/// Metadata of a delivered message, from its reply subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// How often it has been delivered, this time included.
    pub attempts: u64,
    /// Its sequence in the stream.
    pub stream_seq: u64,
    /// Its sequence in the consumer's deliveries.
    pub consumer_seq: u64,
    /// How many more wait.
    pub pending: u64,
}

impl Delivery {
    /// Reads a reply subject of the form
    /// `$JS.ACK.<stream>.<consumer>.<attempts>.<stream seq>.<consumer seq>.<ns>.<pending>`,
    /// or the later one with domain and account hash after `ACK`.
    #[inline]
    pub fn parse(reply: &[u8]) -> Option<Self> {
        const OLD_TOKENS: usize = 9;
        const NEW_TOKENS: usize = 11;
        let rest = reply.strip_prefix(b"$JS.ACK.")?;
        let mut tokens = [&b""[..]; NEW_TOKENS];
        let mut count = 2;
        for token in rest.split(|b| *b == b'.').take(NEW_TOKENS - 2) {
            tokens[count] = token;
            count += 1;
        }
        let first = match count {
            OLD_TOKENS => 4,
            NEW_TOKENS => 6,
            _ => return None,
        };
        Some(Self {
            attempts: decimal(tokens[first])?,
            stream_seq: decimal(tokens[first + 1])?,
            consumer_seq: decimal(tokens[first + 2])?,
            pending: decimal(tokens[first + 4])?,
        })
    }
}

/// Checks that deliveries come in order.
#[derive(Debug, Default)]
pub struct OrderCheck {
    /// Whether no sequence may be skipped, because nobody else consumes.
    gapless: bool,
    last: u64,
}

impl OrderCheck {
    /// `gapless` demands every sequence after the first.
    pub fn new(gapless: bool) -> Self {
        Self { gapless, last: 0 }
    }

    /// Takes the next delivery; what is wrong with it, if anything.
    #[inline]
    pub fn next(&mut self, reply: Option<&[u8]>) -> Result<(), String> {
        let Some(delivery) = reply.and_then(Delivery::parse) else {
            return Err(format!("no JetStream reply subject: {reply:?}"));
        };
        let (seq, last) = (delivery.stream_seq, self.last);
        self.last = seq.max(last);
        if delivery.attempts > 1 {
            return Err(format!("sequence {seq} was delivered {} times", delivery.attempts));
        }
        if seq <= last || (self.gapless && last > 0 && seq != last + 1) {
            return Err(format!("stream sequence {seq} came after {last}"));
        }
        Ok(())
    }
}

/// Creates a consumer from nothing: one of the same name is deleted first.
///
/// # Errors
/// When JetStream refuses.
pub fn create(
    control: &mut Client,
    target: &Target,
    stream: &str,
    config: &Value,
) -> Result<(), BenchError> {
    let name = config["name"].as_str().unwrap_or_default();
    delete(control, target, stream, name)?;
    let body = json!({ "stream_name": stream, "config": config });
    js::api(control, &format!("CONSUMER.CREATE.{stream}.{name}"), &body, target.timeout)?;
    Ok(())
}

/// Deletes a consumer if it exists.
///
/// # Errors
/// When JetStream refuses for another reason.
pub fn delete(
    control: &mut Client,
    target: &Target,
    stream: &str,
    name: &str,
) -> Result<(), BenchError> {
    let what = format!("CONSUMER.DELETE.{stream}.{name}");
    match js::api(control, &what, &Value::Null, target.timeout) {
        Ok(_) => Ok(()),
        Err(err) if matches!(err.err_code(), Some(CONSUMER_NOT_FOUND | STREAM_NOT_FOUND)) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subjects() {
        let expected = Delivery { attempts: 1, stream_seq: 22, consumer_seq: 3, pending: 4 };
        for reply in [
            "$JS.ACK.S.C.1.22.3.1700000000.4",
            "$JS.ACK._.hash.S.C.1.22.3.1700000000.4",
            "$JS.ACK._.hash.S.C.1.22.3.1700000000.4.rnd",
        ] {
            assert_eq!(Delivery::parse(reply.as_bytes()), Some(expected), "{reply}");
        }
        for reply in ["", "$JS.ACK.S.C.1.2.3.4", "a.b.c.d.e.f.g.h.i", "$JS.ACK.S.C.x.22.3.17.4"] {
            assert_eq!(Delivery::parse(reply.as_bytes()), None, "{reply}");
        }
    }

    #[test]
    fn order() {
        let reply = |attempts: u64, seq: u64| format!("$JS.ACK.S.C.{attempts}.{seq}.1.1.0");
        let mut gapless = OrderCheck::new(true);
        let mut shared = OrderCheck::new(false);
        for (attempts, seq, ok, ok_shared) in [
            (1, 5, true, true),
            (1, 6, true, true),
            (1, 8, false, true),
            (1, 7, false, false),
            (2, 9, false, false),
            (1, 10, true, true),
        ] {
            let reply = reply(attempts, seq);
            assert_eq!(gapless.next(Some(reply.as_bytes())).is_ok(), ok, "{seq}");
            assert_eq!(shared.next(Some(reply.as_bytes())).is_ok(), ok_shared, "{seq}");
        }
        assert!(gapless.next(None).is_err());
    }
}
