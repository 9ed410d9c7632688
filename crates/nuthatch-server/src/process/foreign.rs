//! A store directory that belongs to a nats-server is refused, never ignored.

use std::fs;
use std::path::{Path, PathBuf};

/// Streams that are named in the error.
const SHOWN_MAX: usize = 10;

/// The store directory holds streams of a nats-server.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} holds {count} stream(s) of a nats-server: {names}. They are left untouched. \
     Choose another store_dir and bring them in with `nuthatch stream import --from-dir`, or start \
     the nats-server that owns them and copy them with `nats account backup` and \
     `nuthatch account restore`",
    directory.display()
)]
pub struct ForeignStore {
    /// Where.
    pub directory: PathBuf,
    /// How many.
    pub count: usize,
    /// Their names, as far as they are shown: `account/stream`.
    pub names: String,
}

/// Looks for a nats-server's streams: `<store_dir>/jetstream/<account>/streams/<stream>`.
///
/// # Errors
/// [`ForeignStore`] if there are any.
pub(super) fn check(store_dir: &Path) -> Result<(), ForeignStore> {
    let directory = store_dir.join("jetstream");
    let mut found = Vec::new();
    for account in children(&directory) {
        for stream in children(&account.join("streams")) {
            if stream.join("meta.inf").exists() || stream.join("msgs").exists() {
                found.push(format!("{}/{}", name(&account), name(&stream)));
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    let count = found.len();
    let mut names = found[..count.min(SHOWN_MAX)].join(", ");
    if count > SHOWN_MAX {
        names.push_str(", …");
    }
    Err(ForeignStore { directory, count, names })
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_streams() {
        let directory =
            std::env::temp_dir().join(format!("nuthatch-foreign-{}", std::process::id()));
        assert!(check(&directory).is_ok());
        let stream = directory.join("jetstream/$G/streams/ORDERS");
        fs::create_dir_all(stream.join("msgs")).unwrap();
        let error = check(&directory).unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!((error.count, error.names.as_str()), (1, "$G/ORDERS"));
    }
}
