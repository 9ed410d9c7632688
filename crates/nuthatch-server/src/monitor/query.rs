//! Parameters of a monitoring request.

use std::collections::BTreeMap;

/// Parsed parameters; of repeated ones the first counts.
#[derive(Debug, Default)]
pub(super) struct Query {
    values: BTreeMap<String, String>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let mut values = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decode(name)).or_insert_with(|| decode(value));
        }
        Self { values }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A boolean as Go reads it; absent is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(_) => Err(format!("Error decoding boolean for '{name}'")),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, String> {
        let parse = |text: &str| {
            text.parse().map(Some).map_err(|_| format!("Error decoding integer for '{name}'"))
        };
        self.text(name).map_or(Ok(None), parse)
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => match text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok())
            {
                Some(byte) => {
                    out.push(byte);
                    at += 2;
                }
                None => out.push(b'%'),
            },
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
