//! Which messages are looked for: a text in the payload, or a value at a path of its JSON.

use serde_json::Value;

use crate::ask::Ask;
use crate::bounds::SEARCHED_BYTES_MAX;
use crate::failure::Failure;

/// What is looked for.
#[derive(Debug)]
pub enum Sought {
    /// A text anywhere in the payload, in whatever case.
    Text(String),
    /// A value below a path of JSON, as a JSON pointer: its text, in lower case; empty: any.
    Json(String, String),
}

impl Sought {
    /// By `text=`, or by `path=` and `value=`; `None`: everything.
    ///
    /// # Errors
    /// When it is too long.
    pub fn given(ask: &Ask) -> Result<Option<Self>, Failure> {
        let text = |name: &str| {
            let text = ask.query(name).unwrap_or_default();
            match text.len() <= SEARCHED_BYTES_MAX {
                true => Ok(text.to_lowercase()),
                false => {
                    Err(Failure::bad(format!("{name} has at most {SEARCHED_BYTES_MAX} bytes")))
                }
            }
        };
        text("path")?;
        Ok(match (ask.query("path"), ask.query("text")) {
            (Some(path), _) => Some(Self::Json(pointer(path), text("value")?)),
            (None, Some(_)) => Some(Self::Text(text("text")?)),
            (None, None) => None,
        })
    }

    /// Whether a payload is such a one.
    pub fn is_in(&self, payload: &[u8]) -> bool {
        match self {
            Self::Text(text) => String::from_utf8_lossy(payload).to_lowercase().contains(text),
            Self::Json(pointer, value) => {
                let Ok(found) = serde_json::from_slice::<Value>(payload) else { return false };
                let shown = found.pointer(pointer).map(|found| match found {
                    Value::String(text) => text.to_lowercase(),
                    other => other.to_string().to_lowercase(),
                });
                shown.is_some_and(|shown| match value.is_empty() {
                    true => true,
                    false => shown == *value,
                })
            }
        }
    }
}

/// The JSON pointer of a path such as `lines[0].sku`.
fn pointer(path: &str) -> String {
    let plain = path.trim_start_matches('$').replace('[', ".").replace(']', "");
    let parts = plain.split('.').filter(|part| !part.is_empty());
    parts.map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(query: &str, payload: &str) -> bool {
        let ask = Ask::new("", query).expect("sound");
        let sought = Sought::given(&ask).expect("short").expect("something");
        sought.is_in(payload.as_bytes())
    }

    #[test]
    fn texts_and_paths() {
        let order = r#"{"id":7,"customer":{"name":"Tanaka"},"lines":[{"sku":"SEED"}],"a/b":null}"#;
        assert!(finds("text=tanaka", order) && !finds("text=moreau", order));
        assert!(finds("path=id&value=7", order) && !finds("path=id&value=8", order));
        assert!(finds("path=customer.name&value=TANAKA", order));
        assert!(finds("path=$.lines[0].sku&value=seed", order));
        assert!(finds("path=a/b", order) && finds("path=a/b&value=null", order));
        assert!(!finds("path=lines[1].sku", order) && !finds("path=id", "no JSON"));
        let long = format!("text={}", "x".repeat(SEARCHED_BYTES_MAX + 1));
        assert!(Sought::given(&Ask::new("", &long).expect("sound")).is_err());
        assert!(Sought::given(&Ask::default()).expect("nothing").is_none());
    }
}
