//! What belongs to the process of the host stays as it was. One test, since it looks at the whole process.

mod support;

use nuthatch_embed::{Broker, OpenError};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};
use support::{Dir, WAIT, config, create, open, publish};

/// Names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let mut names: Vec<String> = tasks.filter_map(|task| name(task).ok()).collect();
    names.sort();
    names
}

/// A line of the status of this process, or of one of its threads.
fn status(task: &str, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/self/{task}status")).expect("a status");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.expect("the line").trim().to_owned()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// What has ended is seen to have ended a moment later.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}: {:?}", threads());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn blocked(task: &str) -> u64 {
    u64::from_str_radix(&status(task, "SigBlk:"), 16).expect("a mask")
}

fn check_signals(ours: u64, caught: &str) {
    assert_eq!(blocked(""), ours, "the host's own mask");
    assert_eq!(status("", "SigCgt:"), caught, "no handler is installed");
    let sigpipe = 1_u64 << (libc::SIGPIPE - 1);
    let sigterm = 1_u64 << (libc::SIGTERM - 1);
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("threads").flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !["nuthatch", "log-", "calls"].iter().any(|own| name.starts_with(own)) {
            continue;
        }
        let id = task.file_name().to_string_lossy().into_owned();
        let mask = blocked(&format!("task/{id}/"));
        assert_eq!(mask & (sigpipe | sigterm), sigpipe | sigterm, "{name}: {mask:x}");
        seen += 1;
    }
    assert!(seen > 1, "{:?}", threads());
}

#[test]
fn the_process_stays_the_hosts() {
    let dir = Dir::new("host");
    let before = threads();
    // What the process makes once (an executor's descriptors, say) is there before descriptors are counted,
    // and what was made for this opening alone is gone with its last thread.
    open(&Dir::new("host-first"), "port: -1").close().expect("a clean close");
    until("the first opening has ended", || threads() == before);
    let (umask, caught) = (status("", "Umask:"), status("", "SigCgt:"));
    let (ours, open_files) = (blocked(""), descriptors());
    for round in 0..3_u64 {
        let log = dir.path().join("broker.log");
        let broker = open(&dir, &format!("log_file: {log:?}"));
        check_signals(ours, &caught);
        let mut client = broker.connect().expect("connect");
        if round == 0 {
            create(&mut client, "S");
        }
        publish(&mut client, "S.x", b"x");
        drop(client);
        broker.close().expect("a clean close");
        assert_eq!(status("", "Umask:"), umask);
        let lines = std::fs::read_to_string(&log).expect("the log");
        let ended = lines.matches("Server Exiting..").count() as u64;
        assert_eq!(ended, round + 1, "{lines}");
    }
    until("its threads have ended", || threads() == before);
    until("its descriptors are closed", || descriptors() == open_files);
    let ours = std::fs::metadata(dir.path().join("nuthatch")).expect("the store");
    assert_eq!(ours.permissions().mode() & 0o777, 0o700, "for nobody else, whatever the umask");

    // An opening that takes too long ends in the background, and then the store is free.
    let late = Broker::open(config(&dir, "ready_timeout: '1ns'")).expect_err("too late");
    assert!(matches!(late, OpenError::NotReady { .. }), "{late}");
    until("the store is free", || {
        Broker::open(config(&dir, "")).is_ok_and(|broker| broker.close().is_ok())
    });
    until("what was given up has ended", || threads() == before);
}
