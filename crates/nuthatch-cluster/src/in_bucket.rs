//! Logs that are in a bucket: their nodes keep who owns them, and nothing else.
//!
//! The chain that the keepers of such a log agree on has the starts of epochs and no more. They lie in the nodes' directories,
//! which may go at any time: where too few of them are left the chain begins anew, as that of the log in memory does, and
//! nothing is lost but who owned the log. What is acknowledged is in the bucket, whose own fence keeps a former owner out, whatever the nodes know of
//! each other; the chain says which node opens it, and until when its owner may answer.
//!
//! A bucket says whose it is ([`Mark`]), before a cluster is founded on it: nodes with different buckets found none.
//! Which log in which bucket a log is, the catalog says from the first opening on ([`Binding`]): a node that is set up
//! for another bucket must not take its empty one for the cluster's log.

use crate::catalog::{self, CatalogError, CatalogStore, Object};
use crate::host::Host;
use crate::journal::Sizes;
use bytes::Bytes;
use nuthatch_catalog_group::LogNumber;
use nuthatch_log::Epoch;
use nuthatch_log::env::{Standing, Tenure};
use nuthatch_object::{Bucket, BucketError, BucketOptions, OpenUrlError, open_url};
use nuthatch_quorum::effect::Alarm;
use nuthatch_quorum::types;
use std::sync::Arc;
use std::time::Duration;

/// Files of the journal of a chain that has an entry for each owner.
pub(crate) const SIZES: Sizes =
    Sizes { file: 1 << 20, zero_ahead: 64 << 10, large_record: 256 << 10 };

/// Where the catalog says which log in a bucket a log of the cluster is.
pub(crate) struct Binding {
    store: Arc<dyn CatalogStore>,
    key: String,
}

impl Binding {
    pub(crate) fn new(store: Arc<dyn CatalogStore>, log: LogNumber) -> Self {
        Self { store, key: format!("bucket/{log}") }
    }

    /// The identity of the log in the bucket; none before it was first opened.
    ///
    /// # Errors
    /// Of the catalog.
    pub(crate) fn get(&self) -> Result<Option<u64>, CatalogError> {
        let bytes = self.store.get(&self.key)?;
        bytes.map(|bytes| catalog::number_of(&self.key, &bytes)).transpose()
    }

    /// Says which one it is, if nothing was said yet; gives what counts.
    ///
    /// # Errors
    /// Of the catalog.
    pub(crate) fn set(&self, identity: u64) -> Result<u64, CatalogError> {
        let object = Object { key: self.key.clone(), bytes: catalog::sealed_number(identity) };
        self.store.create(&object, None)?;
        Ok(self.get()?.unwrap_or(identity))
    }
}

/// The object of a bucket that says whose it is, below a directory that is no log's.
const MARK: &str = "cluster";
const MARK_DIR: &str = "cluster-of";

/// How long one request for the mark is repeated, and how long one attempt may take.
const MARK_RETRY: Duration = Duration::from_secs(2);

/// What a bucket says of whose it is: a line with the identity of the cluster and, for people and until that is founded, the
/// address of its catalog.
pub(crate) struct Mark {
    bucket: Bucket,
}

impl Mark {
    /// That of the bucket at this address.
    ///
    /// # Errors
    /// The address.
    pub(crate) fn of(store: &str) -> Result<Self, OpenUrlError> {
        let options = BucketOptions { attempt_timeout: MARK_RETRY, ..BucketOptions::default() };
        let bucket = open_url(store, MARK_DIR, options)?;
        bucket.set_retry_for(MARK_RETRY);
        Ok(Self { bucket })
    }

    /// The cluster that the bucket belongs to, and what it says; none: nobody's.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn read(&self) -> Result<Option<(Option<u128>, String)>, BucketError> {
        let bytes = match self.bucket.get(MARK) {
            Err(BucketError::NotFound { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let said = String::from_utf8_lossy(&bytes).trim().to_owned();
        let id = said.split(' ').next().and_then(|id| u128::from_str_radix(id, 16).ok());
        Ok(Some((id, said)))
    }

    /// Marks the bucket of a cluster that is to be founded with this catalog, or reads with what it was marked for that.
    /// Gives its identity, or what the bucket says of another cluster.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn make(
        &self,
        fresh: u128,
        catalog: &str,
    ) -> Result<Result<u128, String>, BucketError> {
        let catalog = catalog.trim();
        if self.read()?.is_none() {
            let said = format!("{fresh:032x} {catalog}\n");
            match self.bucket.create(MARK, &Bytes::from(said)) {
                Err(BucketError::Exists { .. }) => {}
                made => made?,
            }
        }
        Ok(match self.read()? {
            Some((Some(id), said)) if said.ends_with(&format!(" {catalog}")) => Ok(id),
            Some((_, said)) => Err(format!("cluster {said}")),
            None => Err("nobody, although it was just marked".to_owned()),
        })
    }
}

/// That this node owns a log, for as long as the others agree.
pub struct QuorumTenure {
    host: Arc<Host>,
    epoch: types::Epoch,
}

impl QuorumTenure {
    pub(crate) fn new(host: Arc<Host>, epoch: types::Epoch) -> Self {
        Self { host, epoch }
    }

    /// The epoch that this node owns.
    #[must_use]
    pub fn owned(&self) -> types::Epoch {
        self.epoch
    }
}

impl Tenure for QuorumTenure {
    fn epoch(&self) -> Option<Epoch> {
        Some(Epoch(self.epoch.0))
    }

    fn standing(&self) -> Standing {
        self.host.standing(self.epoch)
    }
}

/// What people are told where the nodes of such a log agree anew on who owns it; none of other alarms.
pub(crate) fn words(alarm: &Alarm) -> Option<String> {
    match alarm {
        Alarm::BeganAnew { epoch, left, of } => Some(format!(
            "of the {of} nodes' directories that said who owns the log {left} are left, which is no majority: they begin anew, \
             with epoch {}. Nothing is lost: the log is in its bucket",
            epoch.0
        )),
        Alarm::LeftOut { .. } => Some(
            "the others agreed anew on who owns the log without this node, which gives up what it kept of that".to_owned(),
        ),
        _ => None,
    }
}
