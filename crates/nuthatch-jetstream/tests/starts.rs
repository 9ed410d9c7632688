//! Starts that are refused: nobody loses a log by them, and nothing begins as an empty store.

mod support;

use nuthatch_server::logging::Logger;
use nuthatch_server::options::{LogStore, NamedLog, Options};
use nuthatch_server::server::Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{Peer, eventually, with_jetstream};
use tokio::runtime::Runtime;

/// A directory that goes with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("nuthatch-starts-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(store_dir: &Path, logs: &[(&str, &Path)]) -> Options {
    let mut options = Options::default();
    options.jetstream.enabled = true;
    options.jetstream.store_dir = store_dir.to_owned();
    let named = logs.iter().map(|(name, dir)| NamedLog {
        name: (*name).to_owned(),
        home: LogStore::Directory(Some(dir.to_path_buf())),
        sync: None,
        compression: None,
        tier: None,
        cache: None,
    });
    options.jetstream.logs = named.collect();
    options
}

/// Starts JetStream, and stops it if that went well.
fn start(options: Options) -> Result<(), String> {
    let runtime = Runtime::new().unwrap();
    let server = Server::new(options, Logger::silent());
    server.set_runtime(runtime.handle().clone());
    let starter: Arc<Server> = server.clone();
    let starting = runtime.spawn_blocking(move || nuthatch_jetstream::start(&starter));
    let started = runtime.block_on(starting).unwrap()?;
    started.jetstream.stop().unwrap();
    Ok(())
}

#[track_caller]
fn refused(options: &Options, why: &str) {
    let said = start(options.clone()).expect_err("a refusal");
    assert!(said.contains(why) && said.contains("disk mounted?"), "{said}");
}

#[test]
fn a_log_whose_directory_has_gone_does_not_begin_as_an_empty_one() {
    let dir = Dir::new("gone");
    let (store, fast) = (dir.of("store"), dir.of("fast"));
    let options = options(&store, &[("fast", &fast)]);
    start(options.clone()).unwrap();
    start(options.clone()).unwrap();
    // Not mounted: an empty directory, or none at all.
    let away = dir.of("away");
    std::fs::rename(&fast, &away).unwrap();
    refused(&options, "holds no log");
    assert!(!fast.exists(), "nothing was made in its place");
    std::fs::create_dir(&fast).unwrap();
    refused(&options, "holds no log");
    assert_eq!(std::fs::read_dir(&fast).unwrap().count(), 0);
    std::fs::remove_dir(&fast).unwrap();
    std::fs::rename(&away, &fast).unwrap();
    start(options.clone()).unwrap();
    // The default log of the store, likewise.
    let default = store.join("nuthatch/default");
    std::fs::rename(&default, &away).unwrap();
    refused(&options, "holds no log");
    std::fs::rename(&away, &default).unwrap();
    // The whole store, while one of its logs is there.
    std::fs::rename(&store, &away).unwrap();
    refused(&options, "the log in");
    assert!(!store.exists(), "nothing was made in its place");
    // Each refusal can be overruled.
    std::fs::create_dir_all(store.join("nuthatch")).unwrap();
    start(options.clone()).unwrap();
    std::fs::remove_dir_all(&fast).unwrap();
    refused(&options, "holds no log");
    let list = store.join("nuthatch/logs.list");
    let kept: String = std::fs::read_to_string(&list)
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with("fast "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&list, kept).unwrap();
    start(options).unwrap();
}

/// The list of a store's logs, with or without their identities.
fn list_of(store: &Path) -> String {
    std::fs::read_to_string(store.join("nuthatch/logs.list")).unwrap()
}

fn without_identities(list: &str) -> String {
    let lines = list.lines().filter(|line| !line.contains("/identity "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn another_log_in_the_place_of_the_right_one_is_refused() {
    let dir = Dir::new("other-log");
    let (store, fast) = (dir.of("store"), dir.of("fast"));
    let here = options(&store, &[("fast", &fast)]);
    start(here.clone()).unwrap();
    let list = list_of(&store);
    assert_eq!(list.matches("/identity ").count(), 2, "{list}");
    // The disk of another server is mounted there.
    let others = dir.of("others");
    start(options(&dir.of("other-store"), &[("fast", &others)])).unwrap();
    let away = dir.of("away");
    std::fs::rename(&fast, &away).unwrap();
    std::fs::rename(&others, &fast).unwrap();
    let catalog = std::fs::read(fast.join("catalog")).unwrap();
    refused(&here, "holds another log");
    assert_eq!(std::fs::read(fast.join("catalog")).unwrap(), catalog);
    assert_eq!(list_of(&store), list);
    std::fs::rename(&fast, &others).unwrap();
    std::fs::rename(&away, &fast).unwrap();
    start(here.clone()).unwrap();
    // A list of 0.1.0 tells no identities: the next good start completes it.
    let path = store.join("nuthatch/logs.list");
    std::fs::write(&path, without_identities(&list)).unwrap();
    start(here.clone()).unwrap();
    assert_eq!(list_of(&store), list);
    // A log that was replaced on purpose: its line is taken out.
    std::fs::rename(&fast, &away).unwrap();
    std::fs::rename(&others, &fast).unwrap();
    std::fs::write(&path, without_identities(&list)).unwrap();
    start(here.clone()).unwrap();
    let replaced = list_of(&store);
    assert!(replaced != list && replaced.matches("/identity ").count() == 2, "{replaced}");
    start(here).unwrap();
}

/// Logs in buckets are taken at the same time; they are shown in the order of the configuration.
#[test]
fn several_logs_in_buckets_are_taken_in_one_start() {
    let dir = Dir::new("buckets");
    let mut options = options(&dir.of("store"), &[]);
    for name in ["zulu", "mike", "alfa"] {
        let bucket = dir.of(name);
        std::fs::create_dir_all(&bucket).unwrap();
        options.jetstream.logs.push(NamedLog {
            name: name.to_owned(),
            home: LogStore::Bucket(format!("file://{}", bucket.display())),
            sync: None,
            compression: None,
            tier: None,
            cache: None,
        });
    }
    for _ in 0..3 {
        let server = with_jetstream(options.clone());
        let places: Vec<String> =
            server.server.logs.locations().iter().map(|place| place.name.clone()).collect();
        assert_eq!(places, ["default", "zulu", "mike", "alfa"]);
        let mut peer = server.client();
        assert!(peer.ask("$JS.API.INFO", "").contains("account_info"));
    }
}

fn publish(peer: &mut Peer, seq: u64) {
    let said = peer.ask("s.x", "x");
    assert!(said.contains(&format!("\"seq\":{seq}")), "{said}");
}

#[test]
fn a_start_that_is_refused_takes_no_bucket_from_its_owner() {
    let dir = Dir::new("bucket");
    let (bucket, broken) = (dir.of("bucket"), dir.of("broken"));
    std::fs::create_dir_all(&bucket).unwrap();
    let address = format!("file://{}", bucket.display());
    let mut healthy = Options::default();
    healthy.jetstream.store = Some(address.clone());
    let server = with_jetstream(healthy);
    let mut peer = server.client();
    let config = r#"{"name":"S","subjects":["s.>"]}"#;
    assert!(peer.ask("$JS.API.STREAM.CREATE.S", config).contains("did_create"));
    publish(&mut peer, 1);
    // Another server has the same bucket in its configuration by mistake, and a log that it cannot
    // open.
    start(options(&dir.of("other"), &[("broken", &broken)])).unwrap();
    std::fs::write(broken.join("catalog"), b"not a catalog").unwrap();
    let mut other = options(&dir.of("other"), &[("broken", &broken)]);
    other.jetstream.store = Some(address);
    let why = start(other).expect_err("a refusal");
    assert!(why.contains("log broken"), "{why}");
    for seq in 2..50 {
        publish(&mut peer, seq);
    }
    assert!(server.server.fatal.reason().is_none());
    eventually("the owner is still the owner", || {
        publish_again(&mut peer);
        true
    });
}

#[test]
fn a_list_that_cannot_be_written_takes_no_bucket_from_its_owner() {
    let dir = Dir::new("list");
    let bucket = dir.of("bucket");
    std::fs::create_dir_all(&bucket).unwrap();
    let address = format!("file://{}", bucket.display());
    let mut healthy = Options::default();
    healthy.jetstream.store = Some(address.clone());
    let server = with_jetstream(healthy);
    let mut peer = server.client();
    let config = r#"{"name":"S","subjects":["s.>"]}"#;
    assert!(peer.ask("$JS.API.STREAM.CREATE.S", config).contains("did_create"));
    publish(&mut peer, 1);
    let store = dir.of("other");
    std::fs::create_dir_all(store.join("nuthatch/logs.list.tmp")).unwrap();
    let mut other = options(&store, &[("fast", &dir.of("fast"))]);
    other.jetstream.store = Some(address);
    let why = start(other).expect_err("a refusal");
    assert!(why.contains("cannot write"), "{why}");
    publish(&mut peer, 2);
    assert!(server.server.fatal.reason().is_none());
}

fn publish_again(peer: &mut Peer) {
    let said = peer.ask("s.x", "x");
    assert!(said.contains("\"stream\":\"S\""), "{said}");
}

#[test]
fn a_store_that_is_a_file_is_said_in_the_words_of_nats_server() {
    let dir = Dir::new("file");
    std::fs::write(dir.of("store"), b"mine").unwrap();
    let why = start(options(&dir.of("store"), &[])).unwrap_err();
    assert!(why.starts_with("storage directory is not a directory"), "{why}");
    assert_eq!(std::fs::read(dir.of("store")).unwrap(), b"mine");
}
