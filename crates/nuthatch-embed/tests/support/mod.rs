//! Brokers on stores of their own.
#![allow(dead_code, reason = "not every test file uses every helper")]

use nuthatch_embed::client::Client;
use nuthatch_embed::client::js::{PubAck, api};
use nuthatch_embed::{Broker, Config};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for what must come.
pub const WAIT: Duration = Duration::from_secs(60);

/// A directory that goes with it.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new(name: &str) -> Self {
        let name = format!("nuthatch-embed-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn config(dir: &Dir, text: &str) -> Config {
    let text = format!("jetstream {{ store_dir: {:?} }}\n{text}", dir.path());
    Config::from_text(&text).expect("a configuration").without_listener()
}

#[track_caller]
pub fn open(dir: &Dir, text: &str) -> Broker {
    Broker::open(config(dir, text)).expect("open")
}

#[track_caller]
pub fn create(client: &mut Client, stream: &str) {
    let config = json!({"name": stream, "subjects": [format!("{stream}.>")]});
    api(client, &format!("STREAM.CREATE.{stream}"), &config, WAIT).expect("a stream");
}

#[track_caller]
pub fn publish(client: &mut Client, subject: &str, body: &[u8]) -> PubAck {
    let ack = client.request(subject, b"", body, WAIT).expect("an answer");
    PubAck::parse(&ack.payload, subject.split('.').next().unwrap_or_default())
}
