//! Disks that hang: what hangs with them, and what does not.

use super::{Nodes, still, wait, write};
use nuthatch_cluster::QuorumDirectory;
use nuthatch_quorum::types::Epoch;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// An owner of which nothing is heard for so long has been taken for lost.
const LONGER_THAN_MISSED: Duration = Duration::from_secs(3);

/// A write that takes longer waits for a disk that hangs.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

const ATTEMPTS: usize = 3;

impl Nodes {
    /// For longer than it takes until an owner is missed a log takes writes in the same epoch.
    ///
    /// # Errors
    /// It does not.
    fn serves_on(
        &self,
        node: usize,
        log: usize,
        of: (&Arc<QuorumDirectory>, Option<Epoch>),
    ) -> Result<(), String> {
        let (directory, epoch) = of;
        let end = Instant::now() + LONGER_THAN_MISSED;
        let mut written = 0;
        while Instant::now() < end {
            write_in_time(directory, &format!("file-{written}"))?;
            written += 1;
        }
        self.is_owned_in(node, log, epoch)
    }

    /// # Errors
    /// The node does not own the log in this epoch any more.
    fn is_owned_in(&self, node: usize, log: usize, epoch: Option<Epoch>) -> Result<(), String> {
        match self.log(node, log).owned() {
            now if now == epoch => Ok(()),
            now => Err(format!("log {log} was owned in epoch {epoch:?}, and now {now:?}")),
        }
    }
}

fn owner(nodes: &Nodes, log: usize) -> (usize, Arc<QuorumDirectory>) {
    let (node, directory) = nodes.owner(log);
    (node, Arc::new(directory))
}

/// As [`write`], on a thread of its own: what is written to a log whose disk hangs may never end.
fn write_in_time(directory: &Arc<QuorumDirectory>, name: &str) -> Result<(), String> {
    let (written, end) = channel();
    let (directory, to) = (Arc::clone(directory), name.to_owned());
    thread::spawn(move || written.send(write(&directory, &to)));
    match end.recv_timeout(WRITE_LIMIT) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{name}: {error:?}")),
        Err(_) => Err(format!("{name}: not written within {WRITE_LIMIT:?}")),
    }
}

/// Something after which nobody has lost a log. A machine on which nothing runs for a second takes one away as well, so one
/// of some attempts must show it; where it is the fault of what is tested none of them does.
fn once_of_some(attempt: impl Fn() -> Result<(), String>) {
    let mut failures = vec![];
    while failures.len() < ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("in no attempt: {failures:#?}");
}

/// A node beats for all its logs by one thread and on one connection.
#[test]
fn a_log_whose_disk_hangs_takes_no_other_log_from_its_owner() {
    once_of_some(|| {
        let nodes = Nodes::start("one-disk-hangs", false, still());
        nodes.own_their_logs(&[0, 1]);
        let (node, directory) = owner(&nodes, 0);
        let (_, of_other) = nodes.owner(1);
        let epoch = nodes.log(node, 0).owned();
        nodes.hanging[node].hang("logs/1/");
        wait("its keeper is in the middle of a write", || {
            let _ = write(&of_other, "anything");
            nodes.hanging[node].waits() > 0
        });
        nodes.serves_on(node, 0, (&directory, epoch))?;
        assert!(nodes.hanging[node].waits() > 0, "the other log still hangs");
        nodes.hanging[node].go_on();
        wait("the other log is served, too", || write(&nodes.owner(1).1, "again").is_ok());
        Ok(())
    });
}

/// Two others commit without it; it goes on beating, whether it has something to send or not.
#[test]
fn an_owner_whose_own_syncs_hang_keeps_its_log() {
    once_of_some(|| {
        let nodes = Nodes::start("own-syncs-hang", false, still());
        nodes.own_their_logs(&[1]);
        let (node, directory) = owner(&nodes, 1);
        let epoch = nodes.log(node, 1).owned();
        nodes.hanging[node].hang_syncs("logs/1/");
        write_in_time(&directory, "before")?;
        wait("its sync hangs", || nodes.hanging[node].waits() > 0);
        // It sends its own keeper again what that has not said to be durable.
        thread::sleep(LONGER_THAN_MISSED);
        nodes.is_owned_in(node, 1, epoch)?;
        write_in_time(&directory, "behind")?;
        assert!(nodes.hanging[node].waits() > 0, "it still hangs");
        Ok(())
    });
}

/// A promise is made durable in a step of the cores: that of a log which is taken over is not made by the thread that ticks
/// for all.
#[test]
fn a_log_that_is_taken_over_on_a_disk_that_hangs_takes_no_other_log_from_its_owner() {
    once_of_some(|| {
        let mut nodes = Nodes::start("takes-over-hanging", false, still());
        // If the third node ends, the first one is the next to own its log.
        nodes.own_their_logs(&[0, 2]);
        let (node, directory) = owner(&nodes, 0);
        let epoch = nodes.log(node, 0).owned();
        nodes.hanging[node].hang("logs/2/");
        // It ends without a word: the log is missed, and taken over when its lease has ended, which a tick shows.
        drop(nodes.clusters.pop());
        let deadline = Instant::now() + Duration::from_secs(10);
        while nodes.hanging[node].waits() == 0 {
            if Instant::now() > deadline {
                return Err("it had the other log before that ended".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        nodes.serves_on(node, 0, (&directory, epoch))?;
        assert!(nodes.hanging[node].waits() > 0, "the other log still hangs");
        nodes.hanging[node].go_on();
        wait("the other log is served", || write(&nodes.owner(2).1, "again").is_ok());
        Ok(())
    });
}
