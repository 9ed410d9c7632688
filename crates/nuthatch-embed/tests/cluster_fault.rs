//! What ends the process of a server that is a node ends a broker, and leaves its host alone. One test, since it sets a
//! limit of the whole process.

mod support;

#[path = "support/nodes.rs"]
mod nodes;

use nodes::{Nodes, threads, try_publish, until};
use nuthatch_embed::{BrokerError, CloseError, ConnectFailed};

/// How large files of this process may become.
fn limit_files(bytes: libc::rlim_t) {
    // SAFETY: both calls take plain values; the limit that may be raised again stays as it is.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit), 0);
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// Files of this process cannot become larger than a byte, until this is dropped: where the test fails meanwhile, what it says
/// goes to a file too.
struct NoRoom;

impl NoRoom {
    fn begin() -> Self {
        limit_files(1);
        Self
    }
}

impl Drop for NoRoom {
    fn drop(&mut self) {
        limit_files(libc::RLIM_INFINITY);
    }
}

/// Every disk fails at once; then the keeper's directory of one node is of no use.
#[test]
fn failed_disks_and_damage_end_brokers_and_not_their_host() {
    // SAFETY: what the test itself writes beyond the limit is an error and no signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let before = threads();
    let mut nodes = Nodes::new("fault");
    nodes.open_all();
    nodes.create(0);
    nodes.publish(0, 50);
    let mut client = nodes.client(1);
    client.subscribe("core", "").expect("subscribe");
    let no_room = NoRoom::begin();
    let mut other = nodes.client(0);
    for number in 0..20 {
        if nodes.brokers.iter().flatten().all(|broker| broker.fault().is_some()) {
            break;
        }
        try_publish(&mut other, &format!("S.{}", 5_000_000 + number), b"lost");
    }
    for node in 0..3 {
        until("the broker has ended", || nodes.broker(node).fault().is_some());
        let why = nodes.broker(node).fault().expect("a reason");
        assert!(why.contains("disk has failed"), "{why}");
        let refused = nodes.broker(node).connect().expect_err("it has ended");
        assert!(matches!(refused, ConnectFailed::Broker(BrokerError::Dead(_))), "{refused}");
        let closed = nodes.brokers[node].take().expect("it is there").close();
        let closed = closed.expect_err("it had ended");
        assert!(matches!(&closed, CloseError::Dead(said) if *said == why), "{closed}");
    }
    assert!(client.round_trip(support::WAIT).is_err(), "its connections have ended");
    drop((client, other));
    until("the brokers' threads have ended", || threads() == before);
    drop(no_room);
    nodes.open_all();
    nodes.publish(2, 20);
    nodes.check(1);
    nodes.close(0);
    let format = nodes.dirs[0].path().join("nuthatch/quorum/format");
    let good = std::fs::read(&format).expect("there is one");
    std::fs::write(&format, "of a later version").expect("written");
    match nodes.try_open(0) {
        Ok(broker) => {
            until("the broker has ended", || broker.fault().is_some());
            let why = broker.fault().expect("a reason");
            assert!(why.contains("can't start the node"), "{why}");
        }
        Err(error) => assert!(error.to_string().contains("can't start the node"), "{error}"),
    }
    nodes.publish(1, 20);
    std::fs::write(&format, good).expect("written");
    nodes.open(0);
    nodes.publish(0, 20);
    nodes.check(0);
    drop(nodes);
    until("the brokers' threads have ended", || threads() == before);
}
