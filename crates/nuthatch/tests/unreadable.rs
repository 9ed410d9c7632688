//! Files and directories without permission and file systems that cannot be written to, under the real
//! binary: it says what, where and what to do, and nothing is changed or removed.
//!
//! Permissions bind nobody who is root: then the commands run as another user, if they can. What cannot
//! be tried on a machine is said and passed over.

mod support;

use serde_json::json;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Server, TempDir, create_stream, publish_ok, read_all};

/// Somebody who owns nothing.
const NOBODY: u32 = 65534;

/// Seconds after which a server that should have refused is ended.
const TIMEOUT_S: &str = "60";

fn is_root(place: &Path) -> bool {
    std::fs::metadata(place).expect("metadata").uid() == 0
}

/// A store with a stream of ten messages, belonging to whoever the commands run as.
struct UnreadableStore {
    dir: TempDir,
    prefix: Vec<&'static str>,
}

impl UnreadableStore {
    /// `None` where nobody is bound by permissions.
    fn new(name: &str) -> Option<Self> {
        let dir = TempDir::new(name);
        let server = Server::start(&dir.path().join("data"), &[]);
        let mut client = server.connect();
        create_stream(&mut client, "ORDERS", &json!({}));
        for n in 1..=10 {
            publish_ok(&mut client, "ORDERS.new", format!("order number {n}").as_bytes());
        }
        server.stop();
        let mut place = Self { dir, prefix: Vec::new() };
        if is_root(place.dir.path()) {
            place.prefix = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            own(place.dir.path());
            let works = Command::new(place.prefix[0])
                .args(&place.prefix[1..])
                .args([env!("CARGO_BIN_EXE_nuthatch"), "--version"])
                .output()
                .is_ok_and(|out| out.status.success());
            if !works {
                eprintln!("not tried: the binary cannot be run as another user here");
                return None;
            }
        }
        Some(place)
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_dir(&self) -> PathBuf {
        self.store().join("nuthatch/default")
    }

    fn segment(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.log_dir()).expect("lists").flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| path.extension().is_some_and(|end| end == "seg")).expect("a segment")
    }

    fn nuthatch(&self, args: &[&str]) -> Output {
        let mut words = vec!["timeout", TIMEOUT_S];
        words.extend(&self.prefix);
        words.push(env!("CARGO_BIN_EXE_nuthatch"));
        words.extend(args);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.dir.path()).output().expect("runs")
    }

    /// A start that must fail; what it says.
    fn refused(&self) -> String {
        let args = ["serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", "data"];
        let out = self.nuthatch(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{text}");
        let line = text.lines().find(|line| line.contains("[FTL]"));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    fn doctor(&self, args: &[&str], code: i32) -> String {
        let out = self.nuthatch(&[&["doctor", "data"], args].concat());
        let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
        text += &String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{text}");
        text
    }

    /// Names and sizes in the log's directory.
    fn listing(&self) -> Vec<(PathBuf, u64)> {
        let entries = std::fs::read_dir(self.log_dir()).expect("lists").flatten();
        let sized = entries.map(|entry| (entry.path(), entry.metadata().expect("metadata").len()));
        let mut files: Vec<_> = sized.filter(|(path, _)| path.is_file()).collect();
        files.sort();
        files
    }

    /// Everything is there once it can be read again.
    fn check(self) {
        if is_root(Path::new("/proc/self")) {
            give(self.dir.path(), 0);
        }
        let server = Server::start(&self.store(), &[]);
        let read = read_all(&mut server.connect(), "ORDERS", 1);
        assert_eq!(read.len(), 10);
        for (seq, message) in read {
            assert_eq!(message.payload, format!("order number {seq}").into_bytes());
        }
        server.stop();
    }
}

fn own(dir: &Path) {
    give(dir, NOBODY);
}

/// Gives a directory with all that is in it to a user.
fn give(dir: &Path, user: u32) {
    chown(dir, Some(user), Some(user)).expect("chown");
    for entry in std::fs::read_dir(dir).expect("lists").flatten() {
        let path = entry.path();
        if path.is_dir() {
            give(&path, user)
        } else {
            chown(&path, Some(user), Some(user)).expect("chown")
        }
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn files_without_permission_are_named_and_left_alone() {
    let Some(place) = UnreadableStore::new("unreadable-files") else { return };
    let before = place.listing();
    for (path, mode) in [(place.segment(), 0o600), (place.log_dir().join("catalog"), 0o600)] {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        allow(&path, 0);
        let text = place.refused();
        says(&text, &[&name, "Permission denied", "Nothing was changed", "chown", "data"]);
        for args in [&[][..], &["--apply"]] {
            says(&place.doctor(args, 1), &["unreadable", &name, "Permission denied"]);
        }
        allow(&path, mode);
        assert_eq!(place.listing(), before, "{name}");
    }
    place.check();
}

#[test]
fn a_directory_without_permission_is_named_and_left_alone() {
    let Some(place) = UnreadableStore::new("unreadable-dir") else { return };
    let before = place.listing();
    allow(&place.log_dir(), 0);
    says(&place.refused(), &["nuthatch/default", "Permission denied"]);
    says(&place.doctor(&["--apply"], 2), &["nuthatch/default", "Permission denied"]);
    allow(&place.log_dir(), 0o755);
    assert_eq!(place.listing(), before);
    place.check();
}

/// The doctor may look where it may not write, and says what to do when it is to mend.
#[test]
fn a_directory_that_cannot_be_written_to_is_looked_at_and_not_mended() {
    let Some(place) = UnreadableStore::new("unwritable-dir") else { return };
    let segment = place.segment();
    let bytes = std::fs::read(&segment).expect("reads");
    let at = bytes.windows(14).position(|window| window == b"order number 5").expect("there");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("opens");
    file.write_all_at(b"#", at as u64).expect("writes");
    let before = place.listing();
    allow(&place.log_dir(), 0o555);
    says(&place.doctor(&[], 1), &["frame-flipped"]);
    says(
        &place.doctor(&["--apply"], 1),
        &["mending failed", "Permission denied", "as the user of"],
    );
    allow(&place.log_dir(), 0o755);
    assert_eq!(place.listing(), before);
    says(&place.doctor(&["--apply"], 0), &["set back; nothing is lost"]);
    place.check();
}

/// As root a directory can be mounted for reading only, for one command.
#[test]
fn a_read_only_file_system_is_named_and_left_alone() {
    let Some(place) = UnreadableStore::new("read-only") else { return };
    let script = "mount --bind data data && mount -o remount,ro,bind data && ! touch data/x";
    let mounted = |command: &str| {
        let script = format!("{script} && {command}");
        let args = ["-m", "sh", "-c", &script];
        Command::new("unshare").args(args).current_dir(place.dir.path()).output()
    };
    if !mounted("true").is_ok_and(|out| out.status.success()) {
        eprintln!("not tried: nothing can be mounted here");
        return;
    }
    let before = place.listing();
    let binary = env!("CARGO_BIN_EXE_nuthatch");
    let serve = format!("timeout {TIMEOUT_S} {binary} serve -a 127.0.0.1 -p -1 -js -sd data");
    let out = mounted(&serve).expect("runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{text}");
    says(&text, &["Read-only file system", "data", "Nothing was changed", "Mount"]);
    let out = mounted(&format!("{binary} doctor data")).expect("runs");
    says(&String::from_utf8_lossy(&out.stdout), &["healthy"]);
    assert_eq!(place.listing(), before);
    place.check();
}
