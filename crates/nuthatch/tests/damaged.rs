//! Commands over a stream of which a message cannot be read: each ends with an error that says so, and
//! leaves nothing behind that passes for the whole.

mod support;

use serde_json::json;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use support::{Server, TempDir, create_stream, publish_ok};

/// The message that cannot be read, of so many.
const DAMAGED: u64 = 10;
const MESSAGES: u64 = 20;

fn body(n: u64) -> String {
    format!("order number {n:03} of them")
}

/// Flips a byte of the message in its sealed segment.
fn damage(store: &Path) {
    let entries = std::fs::read_dir(store.join("nuthatch/default")).expect("lists").flatten();
    let segments = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "seg"));
    for path in segments {
        let bytes = std::fs::read(&path).expect("reads");
        let text = body(DAMAGED);
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
        if let Some(at) = at {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
            file.write_all_at(b"#", at as u64).expect("writes");
            return;
        }
    }
    panic!("no segment holds the message");
}

fn run(server: &Server, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(["--no-context", "--timeout", "5s", "-s", &server.url]).args(args);
    command.output().expect("runs")
}

/// The command ends with an error, and says what is the matter.
fn says_damaged(server: &Server, args: &[&str]) {
    let output = run(server, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{args:?} succeeded: {told}{said}");
    assert!(said.contains("damaged"), "{args:?}: {told}{said}");
}

#[test]
fn commands_say_that_a_message_is_damaged() {
    let place = TempDir::new("damaged");
    let (store, other) = (place.path().join("data"), place.path().join("other"));
    let server = Server::start(&store, &[]);
    let mut client = server.connect();
    create_stream(&mut client, "S", &json!({}));
    for n in 1..=MESSAGES {
        assert_eq!(publish_ok(&mut client, "S.x", body(n).as_bytes()), n);
    }
    server.stop();
    damage(&store);
    let server = Server::start(&store, &[]);
    let path = |name: &str| place.path().join(name).display().to_string();
    let (one, all) = (path("one"), path("all"));
    says_damaged(&server, &["stream", "get", "S", &DAMAGED.to_string()]);
    says_damaged(&server, &["stream", "backup", "S", &one]);
    assert!(!Path::new(&one).join("backup.json").exists(), "it passes for a backup");
    says_damaged(&server, &["account", "backup", &all]);
    assert!(!Path::new(&all).join("S/backup.json").exists(), "it passes for a backup");
    let target = Server::start(&other, &[]);
    says_damaged(&target, &["stream", "import", "--from", &server.url, "S"]);
    target.stop();
    // What is whole is read, and a backup without the damaged message is one.
    assert!(run(&server, &["stream", "get", "S", "11"]).status.success());
    assert!(
        run(&server, &["stream", "rmm", "S", &DAMAGED.to_string(), "--force"]).status.success()
    );
    let kept = path("kept");
    let output = run(&server, &["stream", "backup", "S", &kept]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.stop();
}
