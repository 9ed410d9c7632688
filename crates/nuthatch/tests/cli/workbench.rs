//! `nuthatch bench` and the workbench.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::BINARY;

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("nuthatch-workbench-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The workbench is a program of its own, which may be absent.
#[test]
fn the_workbench_is_started_or_named() {
    let dir = Directory::new();
    let own = dir.0.join("nuthatch");
    fs::hard_link(BINARY, &own).or_else(|_| fs::copy(BINARY, &own).map(drop)).unwrap();
    let bench = |args: &[&str]| {
        let output = Command::new(&own)
            .args(args)
            .env("PATH", "/nowhere")
            .env_remove("NUTHATCH")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = bench(&["bench", "run", "x.toml"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("cargo build --release -p nuthatch-bench"), "{text}");
    let (code, text) = bench(&["bench", "rum"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("there is no command `bench rum`"), "{text}");
    // What is there gets the command line as it was, and is told what to measure.
    let script = dir.0.join("nuthatch-bench");
    fs::write(&script, "#!/bin/sh\necho \"$*, $NUTHATCH\"\nexit 7\n").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let (code, text) = bench(&["-s", "nats://a:1", "bench", "run", "x.toml", "--out", "y"]);
    assert_eq!(code, Some(7), "{text}");
    let own = own.canonicalize().unwrap();
    let expected = format!("-s nats://a:1 bench run x.toml --out y, {}\n", own.display());
    assert_eq!(text, expected);
}
