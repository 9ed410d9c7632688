//! The quorum logs of a node: each is served while this node owns it, and waited for otherwise. One that is lost leaves the
//! running server, as does one that is handed over; everything else goes on.

use super::cluster::blocking;
use super::{QuorumLogs, RunError};
use crate::nodes::StepDown;
use crate::server::Server;
use nuthatch_cluster::Cluster;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;

/// Step-downs of one log that wait at a time.
const STEP_DOWNS_MAX: usize = 16;

/// A quorum log of the cluster, which has one.
pub(super) type QuorumLog = Cluster;

/// The quorum logs of a cluster.
pub(super) fn of(cluster: &Arc<Cluster>) -> Vec<Arc<QuorumLog>> {
    vec![cluster.clone()]
}

fn number_of(_log: &QuorumLog) -> u8 {
    0
}

/// One log at this node.
struct Kept {
    server: Arc<Server>,
    log: Arc<QuorumLog>,
    number: u8,
    quorum: Arc<dyn QuorumLogs>,
}

/// Why a log is served no longer.
enum Ended {
    Lost(String),
    StepDown(StepDown),
}

/// Serves the log whenever this node owns it. Ends when the node cannot go on: why.
pub(super) async fn keep(
    server: Arc<Server>,
    log: Arc<QuorumLog>,
    quorum: Arc<dyn QuorumLogs>,
) -> RunError {
    let number = number_of(&log);
    let kept = Kept { server, log, number, quorum };
    let (step_down, mut step_downs) = mpsc::channel(STEP_DOWNS_MAX);
    kept.server.nodes.take_step_downs(number, step_down);
    loop {
        if let Err(error) = kept.turn(&mut step_downs).await {
            return error;
        }
    }
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
            Err(why) => return Err(RunError::JetStream(why)),
        }
        self.log.tell_takeover();
        self.server.log.info(format_args!("JetStream of the cluster is served here"));
        let ended = tokio::select! {
            // Without a JetStream nothing watches, and nothing is lost.
            Some(why) = lost.recv() => Ended::Lost(why),
            Some(step_down) = step_downs.recv() => Ended::StepDown(step_down),
        };
        if self.server.stopping.load(Ordering::Relaxed) {
            // The server closes its logs and hands them over itself.
            std::future::pending::<()>().await;
        }
        match ended {
            Ended::Lost(why) => self.lost(&why).await,
            Ended::StepDown(step_down) => self.step_down(step_down).await,
        }
    }

    /// Waits until this node owns the log. Who asks for a step-down meanwhile hears that there is nothing to hand over.
    async fn wait_owned(&self, step_downs: &mut mpsc::Receiver<StepDown>) -> Result<(), RunError> {
        let log = self.log.clone();
        let owned = blocking(move || log.wait_owned().map_err(|error| error.to_string()));
        let mut owned = std::pin::pin!(owned);
        let epoch = loop {
            tokio::select! {
                owned = &mut owned => break owned?.0,
                Some(step_down) = step_downs.recv() => drop(step_down),
            }
        };
        let options = self.server.options();
        let name = &options.cluster.as_ref().expect("it is a node").name;
        self.server.log.info(format_args!("Node {name} owns the quorum log (epoch {epoch})"));
        Ok(())
    }

    async fn lost(&self, why: &str) -> Result<(), RunError> {
        if !self.log.was_replaced() {
            // The disk has failed: what it owned and kept is read anew by a new process.
            self.server.fatal.raise(why);
            return std::future::pending().await;
        }
        // What another node owns by now cannot be closed cleanly, and need not be.
        let _ = self.quorum.leave(self.number).await;
        self.say(format_args!("is another node's: {why}. This one goes on as a keeper of it"));
        Ok(())
    }

    async fn step_down(&self, step_down: StepDown) -> Result<(), RunError> {
        if let Err(why) = self.quorum.leave(self.number).await {
            self.say(format_args!("was not closed cleanly before it is handed over: {why}"));
        }
        let log = self.log.clone();
        blocking(move || {
            log.hand_over();
            Ok(())
        })
        .await?;
        let is_done = self.log.owned().is_none();
        self.say(match is_done {
            true => format_args!("was handed over"),
            false => format_args!("was not handed over: no other node has all of it"),
        });
        // Who has asked may be gone.
        let _ = step_down.done.send(is_done);
        Ok(())
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.server.log.info(format_args!("Quorum log {} {what}", self.number));
    }
}
