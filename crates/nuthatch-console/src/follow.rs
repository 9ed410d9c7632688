//! Pages that are live: an answer of the API is sent again whenever it has changed, as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! `GET /api/follow/PATH?QUERY` follows what `GET /api/PATH?QUERY` answers. Lists that only grow (events, messages)
//! are sent from a cursor on, which is the id of each event, so that a browser that connects again goes on there.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::ask::Ask;
use crate::bounds::{FOLLOW_QUIET_MAX, FOLLOW_STEP, FOLLOW_TAIL_STEP, FOLLOW_TIME_MAX};
use crate::failure::Failure;

/// The media type of an event stream.
pub const EVENT_STREAM: &str = "text/event-stream";

/// How soon a browser connects again, in milliseconds: the first line of every stream.
const RETRY: &str = "retry: 1000\n\n";

/// A body: whole, or a stream of events.
pub type Sent = Either<Full<Bytes>, Events>;

/// Events as they come; ends when whoever makes them is dropped.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A stream of events and its writing end. One event waits at most: a browser that does not read is asked nothing new.
pub fn events() -> (mpsc::Sender<Bytes>, Events) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Events(receiver))
}

/// What can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// An answer that is sent again as a whole.
    Whole,
    /// `events`: those after the cursor, at once.
    Events,
    /// Messages of a stream from the cursor on.
    Messages,
}

impl Followed {
    /// # Errors
    /// [`Failure::NotFound`] when the path is none that is followed.
    pub fn of(ask: &Ask) -> Result<Self, Failure> {
        let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
        match path[..] {
            ["overview" | "connections" | "logs" | "cluster" | "consumers" | "dead"]
            | ["streams"]
            | ["streams", _]
            | ["streams", _, "move" | "consumers"]
            | ["streams", _, "consumers", _]
            | ["kv", _, "keys" | "entry"] => Ok(Self::Whole),
            ["events"] => Ok(Self::Events),
            ["streams", _, "messages"] => Ok(Self::Messages),
            _ => Err(Failure::NotFound(format!("{:?} cannot be followed: it", path.join("/")))),
        }
    }

    /// Time between two looks.
    pub const fn step(self) -> Duration {
        match self {
            Self::Messages => FOLLOW_TAIL_STEP,
            Self::Whole | Self::Events => FOLLOW_STEP,
        }
    }

    /// The parameter of the query that is the cursor.
    const fn cursor(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Events => Some("after"),
            Self::Messages => Some("seq"),
        }
    }

    /// Where the next look begins after an answer; `None`: where this one did.
    fn next(self, answer: &Value) -> Option<u64> {
        match self {
            Self::Whole => None,
            Self::Events => answer["rows"][0]["id"].as_u64(),
            Self::Messages => answer["after"].as_u64(),
        }
    }

    /// Whether an answer holds anything.
    fn is_news(self, answer: &Value) -> bool {
        let rows = match self {
            Self::Whole => return true,
            Self::Events => &answer["rows"],
            Self::Messages => &answer["messages"],
        };
        rows.as_array().is_some_and(|rows| !rows.is_empty())
    }
}

/// How far a stream of events is.
#[derive(Debug)]
pub struct Follow {
    what: Followed,
    until: Instant,
    spoke: Instant,
    last: Option<String>,
}

impl Follow {
    /// Begins at once.
    pub fn new(what: Followed) -> Self {
        let now = Instant::now();
        Self { what, until: now + FOLLOW_TIME_MAX, spoke: now, last: None }
    }

    /// True when the browser is to connect again.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// What is sent first.
    pub const fn begin() -> Bytes {
        Bytes::from_static(RETRY.as_bytes())
    }

    /// What is to be sent after an answer: an event if it is new, a comment if nothing was said for long, so that
    /// a browser that has gone is noticed. Moves the cursor of `ask`.
    pub fn heard(&mut self, ask: &mut Ask, answer: &Value) -> Option<Bytes> {
        let cursor = self.what.cursor().zip(self.what.next(answer));
        if let Some((name, at)) = cursor {
            ask.set(name, at.to_string());
        }
        let event = self.what.is_news(answer).then(|| event(answer, cursor.map(|(_, at)| at)));
        let event = event.filter(|text| self.last.as_ref() != Some(text));
        let text = match event {
            Some(text) if self.what == Followed::Whole => self.last.insert(text).clone(),
            Some(text) => text,
            None if self.spoke.elapsed() >= FOLLOW_QUIET_MAX => ":\n\n".to_owned(),
            None => return None,
        };
        self.spoke = Instant::now();
        Some(text.into())
    }
}

/// JSON has no line breaks outside of its texts, and escapes those within: one `data` line holds it.
fn event(answer: &Value, id: Option<u64>) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}data: {answer}\n\n")
}

/// Goes on where a browser says that it was: the `Last-Event-ID` of a connection made again.
pub fn resume(what: Followed, ask: &mut Ask, last_event: Option<&str>) {
    let at = last_event.and_then(|text| text.parse::<u64>().ok());
    if let Some((name, at)) = what.cursor().zip(at) {
        ask.set(name, at.to_string());
    }
}

/// A whole body.
pub fn whole(text: impl Into<Bytes>) -> Sent {
    Either::Left(Full::new(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(bytes: Option<Bytes>) -> Option<String> {
        bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[test]
    fn a_whole_answer_is_sent_when_it_has_changed() {
        let mut ask = Ask::new("overview", "").expect("sound");
        let mut follow = Follow::new(Followed::of(&ask).expect("followed"));
        let first = text(follow.heard(&mut ask, &json!({ "a": "x\ny" })));
        assert_eq!(first.as_deref(), Some("data: {\"a\":\"x\\ny\"}\n\n"));
        assert_eq!(follow.heard(&mut ask, &json!({ "a": "x\ny" })), None, "the same");
        assert!(follow.heard(&mut ask, &json!({ "a": 2 })).is_some());
        assert!(follow.heard(&mut ask, &json!({ "a": "x\ny" })).is_some(), "as it was before");
    }

    #[test]
    fn what_grows_is_sent_from_the_cursor_on() {
        let mut ask = Ask::new("streams/S/messages", "seq=5&subject=a").expect("sound");
        let what = Followed::of(&ask).expect("followed");
        let mut follow = Follow::new(what);
        assert_eq!(follow.heard(&mut ask, &json!({ "messages": [], "after": 5 })), None);
        let found = json!({ "messages": [{ "seq": 6 }], "after": 7 });
        let sent = text(follow.heard(&mut ask, &found)).expect("news");
        assert!(sent.starts_with("id: 7\ndata: {"), "{sent}");
        assert_eq!((ask.query("seq"), ask.query("subject")), (Some("7"), Some("a")));
        resume(what, &mut ask, Some("6"));
        assert_eq!(ask.query("seq"), Some("6"));
        resume(what, &mut ask, Some("no number"));
        assert_eq!(ask.query("seq"), Some("6"));
    }

    #[test]
    fn what_changes_something_or_is_large_is_not_followed() {
        for path in ["login", "streams/S/messages/1", "objects/B/part", "x", "configuration"] {
            let ask = Ask::new(path, "").expect("sound");
            assert!(Followed::of(&ask).is_err(), "{path}");
        }
    }
}
