//! JSON of greetings (CONNECT, INFO): what is wrong with it is told without its values, which may be
//! passwords and come from strangers.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why a greeting cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It is no JSON object.
    #[error("no JSON object (line {line}, column {column})")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// A field has a value of another type.
    #[error("the type of field {field:?} is wrong")]
    Type {
        /// Its name.
        field: String,
    },
    /// The fields do not fit together.
    #[error("a field is missing or wrong")]
    Fields,
}

/// Reads a greeting: field names in any case and nulls as absent fields, as Go reads them.
///
/// # Errors
/// [`Unreadable`], which holds nothing of any value.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Unreadable> {
    let fields: Map<String, Value> = serde_json::from_slice(json)
        .map_err(|error| Unreadable::Syntax { line: error.line(), column: error.column() })?;
    let fields: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    serde_json::from_value(Value::Object(fields.clone())).map_err(|_| wrong::<T>(fields))
}

/// The field that cannot be read by itself: only fields with a meaning have a type to be wrong.
fn wrong<T: DeserializeOwned>(fields: Map<String, Value>) -> Unreadable {
    let fails = |(name, value): &(String, Value)| {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        serde_json::from_value::<T>(Value::Object(alone)).is_err()
    };
    match fields.into_iter().find(fails) {
        Some((field, _)) => Unreadable::Type { field },
        None => Unreadable::Fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, PartialEq, Debug, Default)]
    #[serde(default)]
    struct Greeting {
        verbose: Option<bool>,
        pass: Option<String>,
    }

    #[test]
    fn what_is_wrong_is_told_without_the_value() {
        let told = |json: &str| parse::<Greeting>(json.as_bytes()).unwrap_err().to_string();
        for json in [
            r#"{"verbose":true,"PASS":12345}"#,
            r#"{"pass":["12345"]}"#,
            r#"{"verbose":"12345"}"#,
            r#""12345""#,
            r#"{"pass":"12345"#,
            r#"{"pass":12345e}"#,
        ] {
            assert!(!told(json).contains("12345"), "{json}: {}", told(json));
        }
        assert_eq!(told(r#"{"pass":12345}"#), r#"the type of field "pass" is wrong"#);
        let read = parse(br#"{"Verbose":true,"pass":null,"other":7}"#);
        assert_eq!(read, Ok(Greeting { verbose: Some(true), pass: None }));
    }
}
