//! The configuration syntax of nats-server: text in, a tree of values with positions out.
//!
//! `key = value`, `key: value` and `key value` are the same; maps are `{}`, arrays `[]`; newline,
//! comma and semicolon separate; `#` and `//` begin comments; strings are bare, `'raw'`,
//! `"escaped"` or a `(` block that ends with `)` on a line of its own; integers take size suffixes
//! (`1k` is 1000, `1kb` is 1024); `$NAME` is a value given earlier, in this map or one around it,
//! or an environment variable; `include path` brings in another file's keys.
//!
//! Nothing here reads files or the environment: a [`Loader`] does. What the keys mean is not known
//! here either. Where nats-server is laxer by accident (a value that slid to the next line, an
//! overflowing integer) this parser reports an error instead; where it is stricter by accident
//! (`./relative` values, `key{`) this parser accepts.

use std::sync::Arc;

mod cursor;
mod error;
mod parser;
mod units;
mod value;

#[cfg(test)]
mod tests;

pub use error::{SyntaxError, SyntaxErrorKind};
pub use units::{DurationError, SizeError, parse_duration_ns, parse_size};
pub use value::{Entry, Map, Node, Position, Value};

/// Deepest nesting of maps and arrays, variables included.
pub const MAX_NESTING: usize = 64;
/// Longest chain of files including one another.
pub const MAX_INCLUDE_DEPTH: usize = 16;
/// Most bytes of text in all files together, copies made by variables included.
pub const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// A file that a [`Loader`] read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the file as it shall appear in positions, and as `from` of its own includes.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Access to files and to the environment, on behalf of the parser.
pub trait Loader {
    /// Reads the file that `from` includes as `path`, which is relative to `from`'s directory.
    ///
    /// # Errors
    /// A sentence that says why the file could not be read, without the path.
    fn load(&mut self, path: &str, from: &str) -> Result<Source, String>;

    /// Value of an environment variable.
    fn env(&self, name: &str) -> Option<String>;
}

/// A [`Loader`] without files and without an environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLoader;

impl Loader for NoLoader {
    fn load(&mut self, _path: &str, _from: &str) -> Result<Source, String> {
        Err("includes are not possible here".to_owned())
    }

    fn env(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Parses a configuration text into the map of its top-level keys.
///
/// `name` stands for the text in positions and is what its includes are relative to.
///
/// # Errors
/// The first mistake in the text or in a file that it includes, with its position.
pub fn parse(name: &str, text: &str, loader: &mut dyn Loader) -> Result<Map, SyntaxError> {
    parser::parse_file(Arc::from(name), text, loader)
}
