//! A node before its start.

use super::Cluster;
use crate::balance::BalanceTimes;
use crate::config::ClusterConfig;
use crate::life::Life;
use crate::start_error::StartError;
use nuthatch_log::Reporter;
use nuthatch_log::env::Disk;
use std::net::TcpListener;
use std::sync::Arc;

/// A node that has its directory and its port, and has not begun.
pub struct Prepared {
    pub(super) config: ClusterConfig,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) listener: TcpListener,
    pub(super) life: Life,
    pub(super) report: Reporter,
}

impl Prepared {
    /// How it is set up.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// What ends the node, also while it starts.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life.clone()
    }

    /// As [`Cluster::start`]. Where it fails nothing of the node is left.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Arc<Cluster>, StartError> {
        self.start_balanced(BalanceTimes::default())
    }

    pub(super) fn start_balanced(self, times: BalanceTimes) -> Result<Arc<Cluster>, StartError> {
        let (life, report) = (self.life(), self.report.clone());
        // A node that is ended meanwhile may still be writing: nobody else has its directory before that is over.
        let _lock = life.lock();
        let started = Cluster::begin(self, times);
        let Err(error) = started else { return started };
        let was_ended = life.is_ending();
        if let Err(unended) = life.end() {
            report.say(&unended.to_string());
        }
        Err(if was_ended { StartError::Ended } else { error })
    }
}
