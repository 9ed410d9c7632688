//! A full disk: publishes are refused with a plain reason; reads, acks and deletes go on; writing
//! resumes when space returns, without a restart.
//!
//! Uses a small tmpfs, so it needs the right to mount (root, or an unprivileged user namespace).
//! Without it the test fails and says so, unless `NUTHATCH_SKIP_MOUNT_TESTS` is set.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{
    Server, TempDir, api, api_ok, create_stream, fetch, publish, publish_ok, reply_of, stream_state,
};

const TMPFS: &str = "size=96m";
static PAYLOAD: [u8; 32 * 1024] = [0x5a; 32 * 1024];
/// More than the disk holds.
const TRIES: usize = 10_000;

struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("mount point");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", TMPFS, "tmpfs"])
            .arg(at)
            .status()
            .expect("run mount");
        status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_refuses_publishes_and_recovers() {
    let dir = TempDir::new("full");
    let Some(disk) = Mounted::new(&dir.path().join("disk")) else {
        assert!(
            std::env::var_os("NUTHATCH_SKIP_MOUNT_TESTS").is_some(),
            "cannot mount a tmpfs; run as root or set NUTHATCH_SKIP_MOUNT_TESTS"
        );
        return;
    };
    let mut server = Server::start(&disk.0, &[]);
    let mut client = server.connect();
    create_stream(&mut client, "KEEP", &json!({}));
    create_stream(&mut client, "FILL", &json!({}));
    let consumer = json!({"stream_name": "KEEP", "config": {"durable_name": "C",
        "ack_policy": "explicit", "ack_wait": 60_000_000_000_u64}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.KEEP.C", &consumer);
    for n in 0..100 {
        publish_ok(&mut client, "KEEP.m", format!("keep-{n}").as_bytes());
    }

    let (stored, refusal) = fill(&mut client);
    let text = refusal["error"]["description"].as_str().unwrap_or_default().to_lowercase();
    assert!(stored > 100, "the disk took {stored} messages before it was full");
    assert!(text.contains("space") || text.contains("storage"), "a plain reason: {refusal}");
    assert!(refusal["error"]["err_code"].as_u64() >= Some(10_000), "{refusal}");

    reads_acks_and_deletes_go_on(&mut client, stored);

    api_ok(&mut client, "STREAM.PURGE.FILL", &Value::Null);
    resumes(&mut client);
    assert!(server.is_alive());
    let before = stream_state(&mut client, "KEEP");
    drop(client);
    server.stop();

    let server = Server::start(&disk.0, &[]);
    let mut client = server.connect();
    let after = stream_state(&mut client, "KEEP");
    for field in ["messages", "first_seq", "last_seq", "bytes"] {
        assert_eq!(before[field], after[field], "{field}");
    }
}

/// Publishes until the first refusal.
fn fill(client: &mut nuthatch_client::Client) -> (u64, Value) {
    for stored in 0..TRIES {
        let ack = publish(client, "FILL.m", &PAYLOAD);
        if ack.get("error").is_some() {
            return (stored as u64, ack);
        }
    }
    panic!("{TRIES} messages and the disk is not full");
}

fn reads_acks_and_deletes_go_on(client: &mut nuthatch_client::Client, stored: u64) {
    let first = api_ok(client, "STREAM.MSG.GET.FILL", &json!({"seq": 1}));
    assert_eq!(first["message"]["seq"], 1);
    let last = api_ok(client, "STREAM.MSG.GET.FILL", &json!({"seq": stored}));
    assert_eq!(last["message"]["seq"], stored);
    let messages = fetch(client, "KEEP", "C", 10);
    assert_eq!(messages.len(), 10, "consumers go on");
    for message in &messages {
        client
            .request(reply_of(message), b"", b"+ACK", support::TIMEOUT)
            .expect("acks are confirmed");
    }
    let info = api_ok(client, "CONSUMER.INFO.KEEP.C", &Value::Null);
    assert_eq!(info["ack_floor"]["stream_seq"], 10, "{info}");
    api_ok(client, "STREAM.MSG.DELETE.KEEP", &json!({"seq": 50}));
    let gone = api(client, "STREAM.MSG.GET.KEEP", &json!({"seq": 50}));
    assert_eq!(gone["error"]["err_code"], 10037, "{gone}");
}

/// After the purge space comes back in the background; publishes succeed before long.
fn resumes(client: &mut nuthatch_client::Client) {
    let deadline = std::time::Instant::now() + support::TIMEOUT;
    loop {
        let ack = publish(client, "FILL.again", &PAYLOAD);
        if ack.get("error").is_none() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "writing does not resume: {ack}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for _ in 0..200 {
        publish_ok(client, "FILL.again", &PAYLOAD);
    }
}
