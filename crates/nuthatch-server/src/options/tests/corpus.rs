//! nats-server's own configuration files, where its Go module is at hand: their syntax is ours.

use std::path::{Path, PathBuf};

use nuthatch_protocol::config::parse;

use super::super::{FileLoader, MAX_CONFIG_FILE_BYTES};

const MODULE: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

/// Files that nats-server rejects too, or that include a file which its tests make.
const REJECTED: &[&str] = &["reload.conf", "invalid.conf"];

fn module() -> Option<PathBuf> {
    let cache = std::env::var_os("GOMODCACHE").map(PathBuf::from);
    let path = std::env::var_os("GOPATH").map(|p| PathBuf::from(p).join("pkg/mod"));
    let home = std::env::var_os("HOME").map(|p| PathBuf::from(p).join("go/pkg/mod"));
    let candidates = [cache, path, home].into_iter().flatten();
    candidates.map(|dir| dir.join(MODULE)).find(|dir| dir.is_dir())
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|e| e == "conf") {
            found.push(path);
        }
    }
}

#[test]
fn files_of_the_incumbent_parse() {
    let Some(module) = module() else {
        eprintln!("no {MODULE} on this machine: its files were not tried");
        return;
    };
    let mut files = Vec::new();
    for dir in ["server/configs", "test/configs", "conf"] {
        collect(&module.join(dir), &mut files);
    }
    assert!(files.len() > 80, "{} files", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!((text.len() as u64) < MAX_CONFIG_FILE_BYTES);
        let name = file.to_string_lossy();
        let parsed = parse(&name, &text, &mut FileLoader);
        let rejected = REJECTED.iter().any(|r| file.ends_with(r));
        assert_eq!(parsed.is_err(), rejected, "{name}: {parsed:?}");
    }
}
