//! The errors of the JetStream API: what goes into `"error": {code, err_code, description}`.
//!
//! Every code that nats-server 2.15.2 knows is a constant of [`JsError`], named after the Go
//! constant without its `JS` and `Err`/`F`: `JSStreamNotFoundErr` is [`JsError::STREAM_NOT_FOUND`].
//! Some descriptions are templates with `{name}` placeholders; [`JsError::with`] fills them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

mod table;
#[cfg(test)]
mod tests;

/// An error of the JetStream API, in the shape in which it goes over the wire.
///
/// Clients decide by `err_code` (a few compare `description`); `code` resembles an HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsError {
    /// Class of the error, like an HTTP status: 400, 404, 409, 412, 429, 500, 503.
    pub code: u16,
    /// Code of the exact error: 10002 and up. 0 in errors of servers older than 2.7.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub err_code: u16,
    /// Text for people. May hold `{placeholders}` until they are filled by [`JsError::with`].
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub description: Cow<'static, str>,
}

/// One row of the table: a constant with the names under which it is known.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Name of the constant here, such as `STREAM_NOT_FOUND`.
    pub name: &'static str,
    /// Name of the constant in nats-server, such as `JSStreamNotFoundErr`.
    pub go_constant: &'static str,
    /// The error, placeholders unfilled.
    pub error: JsError,
}

impl JsError {
    /// Replaces every occurrence of a placeholder in the description.
    ///
    /// The placeholder may be written with or without braces: `"{err}"` and `"err"` are the same.
    /// A placeholder that the description lacks changes nothing.
    ///
    /// ```
    /// use nuthatch_protocol::jserror::JsError;
    /// let e = JsError::STREAM_WRONG_LAST_SEQUENCE.with("{seq}", 7);
    /// assert_eq!(e.description, "wrong last sequence: 7");
    /// ```
    #[must_use]
    pub fn with(mut self, placeholder: &str, value: impl fmt::Display) -> Self {
        let name = placeholder.trim_start_matches('{').trim_end_matches('}');
        let braced = format!("{{{name}}}");
        if self.description.contains(&braced) {
            self.description = Cow::Owned(self.description.replace(&braced, &value.to_string()));
        }
        self
    }

    /// The error with `{err}`, the most common placeholder, filled.
    #[must_use]
    pub fn with_err(self, why: impl fmt::Display) -> Self {
        self.with("err", why)
    }

    /// A writer whose stream a later one has opened (code 412, error code 20001). Nuthatch's own, and
    /// therefore not in [`JsError::TABLE`].
    pub const WRITER_FENCED: Self = Self {
        code: 412,
        err_code: 20001,
        description: Cow::Borrowed(
            "writer with term {term} is fenced: the stream takes records of term {stream} only",
        ),
    };

    /// A writer with a term that the stream was never opened with (code 412, error code 20002).
    /// Nuthatch's own.
    pub const WRITER_NOT_OPEN: Self = Self {
        code: 412,
        err_code: 20002,
        description: Cow::Borrowed(
            "the stream is not open for term {term}, it has {stream}: open it first",
        ),
    };

    /// True if the description still holds a `{placeholder}`.
    pub fn is_template(&self) -> bool {
        self.description.split_once('{').is_some_and(|(_, rest)| rest.contains('}'))
    }

    /// The table's error for an error code, placeholders unfilled.
    pub fn from_err_code(err_code: u16) -> Option<JsError> {
        Self::TABLE.iter().find(|row| row.error.err_code == err_code).map(|row| row.error.clone())
    }
}

impl fmt::Display for JsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.description, self.err_code)
    }
}

impl std::error::Error for JsError {}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(n: &u16) -> bool {
    *n == 0
}

/// Turns rows into associated constants of [`JsError`] and into [`JsError::TABLE`].
macro_rules! js_errors {
    ($($name:ident = $go:ident, $code:literal, $err_code:literal, $description:literal;)+) => {
        impl $crate::jserror::JsError {
            $(
                #[doc = concat!("`", $description, "` (code ", $code, ", error code ", $err_code, ").")]
                pub const $name: $crate::jserror::JsError = $crate::jserror::JsError {
                    code: $code,
                    err_code: $err_code,
                    description: ::std::borrow::Cow::Borrowed($description),
                };
            )+

            /// Every known error, by rising error code.
            pub const TABLE: &'static [$crate::jserror::TableRow] = &[
                $($crate::jserror::TableRow {
                    name: stringify!($name),
                    go_constant: stringify!($go),
                    error: $crate::jserror::JsError::$name,
                },)+
            ];
        }
    };
}
use js_errors;
