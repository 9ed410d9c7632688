//! Messages for a log that does not open: why, that nothing was changed, and what to do.

use crate::registry::DEFAULT_LOG;
use nuthatch_log::OpenError;
use std::fmt::Display;
use std::path::Path;

/// Explains why a log in a bucket does not open, with the command that examines it.
pub fn in_bucket(error: &dyn Display, address: &str, log: &str) -> String {
    let log = if log == DEFAULT_LOG { String::new() } else { format!(" --log {log}") };
    let store = quoted(address);
    format!(
        "{error}. Nothing was changed. To have it explained, run: nuthatch doctor --store \
         {store}{log}"
    )
}

/// Explains why a log does not open, with the command that examines it.
pub fn in_directory(error: &OpenError, store_dir: &Path) -> String {
    if let Some(advice) = error.io().and_then(advice_on) {
        return format!(
            "{error}; the store is {}. Nothing was changed. {advice}",
            store_dir.display()
        );
    }
    if !error.is_damage() {
        return error.to_string();
    }
    let dir = quoted(&store_dir.display().to_string());
    format!("{error}. Nothing was changed. To have it explained, run: nuthatch doctor {dir}")
}

/// Advice on an error of the operating system.
fn advice_on(error: &std::io::Error) -> Option<&'static str> {
    /// `EIO`: the medium does not give back what is on it.
    const MEDIUM_FAILS: i32 = 5;
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Some("The user of the server must own it and what is in it: see chown(1)")
        }
        std::io::ErrorKind::ReadOnlyFilesystem => Some(
            "Mount its file system for writing; if the kernel made it read-only, ask dmesg why \
             first",
        ),
        _ if error.raw_os_error() == Some(MEDIUM_FAILS) => Some(
            "The medium is failing: copy the store to another one (ddrescue) and run nuthatch \
             doctor on the copy",
        ),
        _ => None,
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What is told where a node's bucket has another log than the cluster's, or none.
pub(super) fn another_log(place: &str) -> String {
    format!(
        "{place} is not the log of this cluster: that was in another bucket when it was first opened. Give all nodes the same \
         'store', with the same endpoint and credentials of the same account"
    )
}
