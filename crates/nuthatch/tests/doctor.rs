//! `nuthatch doctor` and `nuthatch log inspect` on the files of the real server: damage is done, found,
//! explained and mended, and what was not damaged is all there afterwards.
//!
//! The transcript in `docs/doctor.md` is what [`the_transcript_is_true`] sees; `UPDATE_DOCS=1` writes
//! it anew.

mod support;

use serde_json::{Value, json};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Server, TempDir, api_ok, create_stream, publish_ok, read_all, stream_state};

/// Messages published in each life of the server.
const LIFE: u64 = 100;

fn nuthatch(place: &Path, args: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_nuthatch");
    Command::new(binary).args(args).current_dir(place).output().expect("runs")
}

fn log_dir(store: &Path) -> PathBuf {
    store.join("nuthatch/default")
}

fn body(n: u64) -> String {
    format!("order number {n}, to be delivered")
}

/// Publishes the messages of one life and stops the server, cleanly or not.
fn live(store: &Path, life: u64, clean: bool) {
    let server = Server::start(store, &[]);
    let mut client = server.connect();
    if life == 0 {
        create_stream(&mut client, "ORDERS", &json!({}));
    }
    for n in life * LIFE + 1..=(life + 1) * LIFE {
        assert_eq!(publish_ok(&mut client, "ORDERS.new", body(n).as_bytes()), n);
    }
    if clean {
        server.stop();
    } else {
        wait_for_commit_marker(store);
        server.kill();
    }
}

/// Waits for the frame after the last one, which vouches for it.
fn wait_for_commit_marker(store: &Path) {
    let place = store.parent().expect("a parent");
    let name = store.file_name().expect("a name").to_string_lossy();
    let deadline = std::time::Instant::now() + support::TIMEOUT;
    loop {
        let frames = nuthatch(place, &["log", "inspect", &name, "--frames"]);
        let frames = String::from_utf8_lossy(&frames.stdout).into_owned();
        if frames.trim_end().ends_with("commit marker") {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no commit marker:\n{frames}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A store with a segment for each life.
fn furnished(name: &str, lives: u64) -> TempDir {
    let place = TempDir::new(name);
    (0..lives).for_each(|life| live(&place.path().join("data"), life, true));
    place
}

/// The segment with a text in it, and where.
fn find(store: &Path, text: &str) -> (PathBuf, u64) {
    for path in segments(store) {
        let bytes = std::fs::read(&path).expect("reads");
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
        if let Some(at) = at {
            return (path, at as u64);
        }
    }
    panic!("no segment holds {text:?}");
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(log_dir(store)).expect("lists").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    paths.sort();
    paths
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
    file.write_all_at(bytes, at).expect("writes");
}

/// Where the frames of the newest segment end.
fn end_of_frames(place: &Path) -> (PathBuf, u64) {
    let out = nuthatch(place, &["log", "inspect", "data", "--frames", "--json"]);
    let text = String::from_utf8(out.stdout).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("frames")).expect("JSON");
    let end = last["offset"].as_u64().expect("offset") + last["bytes"].as_u64().expect("bytes");
    let path = log_dir(&place.join("data")).join(last["file"].as_str().expect("file"));
    (path, end.next_multiple_of(4096))
}

fn report(place: &Path, args: &[&str]) -> Value {
    let all: Vec<&str> = ["doctor", "data", "--json"].iter().chain(args).copied().collect();
    let out = nuthatch(place, &all);
    let value: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    value["logs"][0].clone()
}

fn kinds(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings").iter();
    findings.map(|finding| finding["kind"].as_str().expect("kind").to_owned()).collect()
}

/// What a person does, as it is written in the manual.
struct Transcript {
    place: TempDir,
    text: String,
}

impl Transcript {
    fn run(&mut self, args: &[&str], code: i32) -> String {
        let out = nuthatch(self.place.path(), args);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(code), "{args:?}\n{stdout}{stderr}");
        let shown = stdout.trim_end();
        self.text += &format!("$ nuthatch {}\n{shown}\n", args.join(" "));
        if code != 0 {
            self.text += &format!("(exit code {code})\n");
        }
        stdout.into_owned()
    }

    fn say(&mut self, text: &str) {
        self.text += &format!("\n# {text}\n");
    }

    /// A start that must fail; shows the line that says why.
    fn refused_start(&mut self) {
        let args = ["serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", "data"];
        let out = nuthatch(self.place.path(), &args);
        assert_eq!(out.status.code(), Some(1));
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("[FTL]")).expect("a reason");
        let line = line.split_once("[FTL] ").expect("a level").1;
        self.text += &format!("$ nuthatch serve -js -sd data\n... [FTL] {line}\n(exit code 1)\n");
        assert!(line.contains("run: nuthatch doctor data"), "{line}");
    }
}

#[test]
fn the_transcript_is_true() {
    let mut t = Transcript { place: furnished("doctor", 3), text: String::new() };
    let place = t.place.path().to_owned();
    let store = place.join("data");
    t.say("A store with a stream ORDERS of 300 messages.");
    t.run(&["doctor", "data"], 0);

    t.say("One byte in a sealed segment changes: the medium has rotted a bit.");
    let (path, at) = find(&store, &body(42));
    overwrite(&path, at, b"O");
    t.run(&["doctor", "data"], 1);
    let done = t.run(&["doctor", "data", "--apply"], 0);
    assert!(done.contains("set back; nothing is lost"), "{done}");

    t.say("A segment file disappears, with messages 101 to 200.");
    let (path, _) = find(&store, &body(150));
    t.text += "$ rm data/nuthatch/default/";
    t.text += &path.file_name().expect("a name").to_string_lossy();
    t.text += "\n";
    std::fs::remove_file(path).expect("removes");
    t.refused_start();
    t.run(&["doctor", "data"], 1);
    let done = t.run(&["doctor", "data", "--apply"], 0);
    assert!(done.contains("lost: stream ORDERS: sequence 101 to 200 (100 messages)"), "{done}");

    t.say("The server runs on, takes 100 messages more, and is killed while it writes a frame.");
    live(&store, 3, false);
    let (path, end) = end_of_frames(&place);
    overwrite(&path, end, &[0xAB; 700]);
    t.run(&["doctor", "data"], 1);
    let done = t.run(&["doctor", "data", "--apply"], 0);
    assert!(done.contains("torn-tail") && !done.contains("lost:"), "{done}");
    t.run(&["doctor", "data"], 0);

    let server = Server::start(&store, &[]);
    let mut client = server.connect();
    let request = json!({"deleted_details": true});
    let state = api_ok(&mut client, "STREAM.INFO.ORDERS", &request)["state"].clone();
    assert_eq!((&state["messages"], &state["last_seq"]), (&json!(300), &json!(400)), "{state}");
    assert_eq!(state["deleted"], json!((101..=200).collect::<Vec<_>>()));
    let read = read_all(&mut client, "ORDERS", 1);
    let expected: Vec<u64> = (1..=100).chain(201..=400).collect();
    assert_eq!(read.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), expected);
    for (seq, message) in &read {
        assert_eq!(message.payload, body(*seq).into_bytes());
    }
    assert_eq!(publish_ok(&mut client, "ORDERS.new", b"next"), 401);
    check_docs(&t.text);
}

const BEGIN: &str =
    "<!-- not run: the test `the_transcript_is_true` writes it and checks it -->\n```console\n";
const END: &str = "```\n<!-- end of the transcript -->";

fn check_docs(transcript: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let doc = std::fs::read_to_string(&path).expect("docs/doctor.md");
    let start = doc.find(BEGIN).expect("the transcript begins") + BEGIN.len();
    let end = start + doc[start..].find(END).expect("the transcript ends");
    let transcript = transcript.trim_start();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let doc = format!("{}{transcript}{}", &doc[..start], &doc[end..]);
        return std::fs::write(&path, doc).expect("writes docs/doctor.md");
    }
    let (written, seen) = (plain(&doc[start..end]), plain(transcript));
    assert_eq!(written, seen, "run with UPDATE_DOCS=1 and look at the difference");
}

/// Lines without the numbers that differ from run to run: places in files, ids, times.
fn plain(text: &str) -> Vec<String> {
    let line = |line: &str| {
        if line.contains("lost:") || line.contains("messages") {
            return line.to_owned();
        }
        let mut out = String::new();
        for c in line.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            if c != '0' || !out.ends_with('0') {
                out.push(c);
            }
        }
        out.replace(|c: char| c.is_ascii_hexdigit() && !c.is_ascii_alphabetic(), "0")
    };
    text.lines().map(|l| line(&without_ids(l))).collect()
}

/// Log ids are random.
fn without_ids(line: &str) -> String {
    let words = line.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| {
            let id = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_id = id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit());
            if is_id { word.replace(id, "0") } else { word.to_owned() }
        })
        .collect()
}

#[test]
fn exit_codes_tell() {
    let place = furnished("doctor-codes", 1);
    let code = |args: &[&str]| nuthatch(place.path(), args).status.code();
    assert_eq!(code(&["doctor", "data"]), Some(0));
    assert_eq!(code(&["doctor", "nowhere"]), Some(2));
    assert_eq!(code(&["log", "inspect", "nowhere"]), Some(2));
    assert_eq!(code(&["log", "inspect", "data"]), Some(0));
    let server = Server::start(&place.path().join("data"), &[]);
    let out = nuthatch(place.path(), &["doctor", "data", "--apply"]);
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("a server is using it"), "{text}");
    let out = nuthatch(place.path(), &["log", "inspect", "data"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stdout).contains("in use by a server"));
    server.stop();
}

/// Everything in a directory, with lengths and times of change.
fn listing(dir: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("lists").flatten() {
        let meta = entry.metadata().expect("metadata");
        all.push((entry.path(), meta.len(), meta.modified().expect("a time")));
        if meta.is_dir() {
            all.extend(listing(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn looking_changes_nothing() {
    let place = furnished("doctor-reads", 2);
    let store = place.path().join("data");
    live(&store, 2, false);
    let (path, at) = find(&store, &body(7));
    overwrite(&path, at, b"#");
    let before = listing(&store);
    let inspected = nuthatch(place.path(), &["log", "inspect", "data", "--json"]);
    let value: Value = serde_json::from_slice(&inspected.stdout).expect("JSON");
    let segments = value["segments"].as_array().expect("segments");
    assert!(segments.len() >= 3, "{value:#}");
    let messages: u64 = segments.iter().filter_map(|s| s["messages"].as_u64()).sum();
    assert!(messages >= 200, "{value:#}");
    assert!(segments.iter().any(|s| s["problems"].as_array().is_some_and(|p| !p.is_empty())));
    for level in [&["--frames"][..], &["--records"], &["--segment", "1"]] {
        let args: Vec<&str> = ["log", "inspect", "data"].iter().chain(level).copied().collect();
        assert!(!nuthatch(place.path(), &args).stdout.is_empty());
    }
    assert_eq!(kinds(&report(place.path(), &[])), ["frame-flipped"]);
    assert_eq!(listing(&store), before);
}

/// Damage of every kind that a file can have, one after the other on one store: the server refuses or
/// goes on, never dies of it; the doctor mends; every message that was not in the damage stays.
#[test]
fn every_kind_of_damage_is_mended() {
    let place = furnished("doctor-kinds", 3);
    let store = place.path().join("data");
    let dir = log_dir(&store);
    let cases: [(&str, &dyn Fn(), &str); 8] = [
        (
            "catalog cut",
            &|| std::fs::write(dir.join("catalog"), b"NUTH").expect("writes"),
            "catalog-damaged",
        ),
        (
            "catalog gone",
            &|| std::fs::remove_file(dir.join("catalog")).expect("removes"),
            "catalog-missing",
        ),
        ("first block", &|| overwrite(&segments(&store)[0], 20, &[9; 16]), "segment-header"),
        (
            "foreign",
            &|| std::fs::write(dir.join("00ff-1.seg"), [7; 9000]).expect("writes"),
            "segment-stray",
        ),
        ("checkpoint", &|| overwrite(&newest_checkpoint(&dir), 50, &[0xEE; 8]), "checkpoint"),
        (
            "footer",
            &|| overwrite(&segments(&store)[0], last_byte(&segments(&store)[0]), b"!"),
            "footer",
        ),
        ("padding", &|| overwrite(&segments(&store)[0], 2 * 4096 - 1, b"!"), "padding"),
        ("renamed", &|| rename_first(&store, &dir), "segment-renamed"),
    ];
    for (what, harm, kind) in cases {
        harm();
        let found = report(place.path(), &[]);
        assert!(kinds(&found).contains(&kind.to_owned()), "{what}: {found:#}");
        assert_eq!(found["lost"], json!([]), "{what}: {found:#}");
        let mended = report(place.path(), &["--apply"]);
        assert_eq!(mended["applied"]["mended"], json!(true), "{what}: {mended:#}");
    }
    let server = Server::start(&store, &[]);
    let mut client = server.connect();
    assert_eq!(stream_state(&mut client, "ORDERS")["messages"], json!(3 * LIFE));
    for (seq, message) in read_all(&mut client, "ORDERS", 1) {
        assert_eq!(message.payload, body(seq).into_bytes());
    }
}

fn newest_checkpoint(dir: &Path) -> PathBuf {
    let entries = std::fs::read_dir(dir).expect("lists").flatten().map(|entry| entry.path());
    let is = |path: &PathBuf| path.to_string_lossy().contains("checkpoint-");
    entries.filter(is).max().expect("a checkpoint")
}

fn last_byte(path: &Path) -> u64 {
    std::fs::metadata(path).expect("metadata").len() - 1
}

fn rename_first(store: &Path, dir: &Path) {
    std::fs::rename(&segments(store)[0], dir.join("restored-from-tape.seg")).expect("renames");
}

/// What was replaced is kept, and can be put back as the manifest says.
#[test]
fn what_is_replaced_can_be_put_back() {
    let place = furnished("doctor-undo", 2);
    let store = place.path().join("data");
    let (path, at) = find(&store, &body(7));
    overwrite(&path, at, b"#");
    let damaged = std::fs::read(&path).expect("reads");
    let applied = report(place.path(), &["--apply"])["applied"].clone();
    let kept = PathBuf::from(applied["kept_in"].as_str().expect("a directory"));
    let kept = place.path().join(kept);
    let manifest = std::fs::read_to_string(kept.join("manifest")).expect("a manifest");
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        let [what, name, kept_as] = *line.split('\t').collect::<Vec<_>>() else { panic!("{line}") };
        let target = log_dir(&store).join(name);
        if what == "created" {
            std::fs::remove_file(target).expect("removes");
        } else {
            std::fs::copy(kept.join(kept_as), target).expect("copies");
        }
    }
    assert_eq!(std::fs::read(&path).expect("reads"), damaged);
    assert_eq!(kinds(&report(place.path(), &[])), ["frame-flipped"]);
}

/// Paths below a directory that others than its user may read or write.
fn open_to_others(dir: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let entries = std::fs::read_dir(dir).expect("lists").flatten().map(|entry| entry.path());
    let (mut open, mut inner): (Vec<PathBuf>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for path in entries {
        let meta = std::fs::metadata(&path).expect("is there");
        if meta.permissions().mode() & 0o077 != 0 {
            open.push(path.clone());
        }
        if meta.is_dir() {
            inner.push(path);
        }
    }
    open.extend(inner.iter().flat_map(|dir| open_to_others(dir)));
    open
}

/// What the doctor writes is as private as the store, whatever the umask of who runs it.
#[test]
fn nobody_else_reads_what_the_doctor_wrote() {
    let place = furnished("doctor-private", 2);
    let (store, text) = (place.path().join("data"), body(3));
    let (path, at) = find(&store, &text);
    overwrite(&path, at, b"XXXXXX");
    let command = format!("umask 0; exec {} doctor data --apply", env!("CARGO_BIN_EXE_nuthatch"));
    let out = Command::new("sh").args(["-c", &command]).current_dir(place.path()).output();
    assert_eq!(out.expect("runs").status.code(), Some(0));
    assert!(log_dir(&store).join("doctor").is_dir(), "nothing was kept");
    // Beside it lie the log and the ports of the server, which the test rig made.
    assert_eq!(open_to_others(&store.join("nuthatch")), Vec::<PathBuf>::new());
}

/// The manual has a section for every kind of finding, and none that does not exist.
#[test]
fn the_manual_knows_every_kind() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let doc = std::fs::read_to_string(path).expect("docs/doctor.md");
    let sections: Vec<&str> = doc.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let kinds: Vec<&str> = nuthatch_log::doctor::Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(sections, kinds);
}
