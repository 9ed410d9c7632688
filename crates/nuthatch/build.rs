//! Tells the binary which commit it was built from: `NUTHATCH_COMMIT` when the packager says so,
//! else git's word, else what `git archive` wrote into `commit.txt`, else `unknown`. Nothing is
//! asked of the network, and nothing fails where there is no git.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=NUTHATCH_COMMIT");
    println!("cargo::rerun-if-changed=commit.txt");
    println!("cargo::rerun-if-changed=build.rs");
    let said = std::env::var("NUTHATCH_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = said.or_else(from_git).or_else(from_archive).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=NUTHATCH_COMMIT={commit}");
}

/// Only this project's own repository counts, not one that a source archive was unpacked in.
fn from_git() -> Option<String> {
    if !Path::new("../../.git").exists() {
        return None;
    }
    // A debug build is not linked again for each commit; a release says exactly what it is.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn from_archive() -> Option<String> {
    let text = std::fs::read_to_string("commit.txt").ok()?;
    let commit = text.trim();
    // Outside an archive the placeholder is still there.
    (!commit.is_empty() && !commit.starts_with('$')).then(|| commit.to_owned())
}
