//! Which logs a directory holds.

use std::io;
use std::path::{Path, PathBuf};

/// Below a store directory, our logs are here.
const OUR_DIRECTORY: &str = "nuthatch";

/// A log's directory, and what was typed for it.
#[derive(Clone, Debug)]
pub struct LogPlace {
    /// The directory with its catalog.
    pub dir: PathBuf,
    /// The directory that was named.
    pub named: PathBuf,
}

/// The logs in a directory: itself, those of a store directory, or those of `DIR/nuthatch`.
///
/// # Errors
/// It cannot be read, or there is no log in it.
pub fn logs_under(dir: &Path) -> io::Result<Vec<LogPlace>> {
    let mut found = Vec::new();
    if is_log(dir)? {
        found.push(dir.to_owned());
    } else {
        for parent in [dir.to_owned(), dir.join(OUR_DIRECTORY)] {
            found.extend(logs_in(&parent)?);
        }
    }
    if found.is_empty() {
        let what = "there is no log: give the server's store directory (its -sd), or a directory \
                    with a catalog and segments";
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    found.sort();
    Ok(found.into_iter().map(|found| LogPlace { dir: found, named: dir.to_owned() }).collect())
}

fn logs_in(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut logs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && is_log(&path)? {
            logs.push(path);
        }
    }
    Ok(logs)
}

fn is_log(dir: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name == "catalog" || name.ends_with(".seg") {
            return Ok(true);
        }
    }
    Ok(false)
}
