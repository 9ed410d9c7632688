//! Encryption at rest under the real binary: a marked subject, payload, header and stream name are in no
//! file of a store, a bucket or the bucket behind a store; keys change; without the key the start is
//! refused with its name, and the commands say what they cannot read.

mod support;

use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Server, TempDir, create_stream, publish_ok, read_all};

/// In names, subjects and payloads.
const MARK: &str = "MARKEDSECRET";

const KEYS: [&str; 2] = ["mXy7/Kq+2vZ0pQe4rT8uW1sA3dF5gH6=", "aXy7/Kq+2vZ0pQe4rT8uW1sA3dF5gHQ="];

const MESSAGES: u64 = 60;

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(120);

fn files_below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), into),
            _ => into.push(entry.path()),
        }
    }
}

/// Files below directories with a mark or a key in them, by content or name.
fn marked(dirs: &[&Path]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    dirs.iter().for_each(|dir| files_below(dir, &mut files));
    assert!(!files.is_empty(), "there are files");
    let texts = [MARK, KEYS[0], KEYS[1]];
    files.retain(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        texts.iter().any(|text| has(text) || file.display().to_string().contains(text))
    });
    files
}

struct Place {
    store: TempDir,
    bucket: TempDir,
    config: TempDir,
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = |what: &str| TempDir::new(&format!("encrypted-{name}-{what}"));
        Self { store: dir("store"), bucket: dir("bucket"), config: dir("config") }
    }

    fn address(&self) -> String {
        format!("file://{}", self.bucket.path().display())
    }

    /// Where messages are stored; beside it lies what the server said.
    fn marked(&self) -> Vec<PathBuf> {
        marked(&[&self.store.path().join("nuthatch"), self.bucket.path()])
    }

    /// A server with these settings in its `jetstream`, and the keys in its environment.
    fn start(&self, settings: &str) -> Server {
        let file = self.config.path().join("server.conf");
        std::fs::write(&file, format!("jetstream {{ {settings} }}\n")).expect("writes");
        let flags = ["-c", file.to_str().expect("a path")];
        Server::start_with(self.store.path(), &flags, &self.env())
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        vec![("JS_ONE", KEYS[0].to_owned()), ("JS_TWO", KEYS[1].to_owned())]
    }

    /// What a start says that is refused.
    fn refused(&self, settings: &str) -> String {
        let file = self.config.path().join("refused.conf");
        std::fs::write(&file, format!("jetstream {{ {settings} }}\n")).expect("writes");
        // Should it start after all, it is ended.
        let mut command = Command::new("timeout");
        command.args([
            "60",
            env!("CARGO_BIN_EXE_nuthatch"),
            "serve",
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
        ]);
        command.arg("-sd").arg(self.store.path());
        let done = command.arg("-c").arg(&file).envs(self.env()).output().expect("runs");
        assert!(!done.status.success(), "it is refused");
        text(&done)
    }
}

fn text(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

fn nuthatch(args: &[&str], key: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(args).env_remove("NUTHATCH_KEY");
    if let Some(key) = key {
        command.env("NUTHATCH_KEY", key);
    }
    let done = command.output().expect("runs");
    (done.status.code(), text(&done))
}

fn body(n: u64) -> Vec<u8> {
    [MARK.as_bytes(), n.to_string().as_bytes(), &[b'.'; 900]].concat()
}

fn fill(server: &Server) {
    let mut client = server.connect();
    let name = format!("S_{MARK}");
    create_stream(&mut client, &name, &json!({ "subjects": [format!("{MARK}.>")] }));
    for n in 1..=MESSAGES {
        assert_eq!(publish_ok(&mut client, &format!("{MARK}.{n}"), &body(n)), n);
    }
}

fn check(server: &Server) {
    let found = read_all(&mut server.connect(), &format!("S_{MARK}"), 1);
    assert_eq!(found.len() as u64, MESSAGES);
    for (seq, message) in found {
        assert_eq!(message.payload, body(seq), "{seq}");
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{what} does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn nothing_is_in_the_clear_in_a_directory_a_bucket_or_behind_one() {
    for place in ["local", "bucket", "tier"] {
        let rig = Place::new(place);
        let more = match place {
            "bucket" => format!("store: '{}'", rig.address()),
            "tier" => format!("tier {{ store: '{}', after_age: '1ms' }}", rig.address()),
            _ => String::new(),
        };
        for (settings, restarted) in [("key: $JS_ONE", false), ("key: $JS_ONE, cipher: aes", true)]
        {
            let server = rig.start(&format!("{settings}, {more}"));
            if restarted {
                check(&server);
            } else {
                fill(&server);
                check(&server);
            }
            let log = server.log_text();
            assert!(!KEYS.iter().any(|key| log.contains(key)), "{log}");
            server.stop();
            assert_eq!(rig.marked(), Vec::<PathBuf>::new(), "{place}");
        }
        let why = rig.refused(&more);
        assert!(why.contains("are encrypted with key"), "{place}: {why}");
    }
}

/// Encryption is turned on, its key changed, and it is turned off, on a store that is there.
#[test]
fn a_store_is_encrypted_rekeyed_and_decrypted_in_place() {
    let rig = Place::new("rekeyed");
    let server = rig.start("");
    fill(&server);
    server.stop();
    assert!(!rig.marked().is_empty(), "the search finds what is there");
    let steps = ["key: $JS_ONE", "key: $JS_TWO, prev_key: $JS_ONE", "prev_key: $JS_TWO"];
    let after = [("key: $JS_ONE", true), ("key: $JS_TWO", true), ("", false)];
    for (settings, (alone, is_hidden)) in steps.into_iter().zip(after) {
        let server = rig.start(settings);
        check(&server);
        let dir = rig.store.path().display().to_string();
        let old = move || {
            let (_, said) = nuthatch(&["log", "inspect", &dir], None);
            let lines = said.lines().filter(|line| line.contains("bytes of frames"));
            lines.count()
        };
        // One line: all that there is is under one key, or in the clear, where nothing is said.
        eventually("the end of the old key", || old() == usize::from(is_hidden));
        check(&server);
        server.stop();
        assert_eq!(rig.marked().is_empty(), is_hidden, "{settings}");
        let server = rig.start(alone);
        check(&server);
        server.stop();
    }
}

#[test]
fn commands_take_the_key_or_say_that_they_need_it() {
    let rig = Place::new("commands");
    let server = rig.start("key: $JS_ONE");
    fill(&server);
    server.stop();
    let dir = rig.store.path().display().to_string();
    let (code, said) = nuthatch(&["doctor", &dir], None);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("encrypted with key") && !said.contains("damage"), "{said}");
    let before = rig.marked();
    let (code, said) = nuthatch(&["doctor", &dir, "--apply"], Some(KEYS[1]));
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(before, rig.marked());
    let (code, said) = nuthatch(&["doctor", &dir], Some(KEYS[0]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("S_{MARK}: {MESSAGES} messages")), "{said}");
    let (code, said) = nuthatch(&["log", "inspect", &dir], None);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("which was not given") && !said.contains("PROBLEM: frame"), "{said}");
    let file = rig.config.path().join("key");
    std::fs::write(&file, format!("{}\n", KEYS[0])).expect("writes");
    let file = file.display().to_string();
    for more in [&[][..], &["--records"], &["--json"]] {
        let args = [&["log", "inspect", &dir, "--key-file", &file], more].concat();
        let (code, said) = nuthatch(&args, None);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(MARK), "{said}");
    }
    let (code, said) = nuthatch(&["log", "report", &dir, "--key-file", &file], None);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("does not open"), "{said}");
}
