//! Keys of encryption at rest on the command line: from files or the environment, never as text, which
//! everybody on the machine could read.

use clap::Args;
use nuthatch_log::{Key, Keys};
use std::path::{Path, PathBuf};

/// Holds a key, or is not set.
const KEY_VARIABLE: &str = "NUTHATCH_KEY";

/// Longer files are no keys.
const KEY_FILE_MAX_BYTES: u64 = 64 * 1024;

/// Keys for what is encrypted.
#[derive(Debug, Default, Args)]
pub struct KeyArgs {
    /// File with a key under which the log is encrypted (what the server has as jetstream.key), as often
    /// as there are keys. Also read from the environment: NUTHATCH_KEY
    #[arg(long = "key-file", value_name = "FILE")]
    key_files: Vec<PathBuf>,
}

impl KeyArgs {
    /// The keys.
    ///
    /// # Errors
    /// A file cannot be read or is empty.
    pub fn read(&self) -> Result<Keys, String> {
        let mut keys = Vec::new();
        for file in &self.key_files {
            keys.push(key_in(file)?);
        }
        if let Some(text) = std::env::var_os(KEY_VARIABLE) {
            let key = Key::of_text(text.as_encoded_bytes());
            keys.push(key.ok_or_else(|| format!("{KEY_VARIABLE} is set and empty"))?);
        }
        let mut keys = keys.into_iter();
        Ok(Keys { current: keys.next(), previous: keys.collect(), ..Keys::default() })
    }
}

/// The key that a file holds: all of it, but for one line end.
fn key_in(file: &Path) -> Result<Key, String> {
    let name = file.display();
    let len = std::fs::metadata(file).map_err(|error| format!("{name}: {error}"))?.len();
    if len > KEY_FILE_MAX_BYTES {
        return Err(format!("{name} has {len} bytes: that is no key"));
    }
    let bytes = std::fs::read(file).map_err(|error| format!("{name}: {error}"))?;
    key_of(&bytes).ok_or_else(|| format!("{name} is empty: it must hold a key"))
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Key::of_text(text.strip_suffix(b"\r").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_a_file_holds_without_its_line_end() {
        let id = |text: &[u8]| key_of(text).map(|key| key.id());
        for text in ["secret", "secret\n", "secret\r\n"] {
            assert_eq!(id(text.as_bytes()), Key::of_text(b"secret").map(|key| key.id()));
        }
        assert_ne!(id(b"secret"), id(b" secret"));
        assert_eq!((id(b""), id(b"\n")), (None, None));
    }
}
