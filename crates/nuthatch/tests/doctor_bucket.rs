//! `nuthatch doctor --store` on logs of the real server in a bucket: damage is done to objects, found,
//! explained and mended, what was replaced is kept, and no owner that slept goes on afterwards. In a
//! shared directory, and over HTTP in an S3 API of this process.

#[path = "../../nuthatch-object/tests/common/s3.rs"]
mod store;
mod support;

use nuthatch_object::{Bucket, BucketOptions, open_url};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use store::{S3, SECRET};
use support::{Server, TempDir, create_stream, publish_ok, read_all, stream_state};

/// Messages published in each life of the server.
const LIFE: u64 = 30;

/// Exit code of a server that another has replaced.
const REPLACED: i32 = 3;

fn body(n: u64) -> String {
    format!("order number {n}, to be delivered")
}

/// A bucket, the machine whose server has its log there, and a way in for the damage.
struct BucketRig {
    machine: TempDir,
    address: String,
    env: Vec<(&'static str, String)>,
    bucket: Arc<Bucket>,
    _home: (Option<TempDir>, Option<S3>),
}

impl BucketRig {
    fn in_a_directory(name: &str) -> Self {
        let home = TempDir::new(&format!("{name}-bucket"));
        let address = format!("file://{}", home.path().display());
        let bucket = open_url(&address, "default", BucketOptions::default()).expect("opens");
        let machine = TempDir::new(&format!("{name}-machine"));
        let (env, bucket) = (Vec::new(), Arc::new(bucket));
        Self { machine, address, env, bucket, _home: (Some(home), None) }
    }

    fn in_s3(name: &str) -> Self {
        let s3 = S3::start(name);
        let bucket = store::bucket(s3.address, name, BucketOptions::default());
        let env = store::settings(s3.address, SECRET).into();
        let machine = TempDir::new(&format!("{name}-machine"));
        let address = format!("s3://{}/{name}", store::BUCKET);
        Self { machine, address, env, bucket, _home: (None, Some(s3)) }
    }

    fn start(&self) -> Server {
        Server::start_with(self.machine.path(), &["--store", &self.address], &self.env)
    }

    /// Publishes the messages of one life and stops the server, cleanly or not.
    fn live(&self, life: u64, clean: bool) {
        let server = self.start();
        let mut client = server.connect();
        if life == 0 {
            create_stream(&mut client, "ORDERS", &json!({}));
        }
        for n in life * LIFE + 1..=(life + 1) * LIFE {
            assert_eq!(publish_ok(&mut client, "ORDERS.new", body(n).as_bytes()), n);
        }
        if clean { server.stop() } else { server.kill() }
    }

    fn furnish(self, lives: u64) -> Self {
        (0..lives).for_each(|life| self.live(life, true));
        self
    }

    fn nuthatch(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
        command.args(args).envs(self.env.iter().map(|(key, value)| (*key, value.as_str())));
        command.output().expect("runs")
    }

    fn doctor(&self, args: &[&str]) -> (Option<i32>, Value) {
        let mut all = vec!["doctor", "--json", "--store", &self.address];
        all.extend(args);
        let out = self.nuthatch(&all);
        let value: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&out.stderr)));
        (out.status.code(), value["logs"][0].clone())
    }

    fn keys(&self, under: &str) -> Vec<String> {
        self.bucket.list(under).expect("lists").into_iter().map(|one| one.key).collect()
    }

    fn put(&self, key: &str, bytes: Vec<u8>) {
        self.bucket.put(key, bytes.into()).expect("puts");
    }

    fn get(&self, key: &str) -> Vec<u8> {
        self.bucket.get(key).expect("is there").to_vec()
    }

    fn remove(&self, keys: &[String]) {
        self.bucket.delete_all(keys.to_vec()).expect("removes");
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.get(key);
        change(&mut bytes);
        self.put(key, bytes);
    }

    /// Changes one byte of a message.
    fn flip(&self, n: u64) {
        let (key, at) = self.find(&body(n));
        self.change(&key, |bytes| bytes[at] = b'#');
    }

    /// The object with a text in it, and where.
    fn find(&self, text: &str) -> (String, usize) {
        for key in self.keys("data") {
            let bytes = self.get(&key);
            let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = at {
                return (key, at);
            }
        }
        panic!("no object holds {text:?}");
    }

    /// Everything in the bucket.
    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let dirs = ["data", "catalog", "fence", "left", "doctor"];
        let keys = dirs.iter().flat_map(|dir| self.keys(dir));
        keys.map(|key| (key.clone(), self.get(&key))).collect()
    }

    /// Starts a server and compares what it has with what was published.
    fn check(&self, messages: u64, missing: &[u64]) {
        let server = self.start();
        let mut client = server.connect();
        let state = stream_state(&mut client, "ORDERS");
        assert_eq!(state["messages"], json!(messages - missing.len() as u64), "{state}");
        let read = read_all(&mut client, "ORDERS", 1);
        let expected: Vec<u64> = (1..=messages).filter(|n| !missing.contains(n)).collect();
        assert_eq!(read.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), expected);
        for (seq, message) in read {
            assert_eq!(message.payload, body(seq).into_bytes());
        }
        server.stop();
    }
}

fn kinds(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
    findings.map(|finding| finding["kind"].as_str().expect("kind").to_owned()).collect()
}

fn has(report: &Value, kind: &str) -> bool {
    kinds(report).iter().any(|found| found == kind)
}

/// The newest key below a directory.
fn newest(place: &BucketRig, under: &str) -> String {
    place.keys(under).pop().expect("there is one")
}

/// Keys below `data/` with a part in their name.
fn data_keys(place: &BucketRig, part: &str) -> Vec<String> {
    let mut keys = place.keys("data");
    keys.retain(|key| key.contains(part));
    keys
}

/// The object with which the first segment begins, or ends.
fn first_segment(place: &BucketRig) -> Vec<String> {
    let keys = data_keys(place, ".seg/");
    let file = keys[0].rsplit_once('/').expect("a directory").0.to_owned() + "/";
    keys.into_iter().filter(|key| key.starts_with(&file)).collect()
}

type Harm<'a> = (&'a str, &'a dyn Fn(&BucketRig), &'a str);

/// Damage of every kind that loses nothing, one after the other on one log.
const HARMS: [Harm<'static>; 9] = [
    ("a changed byte", &|place| place.flip(LIFE + 7), "frame-flipped"),
    (
        "first block",
        &|place| place.change(&first_segment(place)[0], |b| b[20] ^= 9),
        "segment-header",
    ),
    (
        "footer",
        &|place| {
            let last = first_segment(place).pop().expect("objects");
            place.change(&last, |bytes| *bytes.last_mut().expect("bytes") ^= 1);
        },
        "footer",
    ),
    (
        "checkpoint",
        &|place| {
            let key = data_keys(place, "checkpoint-").pop().expect("a checkpoint");
            place.change(&key, |bytes| bytes[50] ^= 1);
        },
        "checkpoint",
    ),
    (
        "newest catalog",
        &|place| place.change(&newest(place, "catalog"), |bytes| bytes[60] ^= 1),
        "catalog-damaged",
    ),
    ("all catalogs", &|place| place.remove(&place.keys("catalog")), "catalog-missing"),
    ("a fence", &|place| place.remove(&place.keys("fence")[..1]), "fence-missing"),
    ("the newest fence", &|place| place.remove(&[newest(place, "fence")]), "fence-missing"),
    (
        "stray segment",
        &|place| place.put("data/00ff-1.seg/0000000000000000.00000001", vec![7; 9000]),
        "segment-stray",
    ),
];

fn harms_are_mended(place: &BucketRig, harms: &[Harm<'_>], lives: u64) {
    for (what, harm, kind) in harms {
        harm(place);
        let before = place.content();
        let (code, found) = place.doctor(&[]);
        assert!(code == Some(1) && has(&found, kind), "{what}: {found:#}");
        assert_eq!(found["lost"], json!([]), "{what}: {found:#}");
        assert_eq!(place.content(), before, "{what}: looking changed something");
        let (code, mended) = place.doctor(&["--apply", "--take-over"]);
        assert_eq!(mended["applied"]["mended"], json!(true), "{what}: {mended:#}");
        assert_eq!(code, Some(0), "{what}");
    }
    place.check(lives * LIFE, &[]);
}

#[test]
fn every_kind_of_damage_is_mended_in_a_directory() {
    harms_are_mended(&BucketRig::in_a_directory("doctor-file").furnish(2), &HARMS, 2);
}

/// One of each sort: content, the catalog, the fence.
#[test]
fn damage_is_mended_in_s3() {
    let harms = [HARMS[0], HARMS[4], HARMS[7]];
    harms_are_mended(&BucketRig::in_s3("doctor-s3").furnish(2), &harms, 2);
}

/// A segment that a killed server left is completed by the next one, with a manifest that says of what
/// it consists. Without it the file is put together from the keys of its objects.
#[test]
fn a_damaged_manifest_is_made_anew() {
    let place = BucketRig::in_a_directory("doctor-manifest");
    place.live(0, true);
    place.live(1, false);
    place.live(2, true);
    let manifests = data_keys(&place, "/manifest.");
    assert!(!manifests.is_empty(), "{:?}", place.keys("data"));
    for key in &manifests {
        place.change(key, |bytes| bytes[40] ^= 1);
    }
    let (_, found) = place.doctor(&[]);
    assert!(has(&found, "manifest"), "{found:#}");
    assert_eq!(found["lost"], json!([]), "{found:#}");
    let (code, mended) = place.doctor(&["--apply"]);
    assert_eq!((code, &mended["applied"]["mended"]), (Some(0), &json!(true)), "{mended:#}");
    place.check(3 * LIFE, &[]);
}

#[test]
fn what_a_lost_object_held_is_named_and_everything_else_stays() {
    let place = BucketRig::in_s3("doctor-lost").furnish(2);
    let (key, _) = place.find(&body(11));
    place.remove(&[key]);
    let (code, found) = place.doctor(&[]);
    assert_eq!(code, Some(1), "{found:#}");
    assert!(has(&found, "frame-lost") && has(&found, "object-missing"), "{found:#}");
    let lost = &found["lost"][0];
    assert_eq!((&lost["first"], &lost["last"]), (&json!(11), &json!(11)), "{found:#}");
    let (code, mended) = place.doctor(&["--apply"]);
    assert_eq!((code, &mended["applied"]["mended"]), (Some(0), &json!(true)), "{mended:#}");
    place.check(2 * LIFE, &[11]);
    place.live(2, true);
}

/// Objects that count for nothing are told and left alone.
#[test]
fn orphans_are_listed_and_left_alone() {
    let place = BucketRig::in_a_directory("doctor-orphans").furnish(1);
    let (part, _) = place.find(&body(3));
    let (older, _) = part.rsplit_once('.').expect("an epoch");
    place.put(&format!("{older}.00000000"), b"of an owner that was replaced".to_vec());
    place.put("data/notes/read.me", b"hello".to_vec());
    place.put("selftest/00", b"first attempt".to_vec());
    let (code, found) = place.doctor(&["--apply"]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(kinds(&found), ["leftover", "unknown-file", "leftover"], "{found:#}");
    assert!(found["applied"].is_null(), "{found:#}");
    assert_eq!(place.get("selftest/00"), b"first attempt");
}

/// What was replaced is kept, and can be put back as the manifest says.
#[test]
fn what_is_replaced_can_be_put_back() {
    let place = BucketRig::in_a_directory("doctor-back").furnish(2);
    place.flip(7);
    place.change(&newest(&place, "catalog"), |bytes| bytes[60] ^= 1);
    let before = place.content();
    let (_, applied) = place.doctor(&["--apply"]);
    assert_eq!(applied["applied"]["mended"], json!(true), "{applied:#}");
    let kept_in = applied["applied"]["kept_in"].as_str().expect("a place");
    let kept_in = &kept_in[kept_in.find("doctor/").expect("a directory")..];
    let manifest = String::from_utf8(place.get(&format!("{kept_in}/manifest"))).expect("text");
    let lines = manifest.lines().filter_map(|line| line.split_once('\t'));
    let (written, kept): (Vec<_>, Vec<_>) = lines.partition(|(what, _)| *what == "written");
    assert!(!written.is_empty() && !kept.is_empty(), "{manifest}");
    place.remove(&written.iter().map(|(_, key)| (*key).to_owned()).collect::<Vec<_>>());
    for (what, key) in kept {
        assert_eq!(what, "kept");
        place.put(key, place.get(&format!("{kept_in}/{key}")));
    }
    let after = place.content();
    for (key, bytes) in before {
        assert_eq!(after.get(&key), Some(&bytes), "{key}");
    }
    let (_, found) = place.doctor(&[]);
    assert!(has(&found, "frame-flipped") && has(&found, "catalog-damaged"), "{found:#}");
}

/// A server that does not start because of damage says what explains it, and that it left.
#[test]
fn a_server_refuses_damage_and_names_the_doctor() {
    let place = BucketRig::in_a_directory("doctor-refused").furnish(2);
    let (key, _) = place.find(&body(LIFE + 1));
    place.remove(&[key]);
    let refused = |place: &BucketRig| {
        let dir = place.machine.path().display().to_string();
        let args = ["serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", &dir, "--store"];
        let out = place.nuthatch(&[&args[..], &[&place.address]].concat());
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    // Whatever the damage is found in: the messages, or the catalog itself.
    let advice = format!("run: nuthatch doctor --store {}", place.address);
    place.change(&newest(&place, "catalog"), |bytes| bytes[60] ^= 1);
    let text = refused(&place);
    assert!(text.contains(&advice) && text.contains("is damaged"), "{text}");
    let (code, mended) = place.doctor(&["--apply"]);
    assert_eq!(code, Some(0), "{mended:#}");
    place.check(2 * LIFE, &[LIFE + 1]);
}

#[test]
fn an_owner_that_sleeps_is_not_mended_over_unless_told_and_never_goes_on() {
    let place = BucketRig::in_a_directory("doctor-sleeper");
    let sleeper = place.start();
    let mut client = sleeper.connect();
    create_stream(&mut client, "ORDERS", &json!({}));
    for n in 1..=LIFE {
        assert_eq!(publish_ok(&mut client, "ORDERS.new", body(n).as_bytes()), n);
    }
    sleeper.signal("-STOP");
    place.flip(5);
    let before = place.content();
    let (code, refused) = place.doctor(&["--apply"]);
    assert_eq!(code, Some(1), "{refused:#}");
    let why = refused["refused"].as_str().expect("a reason");
    assert!(why.contains("did not say that it left") && why.contains("--take-over"), "{why}");
    assert_eq!(place.content(), before);
    let (code, mended) = place.doctor(&["--apply", "--take-over"]);
    assert_eq!(code, Some(0), "{mended:#}");
    let after = place.content();
    sleeper.signal("-CONT");
    let answer = client.request("ORDERS.new", b"", b"of the sleeper", Duration::from_secs(20));
    if let Ok(message) = answer {
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        assert!(text.contains("\"error\""), "acknowledged: {text}");
    }
    let (code, log) = sleeper.wait_for_end();
    assert_eq!(code, Some(REPLACED), "{log}");
    assert!(log.contains("nuthatch doctor"), "it names who took over: {log}");
    for (key, bytes) in &after {
        assert_eq!(&place.get(key), bytes, "{key}");
    }
    place.check(LIFE, &[]);
}
