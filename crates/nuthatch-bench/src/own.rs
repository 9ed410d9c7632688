//! The Nuthatch that is measured.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::harness::BenchError;

/// Names the binary; `nuthatch bench` does when it starts this program.
const VARIABLE: &str = "NUTHATCH";

/// The binary that was named, else that of the variable `NUTHATCH`, else the one beside this program, else
/// the first in `PATH`; with an absolute path, because servers start in directories of their own.
///
/// # Errors
/// When there is none.
pub fn program(named: Option<&Path>) -> Result<PathBuf, BenchError> {
    let variable = || std::env::var_os(VARIABLE).map(PathBuf::from);
    let found = match named.map(Path::to_owned).or_else(variable) {
        Some(path) => path,
        None => installed().ok_or_else(|| {
            let text = format!(
                "there is no nuthatch beside this program or in PATH; build it with `cargo build \
                 --release`, or name it with --nuthatch or {VARIABLE}"
            );
            BenchError::Usage(text)
        })?,
    };
    std::path::absolute(&found).map_err(|source| BenchError::File {
        what: format!("cannot find {}", found.display()),
        source,
    })
}

fn installed() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    search(own.as_deref().and_then(Path::parent), &path)
}

fn search(beside: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let directories = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    directories.map(|directory| directory.join("nuthatch")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_beside_this_one_comes_first() {
        let base = std::env::temp_dir().join(format!("nuthatch-own-{}", std::process::id()));
        let [near, far] = ["near", "far"].map(|name| base.join(name));
        for directory in [&near, &far] {
            std::fs::create_dir_all(directory).expect("a directory");
            std::fs::write(directory.join("nuthatch"), "").expect("a file");
        }
        assert_eq!(search(Some(&near), far.as_os_str()), Some(near.join("nuthatch")));
        assert_eq!(search(Some(&base), far.as_os_str()), Some(far.join("nuthatch")));
        assert_eq!(search(Some(&base), OsStr::new("")), None);
        std::fs::remove_dir_all(&base).expect("the directory goes");
    }
}
