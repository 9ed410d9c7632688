//! The objects of a catalog in a real etcd (Debian's, `tests/etcd.sh`): what is created once, and what is said and survived
//! when etcd is away, full, set back, or wants other credentials.

mod server;
#[path = "../../nuthatch/tests/support/signal.rs"]
mod signal;

use bytes::Bytes;
use nuthatch_etcd::{
    ATTEMPT_MAX, Address, CALL_MAX, Creation, Credentials, Etcd, EtcdError, Object, Settings,
    VALUE_MAX,
};
use server::{Certificates, EtcdServer, certificates, token_keys};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a call may be late on a busy machine.
const LATE: Duration = Duration::from_secs(3);

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-etcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn object(key: &str, bytes: &str) -> Object {
    Object { key: key.to_owned(), bytes: Bytes::from(bytes.to_owned()) }
}

fn txn(number: usize) -> Object {
    object(&format!("txn/{number:020}"), &format!("transaction {number}"))
}

fn with(address: &str, settings: Settings) -> Etcd {
    Etcd::open(Address::parse(address).expect("an address"), settings).expect("a client")
}

fn client(server: &EtcdServer) -> Etcd {
    with(&format!("etcd://127.0.0.1:{}/p", server.port), Settings::default())
}

fn user(password: &str) -> Settings {
    let credentials = Credentials { user: "node".to_owned(), password: password.to_owned() };
    Settings { credentials: Some(credentials), ..Settings::default() }
}

/// Creates the objects up to this number, each behind the one before it.
fn create(etcd: &Etcd, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let before = number.checked_sub(1).map(txn);
        let made = etcd.create(&txn(number), before.as_ref());
        assert_eq!(made, Ok(Creation::Done), "{number}");
    }
}

#[test]
fn an_object_is_created_once_and_behind_the_one_before_it() {
    let dir = TempDir::new("once");
    let server = EtcdServer::start(&dir.at("e"));
    let etcd = client(&server);
    assert_eq!(etcd.get("found/n1"), Ok(None));
    let note = object("found/n1", "a disk");
    assert_eq!(etcd.create(&note, None), Ok(Creation::Done));
    assert_eq!(etcd.create(&note, None), Ok(Creation::Done), "an answer that was lost");
    assert_eq!(etcd.create(&object("found/n1", "another disk"), None), Ok(Creation::Taken));
    assert_eq!(etcd.get("found/n1"), Ok(Some(note.bytes)));
    create(&etcd, 0..100);
    let other = object(&txn(100).key, "of a faster one");
    assert_eq!(etcd.create(&other, Some(&txn(99))), Ok(Creation::Done));
    assert_eq!(etcd.create(&txn(100), Some(&txn(99))), Ok(Creation::Taken));
    // In pages, in their order, with what others have put between.
    server.put("p/txn/00000000000000000003x", "not ours");
    server.put("p/txn0", "not ours");
    let mut found = Vec::new();
    loop {
        let before = found.last().cloned().unwrap_or_else(|| txn(0));
        let next = txn(found.len() + 1).key;
        let page = etcd.read_on(&before, &next).expect("read").expect("not set back");
        let ours: Vec<_> = page.into_iter().zip(found.len() + 1..).collect();
        let ours = ours.into_iter().take_while(|(object, number)| object.key == txn(*number).key);
        let known = found.len();
        found.extend(ours.map(|(object, _)| object));
        if found.len() == known {
            break;
        }
    }
    let expected: Vec<_> = (1..100).map(txn).chain([other]).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_long_list_comes_in_pages_and_below_its_directory_only() {
    let dir = TempDir::new("list");
    let server = EtcdServer::start(&dir.at("e"));
    let etcd = client(&server);
    let name = |number: usize| format!("found/{number:05}");
    std::thread::scope(|threads| {
        for first in 0..8 {
            let etcd = &etcd;
            threads.spawn(move || {
                for number in (first..1100).step_by(8) {
                    let made = etcd.create(&object(&name(number), "x"), None);
                    assert_eq!(made, Ok(Creation::Done));
                }
            });
        }
    });
    for key in ["p/founder", "p/found", "p/found0", "q/found/x", "pfound/x"] {
        server.put(key, "not ours");
    }
    assert_eq!(etcd.list("found"), Ok((0..1100).map(name).collect()));
    assert_eq!(etcd.list("nothing"), Ok(vec![]));
}

#[test]
fn values_have_a_bound_below_that_of_etcd() {
    let dir = TempDir::new("large");
    let server = EtcdServer::start(&dir.at("e"));
    let etcd = client(&server);
    let large = |key: &str, len: usize| object(key, &"x".repeat(len));
    let (first, second) = (large("txn/1", VALUE_MAX), large("txn/2", VALUE_MAX));
    assert_eq!(etcd.create(&first, None), Ok(Creation::Done));
    assert_eq!(etcd.create(&second, Some(&first)), Ok(Creation::Done));
    assert_eq!(etcd.read_on(&first, "txn/2"), Ok(Some(vec![second])));
    let error = etcd.create(&large("txn/3", VALUE_MAX + 1), None).expect_err("too large");
    assert!(error.to_string().contains("p/txn/3 has 524289 bytes"), "{error}");
}

#[test]
fn etcd_that_is_away_is_told_in_time_and_found_again() {
    let dir = TempDir::new("away");
    let mut server = EtcdServer::start(&dir.at("e"));
    server.kill();
    let etcd = client(&server);
    let fails = |etcd: &Etcd| {
        let began = Instant::now();
        let error = etcd.get("txn/1").expect_err("it is away");
        assert!(began.elapsed() < CALL_MAX + LATE, "{:?}", began.elapsed());
        assert!(matches!(error, EtcdError::Away { .. }), "{error}");
        error.to_string()
    };
    let text = fails(&etcd);
    assert!(text.contains("etcd does not answer (get of p/txn/1; 127.0.0.1:"), "{text}");
    assert!(text.to_lowercase().contains("connection refused"), "{text}");
    server.restart();
    create(&etcd, 0..3);
    server.kill();
    fails(&etcd);
    server.restart();
    create(&etcd, 3..6);
    server.signal("-STOP");
    let text = fails(&etcd);
    assert!(text.contains("no answer in time"), "{text}");
    // Its fate is not known: it may be carried out when etcd wakes.
    assert!(etcd.create(&txn(6), Some(&txn(5))).is_err_and(|error| error.is_passing()));
    server.signal("-CONT");
    create(&etcd, 6..9);
}

#[test]
fn a_server_that_refuses_or_is_silent_is_left_for_the_next() {
    let dir = TempDir::new("endpoints");
    let server = EtcdServer::start(&dir.at("e"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let silent_at = silent.local_addr().expect("bound");
    let address = format!("etcd://{closed},{silent_at},127.0.0.1:{}/p", server.port);
    let etcd = with(&address, Settings::default());
    create(&etcd, 0..1);
    let began = Instant::now();
    create(&etcd, 1..20);
    assert!(began.elapsed() < ATTEMPT_MAX * 10, "the one that answers is asked first from then on");
}

#[test]
fn users_passwords_and_rights_are_told_apart() {
    let dir = TempDir::new("users");
    let mut server = EtcdServer::start(&dir.at("e"));
    let address = format!("etcd://127.0.0.1:{}/p", server.port);
    let known = with(&address, user("secret"));
    create(&known, 0..1);
    server.want_users();
    create(&known, 1..3);
    assert_eq!(client(&server).get("txn/1"), Err(EtcdError::NoUser));
    let wrong = with(&address, user("guess")).get("txn/1").expect_err("refused");
    assert_eq!(wrong, EtcdError::WrongPassword { user: "node".to_owned() });
    assert!(!wrong.to_string().contains("guess"));
    let elsewhere = with(&address.replace("/p", "/q"), user("secret"));
    let text = elsewhere.get("txn/1").expect_err("refused").to_string();
    assert!(text.contains("user \"node\"") && text.contains("readwrite q/"), "{text}");
    server.kill();
    server.restart();
    create(&known, 3..6);
}

#[test]
fn a_token_that_has_ended_is_renewed() {
    let dir = TempDir::new("tokens");
    let (public, private) = token_keys(&dir.at("keys"));
    let kind = format!(
        "--auth-token=jwt,pub-key={},priv-key={},sign-method=RS256,ttl=1s",
        public.display(),
        private.display()
    );
    let server = EtcdServer::start_with(&dir.at("e"), &[&kind], None);
    server.want_users();
    let etcd = with(&format!("etcd://127.0.0.1:{}/p", server.port), user("secret"));
    create(&etcd, 0..2);
    std::thread::sleep(Duration::from_secs(3));
    create(&etcd, 2..4);
}

fn tls(certificates: &Certificates, own: &Certificates) -> Settings {
    let read = |path: &PathBuf| std::fs::read(path).expect("read");
    Settings {
        ca: Some(read(&certificates.ca)),
        identity: Some((read(&own.cert), read(&own.key))),
        ..user("secret")
    }
}

#[test]
fn tls_needs_the_right_authority_and_certificate() {
    let dir = TempDir::new("tls");
    let mut server = EtcdServer::start(&dir.at("e"));
    server.want_users();
    server.kill();
    drop(server);
    let (ours, theirs) = (certificates(&dir.at("a"), "etcd"), certificates(&dir.at("b"), "etcd"));
    let server = EtcdServer::start_with(&dir.at("e"), &[], Some(&ours));
    let address = format!("etcds://127.0.0.1:{}/p", server.port);
    let etcd = with(&address, tls(&ours, &ours));
    create(&etcd, 0..3);
    let fails = |settings: Settings| {
        with(&address, settings).get("txn/1").expect_err("refused").to_string()
    };
    let text = fails(tls(&theirs, &ours));
    assert!(text.contains("UnknownIssuer"), "{text}");
    for settings in [tls(&ours, &theirs), Settings { identity: None, ..tls(&ours, &ours) }] {
        let text = fails(settings);
        assert!(text.contains("etcd does not answer"), "{text}");
    }
    let plain = with(&address.replace("etcds", "etcd"), user("secret"));
    let text = plain.get("txn/1").expect_err("it speaks TLS").to_string();
    assert!(text.contains("etcd does not answer"), "{text}");
}

#[test]
fn etcd_without_space_says_so_and_is_read() {
    let dir = TempDir::new("full");
    let server = EtcdServer::start_with(&dir.at("e"), &["--quota-backend-bytes=2097152"], None);
    let etcd = client(&server);
    create(&etcd, 0..1);
    let large = |number: usize| object(&format!("large/{number}"), &"x".repeat(VALUE_MAX));
    // etcd counts its space when it writes, which is every 100 ms: until then it takes more than it has room for.
    let error = (0..2000).find_map(|number| etcd.create(&large(number), None).err());
    assert_eq!(error, Some(EtcdError::NoSpace));
    assert_eq!(etcd.create(&txn(1), Some(&txn(0))), Err(EtcdError::NoSpace));
    assert_eq!(etcd.get(&txn(0).key), Ok(Some(txn(0).bytes)));
}

#[test]
fn a_compaction_takes_nothing_away() {
    let dir = TempDir::new("compacted");
    let server = EtcdServer::start(&dir.at("e"));
    let etcd = client(&server);
    create(&etcd, 0..10);
    server.post("kv/compaction", r#"{"revision": "9", "physical": true}"#);
    let found = etcd.read_on(&txn(0), &txn(1).key);
    assert_eq!(found, Ok(Some((1..10).map(txn).collect())));
    create(&etcd, 10..12);
}

#[test]
fn a_restored_etcd_is_noticed_by_who_has_seen_more() {
    let dir = TempDir::new("restored");
    let mut server = EtcdServer::start(&dir.at("e"));
    let etcd = client(&server);
    create(&etcd, 0..5);
    server.kill();
    server.back_up(&dir.at("copy"));
    server.restart();
    create(&etcd, 5..8);
    server.kill();
    server.restore(&dir.at("copy"));
    server.restart();
    assert_eq!(etcd.read_on(&txn(7), &txn(8).key), Ok(None));
    assert_eq!(etcd.create(&txn(8), Some(&txn(7))), Ok(Creation::SetBack));
    assert_eq!(etcd.get(&txn(8).key), Ok(None), "nothing is written behind what is gone");
    // What was written in the place of what is gone is another one.
    let other = object(&txn(5).key, "written anew");
    assert_eq!(etcd.create(&other, Some(&txn(4))), Ok(Creation::Done));
    assert_eq!(etcd.read_on(&txn(5), &txn(6).key), Ok(None));
    assert_eq!(etcd.read_on(&txn(4), &txn(5).key), Ok(Some(vec![other])));
}

#[test]
fn a_server_that_knows_nothing_is_left_for_the_next() {
    let dir = TempDir::new("apart");
    let (alone, whole) = (EtcdServer::start(&dir.at("a")), EtcdServer::start(&dir.at("w")));
    create(&client(&whole), 0..3);
    let etcd = with(
        &format!("etcd://127.0.0.1:{},127.0.0.1:{}/p", alone.port, whole.port),
        Settings::default(),
    );
    assert_eq!(etcd.create(&txn(3), Some(&txn(2))), Ok(Creation::SetBack));
    assert_eq!(etcd.create(&txn(3), Some(&txn(2))), Ok(Creation::Done), "by the other one");
    assert_eq!(etcd.read_on(&txn(3), &txn(4).key), Ok(Some(vec![])));
}
