//! A soak of mixed features with reloads, consumer churn, slow readers and killed clients: nothing
//! acknowledged is lost, and at the end memory, tasks, file handles, connections, subscriptions and
//! consumers are back where they were.
//!
//! It runs for `NUTHATCH_SOAK_SECONDS` (20 by default, 120 in CI, 3600 with `just soak-features`),
//! and creates and removes 20,000 consumers in 300 seconds or more, fewer in less.
//! `NUTHATCH_SOAK_ONLY` names the only actors to run, to find out who leaves something behind; the
//! test then fails for want of the others.

mod support;

#[path = "soak/actors.rs"]
mod actors;
#[path = "soak/gauges.rs"]
mod gauges;

use gauges::Gauges;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Server, TempDir, api_ok, create_stream};

/// Without `NUTHATCH_SOAK_SECONDS`.
const DEFAULT_SECONDS: u64 = 20;
/// Consumers that a soak of [`FULL_SECONDS`] and more creates and removes.
const CONSUMERS: u64 = 20_000;
const FULL_SECONDS: u64 = 300;
/// How long the server gets to come to rest.
const REST: Duration = Duration::from_secs(180);

/// What the actors share.
struct Soak {
    url: String,
    websocket: String,
    pid: u32,
    config: PathBuf,
    stop: AtomicBool,
    /// Consumers that are to have come and gone when the actors stop.
    consumers_wanted: AtomicU64,
    done: Done,
}

/// How often each thing was done: a soak that did nothing shows nothing.
#[derive(Default)]
struct Done {
    acked: AtomicU64,
    verified: AtomicU64,
    consumers: AtomicU64,
    slow_readers: AtomicU64,
    killed_clients: AtomicU64,
    websockets: AtomicU64,
    reloads: AtomicU64,
    worked: AtomicU64,
    requests: AtomicU64,
}

impl Soak {
    fn runs(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The configuration; `odd` reloads differ from even ones in what a reload may change.
fn config(odd: bool) -> String {
    let (pings, pending) = if odd { ("30s", "3MB") } else { ("2m", "2MB") };
    format!(
        "max_payload: 1MB
         max_pending: {pending}
         ping_interval: \"{pings}\"
         max_closed_clients: 100
         websocket {{ host: 127.0.0.1, port: -1, no_tls: true, compression: true }}
         mappings {{ \"mapped.*\": \"keep.{{{{partition(4,1)}}}}.$1\" }}\n"
    )
}

fn write_config(path: &Path, odd: bool) {
    let partial = path.with_extension("new");
    std::fs::write(&partial, config(odd)).expect("write the configuration");
    std::fs::rename(&partial, path).expect("put it in its place");
}

fn set_up(server: &Server) {
    let mut client = server.connect();
    create_stream(&mut client, "KEEP", &json!({"subjects": ["keep.>"]}));
    let work = json!({"subjects": ["work.>"], "retention": "workqueue"});
    create_stream(&mut client, "WORK", &work);
    let worker = json!({"stream_name": "WORK", "config": {"durable_name": "W",
        "ack_policy": "explicit", "ack_wait": 2_000_000_000_u64, "max_ack_pending": 5_000}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.WORK.W", &worker);
    let latest = json!({"subjects": ["latest.>"], "max_msgs_per_subject": 1, "allow_direct": true});
    create_stream(&mut client, "LATEST", &latest);
    let short = json!({"subjects": ["short.>"], "max_age": 1_000_000_000, "storage": "memory"});
    create_stream(&mut client, "SHORT", &short);
    let churn = json!({"subjects": ["churn.>"], "max_msgs": 100, "max_consumers": 100_000});
    create_stream(&mut client, "CHURN", &churn);
}

/// Does one kind of thing until the soak is told to stop.
type Actor = fn(&Soak);

/// Runs every actor for a time.
fn run(soak: &Arc<Soak>, seconds: u64) {
    let actors: &[(&str, Actor)] = &[
        ("keeper", actors::keep_and_verify),
        ("worker", actors::work),
        ("latest", actors::latest_values),
        ("churn", actors::churn_consumers),
        ("slow", actors::read_slowly),
        ("killed", actors::die),
        ("websocket", actors::come_and_go_over_websocket),
        ("reload", actors::reload),
        ("requests", actors::ask_and_answer),
    ];
    soak.stop.store(false, Ordering::Relaxed);
    let only = std::env::var("NUTHATCH_SOAK_ONLY").ok();
    let threads: Vec<_> = actors
        .iter()
        .filter(|(name, _)| only.as_ref().is_none_or(|only| only.contains(*name)))
        .map(|(name, actor)| {
            let soak = soak.clone();
            let spawn = std::thread::Builder::new().name((*name).to_owned());
            spawn.spawn(move || actor(&soak)).expect("a thread")
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < deadline && !threads.iter().any(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(50));
    }
    soak.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        thread.join().unwrap_or_else(|_| panic!("{name} has failed"));
    }
}

/// Waits until nothing is there that the actors have left behind, and measures.
fn at_rest(server: &Server, monitor: u16, rests: impl Fn(&Gauges) -> bool) -> Gauges {
    let mut client = server.connect();
    for stream in ["KEEP", "LATEST"] {
        api_ok(&mut client, &format!("STREAM.PURGE.{stream}"), &Value::Null);
    }
    drop(client);
    let deadline = Instant::now() + REST;
    loop {
        let gauges = Gauges::read(monitor);
        if rests(&gauges) || Instant::now() > deadline {
            return gauges;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn mixed_features_leave_nothing_behind() {
    let seconds = std::env::var("NUTHATCH_SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(DEFAULT_SECONDS);
    let dir = TempDir::new("soak");
    let config = dir.path().join("soak.conf");
    write_config(&config, false);
    let server = Server::start(dir.path(), &["-m", "-1", "-c", config.to_str().expect("a path")]);
    let ports = gauges::ports(dir.path());
    set_up(&server);
    let idle = Gauges::of_nobody(ports.monitor);
    let consumers = CONSUMERS * seconds.min(FULL_SECONDS) / FULL_SECONDS;
    let soak = Arc::new(Soak {
        url: server.url.clone(),
        websocket: ports.websocket,
        pid: server.pid(),
        config,
        stop: AtomicBool::new(false),
        consumers_wanted: AtomicU64::new(consumers / 3),
        done: Done::default(),
    });
    // The first third fills caches and pools: what is there then is what must be there at the end.
    run(&soak, (seconds / 3).max(4));
    let before = at_rest(&server, ports.monitor, |gauges| gauges.is_at_rest(&idle));
    assert!(before.is_at_rest(&idle), "something is left: {before:?}");
    soak.consumers_wanted.store(consumers, Ordering::Relaxed);
    run(&soak, seconds - (seconds / 3).min(seconds));
    let after = at_rest(&server, ports.monitor, |gauges| gauges.beyond(&before).is_none());
    report(&soak, seconds, &before, &after);
    let log = server.log_text();
    let complaint = log.lines().find(|line| line.contains("[FTL]") || line.contains("panicked"));
    assert_eq!(complaint, None, "the server has complained");
    assert!(!log.contains("Failed to reload"), "{}", server.log_tail());
    assert_eq!(after.beyond(&before), None, "{after:?}");
    server.stop();
}

fn report(soak: &Soak, seconds: u64, before: &Gauges, after: &Gauges) {
    let done = &soak.done;
    let shown = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{seconds} s: {} acknowledged, {} of them verified, {} worked off, {} consumers, {} slow \
         readers, {} killed clients, {} websockets, {} reloads, {} requests",
        shown(&done.acked),
        shown(&done.verified),
        shown(&done.worked),
        shown(&done.consumers),
        shown(&done.slow_readers),
        shown(&done.killed_clients),
        shown(&done.websockets),
        shown(&done.reloads),
        shown(&done.requests),
    );
    println!("before {before:?}\nafter  {after:?}");
    for (what, counter) in [
        ("verified", &done.verified),
        ("worked", &done.worked),
        ("slow readers", &done.slow_readers),
        ("killed clients", &done.killed_clients),
        ("websockets", &done.websockets),
        ("reloads", &done.reloads),
        ("requests", &done.requests),
    ] {
        assert!(shown(counter) > 0, "no {what}");
    }
    assert_eq!(shown(&done.acked), shown(&done.verified), "acknowledged and verified");
    let wanted = shown(&soak.consumers_wanted);
    assert!(shown(&done.consumers) >= wanted, "{} of {wanted} consumers", shown(&done.consumers));
}
