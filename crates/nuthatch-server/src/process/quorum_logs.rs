//! The quorum logs of a node: each is served while this node owns it, and waited for otherwise. One that is lost leaves the
//! running server, as does one that is handed over; everything else goes on.

use super::cluster::blocking;
use super::{QuorumLogs, RunError};
use crate::nodes::{Next, StepDown};
use crate::server::Server;
use nuthatch_cluster::{Cluster, LogNumber, Move, NodeName, QuorumLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// Step-downs of one log that wait at a time.
const STEP_DOWNS_MAX: usize = 16;

/// So long is waited for other nodes to know that a log is not here any more.
const WITHDRAW_MAX: Duration = Duration::from_millis(500);

/// What another node's connections had begun to send when that node knew comes within this.
const WITHDRAW_REST: Duration = Duration::from_millis(5);

/// Before a log in a bucket is opened again, here or elsewhere, that could not be or that somebody else has taken. Each attempt
/// makes a fence, and those stay, so it is twice as long after each further failure, up to a minute.
const REOPEN_PAUSE: Duration = Duration::from_secs(2);
const REOPEN_DOUBLINGS: u32 = 5;

/// How often it is looked whether a log in a bucket has stopped.
const STOPPED_POLL: Duration = Duration::from_secs(1);

/// One log at this node.
struct Kept {
    server: Arc<Server>,
    log: Arc<QuorumLog>,
    number: u8,
    quorum: Arc<dyn QuorumLogs>,
    /// How often the log could not be opened here since it was.
    failures: AtomicU32,
}

/// Why a log is served no longer.
enum Ended {
    Lost(String),
    StepDown(StepDown),
}

/// Serves the log whenever this node owns it. Ends when the node cannot go on, or has ended: why.
pub(super) async fn keep(
    server: Arc<Server>,
    log: Arc<QuorumLog>,
    quorum: Arc<dyn QuorumLogs>,
) -> RunError {
    let number = log.number().0;
    let kept = Kept { server, log, number, quorum, failures: AtomicU32::new(0) };
    let (step_down, mut step_downs) = mpsc::channel(STEP_DOWNS_MAX);
    kept.server.nodes.take_step_downs(number, step_down);
    kept.quorum.follow(number);
    loop {
        if let Err(error) = kept.turn(&mut step_downs).await {
            return error;
        }
    }
}

/// The node of this name, of those that keep a log.
fn node_of(log: &QuorumLog, name: &str) -> Option<NodeName> {
    let keepers = log.sight().keepers.into_iter();
    keepers.map(|keeper| keeper.node).find(|node| node.name == name)
}

/// Has the logs that balance gives to other nodes, or to other keepers, closed before that.
pub(super) fn take_moves(server: &Arc<Server>, cluster: &Cluster) {
    let server = Arc::downgrade(server);
    cluster.take_moves(Box::new(move |log, moves| {
        let Some(server) = server.upgrade() else { return };
        let (nodes, number) = (&server.nodes, log.number().0);
        // Where it is being handed over already balance looks again.
        let asked = match &moves {
            Move::To(to) => {
                let keepers = log.sight().keepers.into_iter();
                let to = keepers.map(|keeper| keeper.node).find(|node| node.id == *to);
                nodes.step_down(number, to.map(|node| node.name))
            }
            Move::ChangeSet => nodes.change_set(number),
        };
        if asked.is_some() {
            nodes.counts.balanced(number, matches!(moves, Move::To(_)));
        }
    }));
}

impl Kept {
    /// From one ownership to its end.
    async fn turn(&self, step_downs: &mut mpsc::Receiver<StepDown>) -> Result<(), RunError> {
        self.wait_owned(step_downs).await?;
        let (told, mut lost) = mpsc::channel(1);
        let on_lost = Box::new(move |why: &str| {
            // The first reason counts.
            let _ = told.try_send(why.to_owned());
        });
        let serving = self.quorum.serve(self.number, on_lost);
        let served = match self.server.options().ready_timeout {
            // A bucket may be away for longer, which is no reason to end.
            _ if self.log.is_in_bucket() => serving.await,
            None => serving.await,
            Some(limit) => {
                let served = tokio::time::timeout(limit, serving).await;
                served.map_err(|_| RunError::NotReady { limit })?
            }
        };
        match served {
            Ok(lines) => {
                lines.iter().for_each(|line| self.server.log.info(format_args!("  {line}")));
            }
            Err(why) if self.log.was_replaced() => {
                self.say(format_args!("was lost while it was opened: {why}"));
                return Ok(());
            }
            // Its disk has failed.
            Err(why) if self.log.has_lost() => return self.lost(&why, step_downs).await,
            Err(why) if self.is_stopping() => return self.ended(&why).await,
            Err(why) if self.log.is_in_bucket() => {
                return self.put_off(&why, step_downs).await;
            }
            Err(why) => return Err(RunError::JetStream(why)),
        }
        self.failures.store(0, Ordering::Relaxed);
        self.log.set_unopened(false);
        if let Some(takeover) = self.log.tell_takeover() {
            self.server.nodes.counts.taken_over(self.number, takeover);
        }
        self.say(format_args!("is served here"));
        let ended = tokio::select! {
            // Without a JetStream nothing watches, and nothing is lost.
            Some(why) = lost.recv() => Ended::Lost(why),
            Some(step_down) = step_downs.recv() => Ended::StepDown(step_down),
            () = self.stopped() => Ended::Lost("the log has stopped".to_owned()),
        };
        if self.is_stopping() {
            // The server closes its logs and hands them over itself, but for one that was opened meanwhile.
            return self.ended("the server stops").await;
        }
        match ended {
            Ended::Lost(why) => self.lost(&why, step_downs).await,
            Ended::StepDown(StepDown { next, done }) => match next {
                Next::Any => self.step_down(None, done).await,
                Next::Node(name) => self.step_down(Some(&name), done).await,
                Next::Itself => self.change_set(done).await,
            },
        }
    }

    /// Waits until this node owns the log. Who asks for a step-down meanwhile hears that there is nothing to hand over.
    async fn wait_owned(&self, step_downs: &mut mpsc::Receiver<StepDown>) -> Result<(), RunError> {
        let log = self.log.clone();
        let owned = blocking(move || Ok(log.wait_owned()));
        let mut owned = std::pin::pin!(owned);
        let owned = loop {
            tokio::select! {
                owned = &mut owned => break owned?,
                Some(step_down) = step_downs.recv() => drop(step_down),
            }
        };
        let epoch = match owned {
            Ok(epoch) => epoch.0,
            Err(why) => return self.failed(&why.to_string()).await,
        };
        let options = self.server.options();
        let name = &options.cluster.as_ref().expect("it is a node").name;
        match self.log.number() {
            LogNumber::FIRST => {
                self.server
                    .log
                    .info(format_args!("Node {name} owns the quorum log (epoch {epoch})"));
            }
            _ => {
                let (log, of) = (&self.server.log, self.label());
                log.info(format_args!("Node {name} owns quorum log {of} (epoch {epoch})"));
            }
        }
        Ok(())
    }

    /// A log in a bucket was not opened. The bucket may be away for all, or for this node: another one tries next, or this
    /// one again.
    async fn put_off(
        &self,
        why: &str,
        step_downs: &mut mpsc::Receiver<StepDown>,
    ) -> Result<(), RunError> {
        self.log.set_unopened(true);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(REOPEN_DOUBLINGS);
        let log = &self.server.log;
        log.error(format_args!("Quorum log {} is not served: {why}", self.label()));
        self.rest(REOPEN_PAUSE, step_downs).await;
        let log = self.log.clone();
        blocking(move || {
            if log.can_hand_over() {
                log.hand_over();
            }
            Ok(())
        })
        .await?;
        // Where nobody else took it.
        self.rest(REOPEN_PAUSE * ((1 << failures) - 1), step_downs).await;
        Ok(())
    }

    /// A log in a bucket has stopped although this node owns it: the bucket was away for too long, or a server has taken it
    /// that is no node of this cluster, or a node of which this one did not hear yet.
    async fn open_again(
        &self,
        why: &str,
        step_downs: &mut mpsc::Receiver<StepDown>,
    ) -> Result<(), RunError> {
        self.log.set_unopened(true);
        // It cannot be closed cleanly.
        let _ = self.quorum.leave(self.number).await;
        self.say(format_args!("is served here no more: {why}"));
        self.rest(REOPEN_PAUSE, step_downs).await;
        if self.log.owned().is_some() && !self.is_stopping() {
            let log = &self.server.log;
            log.error(format_args!(
                "Quorum log {} is opened again, which ends whoever else has it open",
                self.label()
            ));
        }
        Ok(())
    }

    /// Lets a log rest that this node owns and has not open, unless the server stops or it owns it no more. Who asks for a
    /// step-down meanwhile hears that there is nothing to hand over.
    async fn rest(&self, pause: Duration, step_downs: &mut mpsc::Receiver<StepDown>) {
        let (mut rest, mut looks) = (std::pin::pin!(sleep(pause)), interval(STOPPED_POLL));
        let epoch = self.log.owned();
        while !self.is_stopping() && epoch.is_some() && self.log.owned() == epoch {
            tokio::select! {
                () = &mut rest => return,
                Some(step_down) = step_downs.recv() => drop(step_down),
                _ = looks.tick() => {}
            }
        }
    }

    /// Returns when a log in a bucket has stopped. One on disks stops with the disk of its keeper, which tells.
    async fn stopped(&self) {
        if !self.log.is_in_bucket() {
            return std::future::pending().await;
        }
        let mut looks = interval(STOPPED_POLL);
        while !self.quorum.has_stopped(self.number) {
            looks.tick().await;
        }
    }

    async fn lost(
        &self,
        why: &str,
        step_downs: &mut mpsc::Receiver<StepDown>,
    ) -> Result<(), RunError> {
        let is_owner = self.log.owned().is_some();
        if is_owner && self.log.is_in_bucket() {
            return self.open_again(why, step_downs).await;
        }
        if !self.log.was_replaced() {
            return self.failed(why).await;
        }
        // What another node owns by now cannot be closed cleanly, and need not be.
        let _ = self.quorum.leave(self.number).await;
        let whose = match self.log.sight().owner {
            Some(_) => "is another node's",
            // Nobody can take it over before a majority is there.
            None => "is served here no more",
        };
        self.say(format_args!("{whose}: {why}. This one goes on as a keeper of it"));
        Ok(())
    }

    /// The disk has failed: what this node owned and kept is read anew by a new process, or by who opens a broker again.
    async fn failed(&self, why: &str) -> Result<(), RunError> {
        if !self.is_stopping() {
            self.server.fatal.raise(why);
        }
        self.ended(why).await
    }

    fn is_stopping(&self) -> bool {
        self.server.stopping.load(Ordering::Relaxed)
    }

    /// Waits until the node has ended, and closes what is still open.
    async fn ended(&self, why: &str) -> Result<(), RunError> {
        let log = self.log.clone();
        blocking(move || {
            log.wait_ended();
            Ok(())
        })
        .await?;
        // Nobody owns it here any more, so it cannot be closed cleanly.
        let _ = self.quorum.leave(self.number).await;
        Err(RunError::Cluster(why.to_owned()))
    }

    /// Leaves the log to another node, if one can have it.
    async fn step_down(
        &self,
        to: Option<&str>,
        done: oneshot::Sender<bool>,
    ) -> Result<(), RunError> {
        let log = self.log.clone();
        let to = to.map(|name| node_of(&log, name));
        self.withdraw().await;
        if to.as_ref().is_none_or(Option::is_some) {
            let next = to.iter().flatten().map(|node| node.id).next();
            self.log.prepare_handover(next);
        }
        self.close().await;
        let is_done = blocking(move || {
            Ok(match to {
                Some(Some(node)) => log.hand_over_to(node.id),
                // The node that is wanted keeps none of it: nobody else gets it instead.
                Some(None) => false,
                None => {
                    log.hand_over();
                    log.owned().is_none()
                }
            })
        })
        .await?;
        self.say(match is_done {
            true => format_args!("was handed over"),
            false => format_args!("was not handed over: no other node has all of it"),
        });
        // Who has asked may be gone.
        let _ = done.send(is_done);
        Ok(())
    }

    /// Has this node take the log over from itself with other keepers. It is served again as after any takeover.
    async fn change_set(&self, done: oneshot::Sender<bool>) -> Result<(), RunError> {
        self.withdraw().await;
        self.close().await;
        let log = self.log.clone();
        let is_done = blocking(move || Ok(log.change_set())).await?;
        self.say(match is_done {
            true => format_args!("was closed, for its next epoch to begin with other keepers"),
            false => format_args!("goes on with its keepers: others do not have all of it"),
        });
        let _ = done.send(is_done);
        Ok(())
    }

    async fn withdraw(&self) {
        self.quorum.withdraw(self.number);
        self.until_withdrawn().await;
    }

    async fn close(&self) {
        if let Err(why) = self.quorum.leave(self.number).await {
            self.say(format_args!("was not closed cleanly before its next epoch: {why}"));
        }
    }

    /// Waits until no other node sends this one what is for streams that it was told of no more, or for so long: of what
    /// comes afterwards nobody hears anything.
    async fn until_withdrawn(&self) {
        self.server.advertise_all();
        let mut nodes = JoinSet::new();
        for account in self.server.accounts.all() {
            if account.served.has_nodes() {
                nodes.spawn(async move { account.served.until_known().await });
            }
        }
        let all = async { while nodes.join_next().await.is_some() {} };
        let _ = timeout(WITHDRAW_MAX, all).await;
        sleep(WITHDRAW_REST).await;
    }

    /// As people are told of the log.
    fn label(&self) -> String {
        match self.log.is_in_memory() {
            true => self.log.name(),
            false => self.number.to_string(),
        }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.server.log.info(format_args!("Quorum log {} {what}", self.label()));
    }
}
