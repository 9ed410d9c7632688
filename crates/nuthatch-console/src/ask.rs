//! A request of the API, taken apart.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bounds::{
    CONFIG_BODY_BYTES_MAX, MESSAGE_BODY_BYTES_MAX, ROWS_MAX, SMALL_BODY_BYTES_MAX,
};
use crate::failure::Failure;

/// Rows of a page unless the request says otherwise.
const DEFAULT_ROWS: usize = 50;

/// A request of the API.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// The parts of its path below `/api/`.
    pub path: Vec<String>,
    query: Vec<(String, String)>,
    /// Its body as it came; `None` of a request that only reads.
    pub raw: Option<Bytes>,
    /// What it holds, once it is opened.
    pub body: Body,
}

/// What the bodies of the API hold, configurations of streams aside. Anything else in them is passed
/// over and takes no memory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Body {
    pub user: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    /// The seed of an nkey, or the text of a file of credentials.
    pub key_text: Option<String>,
    /// What a session may do at most.
    pub role: Option<String>,
    /// The name of what is to be destroyed, as text.
    pub confirm: Option<String>,
    pub subject: Option<String>,
    pub key: Option<String>,
    /// Bytes in base64.
    pub data: Option<String>,
    /// Pairs of names and values.
    pub headers: Option<Box<RawValue>>,
    pub stored: Option<bool>,
    pub wait_ms: Option<u64>,
    pub revision: Option<u64>,
    pub purge: Option<bool>,
    pub until: Option<String>,
    pub filter: Option<String>,
    pub seq: Option<u64>,
    pub keep: Option<u64>,
    /// Numbers of messages that were given up.
    pub ids: Option<Vec<u64>>,
    /// The original goes.
    pub remove: Option<bool>,
    pub name: Option<String>,
    pub description: Option<String>,
    /// Where an acknowledgement is sent, and which one.
    pub reply: Option<String>,
    pub ack: Option<String>,
    /// Name of a log.
    pub log: Option<String>,
    pub cancel: Option<bool>,
}

/// Reads a body.
///
/// # Errors
/// [`Failure::BadRequest`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::bad(format!("the body: {error}")))
}

impl Ask {
    /// Takes a path below `/api/` and a query apart.
    ///
    /// # Errors
    /// When something of it is not encoded soundly.
    pub fn new(path: &str, query: &str) -> Result<Self, Failure> {
        let path = path.split('/').map(|part| decode(part, false)).collect::<Result<_, _>>()?;
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        });
        let query = pairs.collect::<Result<_, Failure>>()?;
        Ok(Self { path, query, raw: None, body: Body::default() })
    }

    /// A parameter of the query; an empty one is none.
    pub fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    /// Sets a parameter of the query.
    pub fn set(&mut self, name: &str, value: String) {
        self.query.retain(|(known, _)| known != name);
        self.query.push((name.to_owned(), value));
    }

    /// A number of the query.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Failure::bad(format!("{name} must be a number, not {text:?}")))
        };
        self.query(name).map(parse).transpose()
    }

    /// Which rows are asked for: how many to leave out, and how many to show.
    ///
    /// # Errors
    /// When one is no number.
    pub fn rows(&self) -> Result<(usize, usize), Failure> {
        let number = |name: &str, default: usize| {
            self.number(name).map(|n| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(default))
        };
        Ok((number("offset", 0)?, number("limit", DEFAULT_ROWS)?.clamp(1, ROWS_MAX)))
    }

    /// What has to occur in a name, in lower case.
    pub fn search(&self) -> String {
        self.query("search").unwrap_or_default().trim().to_lowercase()
    }

    /// How large its body may be.
    pub fn body_bytes_max(&self) -> usize {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match path[..] {
            ["publish" | "request"] | ["kv", _, "entry"] | ["objects", _, "file"] => {
                MESSAGE_BODY_BYTES_MAX
            }
            ["streams"] => CONFIG_BODY_BYTES_MAX,
            _ => SMALL_BODY_BYTES_MAX,
        }
    }

    /// Reads the body. That takes its time: not on a thread that others wait for.
    ///
    /// # Errors
    /// When it is none that the API knows.
    pub fn open(&mut self) -> Result<(), Failure> {
        if let Some(raw) = self.raw.as_ref().filter(|_| self.path != ["streams"]) {
            self.body = parse(raw)?;
            self.raw = None;
        }
        Ok(())
    }

    /// The body as a configuration of a stream.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn config(&self) -> Result<Value, Failure> {
        parse(self.raw.as_deref().unwrap_or_default())
    }

    /// Bytes of the body, in base64.
    ///
    /// # Errors
    /// When they are not.
    pub fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let text = self.body.data.as_deref().unwrap_or_default();
        STANDARD.decode(text).map_err(|_| Failure::bad("data must be base64"))
    }

    /// The body repeats a name, as whoever destroys something has to.
    ///
    /// # Errors
    /// When it does not.
    pub fn confirms(&self, name: &str) -> Result<(), Failure> {
        match self.body.confirm.as_deref() == Some(name) {
            true => Ok(()),
            false => Err(Failure::bad(format!("type {name:?} to confirm"))),
        }
    }
}

/// A text that the body must have.
///
/// # Errors
/// When it has none.
pub fn needed<'t>(text: &'t Option<String>, name: &str) -> Result<&'t str, Failure> {
    text.as_deref().ok_or_else(|| Failure::bad(format!("{name} is missing")))
}

/// Undoes percent-encoding; in a query `+` stands for a space.
fn decode(text: &str, is_query: bool) -> Result<String, Failure> {
    let wrong = || Failure::bad("the address is not encoded soundly");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = rest.next().and_then(|b| char::from(b).to_digit(16));
                    digit.and_then(|digit| u8::try_from(digit).ok()).ok_or_else(wrong)
                };
                digit()? << 4 | digit()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries() {
        let ask = Ask::new("streams/A%20%C3%A4/messages", "a=1&b=x+y%26&c=&d").expect("sound");
        assert_eq!(ask.path, ["streams", "A ä", "messages"]);
        assert_eq!(ask.query("b"), Some("x y&"));
        assert_eq!((ask.query("c"), ask.query("d"), ask.query("e")), (None, None, None));
        assert_eq!(ask.number("a").expect("a number"), Some(1));
        assert!(ask.number("b").is_err());
        assert!(Ask::new("%", "").is_err() && Ask::new("%f", "").is_err());
        assert!(Ask::new("%ff", "").is_err(), "no UTF-8");
    }

    #[test]
    fn rows_are_bounded() {
        let rows = |query: &str| Ask::new("", query).expect("sound").rows().expect("numbers");
        assert_eq!(rows(""), (0, DEFAULT_ROWS));
        assert_eq!(rows("offset=7&limit=0"), (7, 1));
        assert_eq!(rows("limit=99999999"), (0, ROWS_MAX));
    }
}
