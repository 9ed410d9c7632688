//! Errors of configuration texts, and their messages.

use super::value::Position;
use super::{MAX_INCLUDE_DEPTH, MAX_NESTING, MAX_TOTAL_BYTES};

/// A mistake in the text of a configuration, shown as `file:line:column: what to do`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pos}: {kind}")]
pub struct SyntaxError {
    /// Its position.
    pub pos: Position,
    /// Its kind.
    pub kind: SyntaxErrorKind,
}

/// The kinds of mistakes in the text of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxErrorKind {
    /// Something other than a key where a key has to be.
    #[error("expected a key, found {found}")]
    ExpectedKey {
        /// The text found.
        found: String,
    },
    /// `"": value`.
    #[error("a key cannot be empty")]
    EmptyKey,
    /// Nothing, or only the next line, after a key.
    #[error("key '{key}' has no value: write it on the same line (\"\" for an empty string)")]
    NoValue {
        /// The key.
        key: String,
    },
    /// Something else after a value on its line.
    #[error(
        "expected the end of the value of '{key}' (a new line, ',' or ';'), found {found}: \
         a value with spaces or separators needs quotes"
    )]
    TrailingText {
        /// The key.
        key: String,
        /// The text found.
        found: String,
    },
    /// No `,` or `]` after an element.
    #[error("expected ',' or ']' after an array element, found {found}")]
    BadArray {
        /// The text found.
        found: String,
    },
    /// `,` without an element before it.
    #[error("an array element is missing before ','")]
    EmptyElement,
    /// `}` that closes nothing.
    #[error("'}}' closes nothing: remove it or look for a missing '{{'")]
    UnmatchedBrace,
    /// `{` without `}`.
    #[error("'{{' is never closed: add '}}'")]
    UnclosedMap,
    /// `[` without `]`.
    #[error("'[' is never closed: add ']'")]
    UnclosedArray,
    /// A quote without its partner.
    #[error("the string is never closed: add {quote}")]
    UnclosedString {
        /// The quote character.
        quote: char,
    },
    /// `(` without `)`.
    #[error("the block is never closed: end it with ')' on a line of its own")]
    UnclosedBlock,
    /// `\q`.
    #[error("unknown escape {found}: use \\xXX, \\t, \\n, \\r, \\\" or \\\\, or single quotes")]
    BadEscape {
        /// The text behind the backslash.
        found: String,
    },
    /// `\xZZ`.
    #[error("expected two hexadecimal digits after \\x")]
    BadHex,
    /// `"\xff"`.
    #[error("the escapes of this string do not make valid UTF-8")]
    NotUtf8,
    /// An integer above 2^63.
    #[error("integer '{text}' is out of range: the largest is 9223372036854775807")]
    IntegerRange {
        /// As written.
        text: String,
    },
    /// A float above 1e308.
    #[error("number '{text}' is out of range")]
    FloatRange {
        /// As written.
        text: String,
    },
    /// `$NAME` that nothing defines.
    #[error(
        "variable '{name}' is not defined: set it above, in this or an enclosing map, \
         or in the environment (a string that begins with '$' needs quotes)"
    )]
    UnknownVariable {
        /// Its name.
        name: String,
    },
    /// Environment variables that refer to one another in a circle.
    #[error("variable '{name}' refers to itself")]
    VariableCycle {
        /// Its name.
        name: String,
    },
    /// An environment variable that does not hold exactly one value.
    #[error("environment variable '{name}' does not hold one value ({why}): quote it")]
    BadVariable {
        /// Its name.
        name: String,
        /// The fault.
        why: String,
    },
    /// `include` without a file name.
    #[error("expected a file name after 'include', found {found}")]
    IncludeWithoutPath {
        /// The text found.
        found: String,
    },
    /// A file that cannot be read.
    #[error("cannot include '{path}': {why}")]
    Include {
        /// As written.
        path: String,
        /// Why not.
        why: String,
    },
    /// A file that includes itself, perhaps through others.
    #[error("'{path}' includes itself")]
    IncludeCycle {
        /// As written.
        path: String,
    },
    /// Too long a chain of includes.
    #[error("more than {MAX_INCLUDE_DEPTH} files include one another")]
    IncludeDepth,
    /// Too deep a nesting.
    #[error("maps and arrays nest deeper than {MAX_NESTING}")]
    TooDeep,
    /// Too much text.
    #[error(
        "the configuration is larger than {MAX_TOTAL_BYTES} bytes, includes and variables counted"
    )]
    TooLarge,
}
