//! How the nodes of a cluster are changed, wherever its catalog is.

use nuthatch_catalog_group::{Change, Roster};
use nuthatch_quorum::types::NodeId;
use std::time::Duration;

/// Why the nodes were not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be done so.
    #[error("{0}")]
    Refused(String),
    /// Nothing was done.
    #[error(
        "too many calls wait for the catalog of the cluster: nothing was changed; try again later"
    )]
    Busy,
    /// Nobody knows whether it was done: to ask again does no harm.
    #[error(
        "the catalog of the cluster does not answer, as when no majority of its nodes is there: whether it is done, perhaps once \
         they are back, is not known. `nuthatch cluster status` shows it then; to ask again does no harm"
    )]
    NoMajority,
    /// The same of a catalog outside the nodes.
    #[error(
        "whether it is done is not known: {why}. `nuthatch cluster status` shows it once the catalog answers; to ask again does \
         no harm"
    )]
    NoAnswer {
        /// Why not.
        why: String,
    },
}

/// What changes the nodes of a cluster.
pub(crate) trait ChangeNodes: Send + Sync {
    /// Has the nodes changed; a change that was made before is made.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn change(&self, change: Change) -> Result<(), ChangeError>;

    /// Whether a change can be made, as far as this node knows.
    ///
    /// # Errors
    /// [`ChangeError::Refused`].
    fn check(&self, roster: &Roster, change: &Change) -> Result<(), ChangeError> {
        match roster.has(change) {
            true => Ok(()),
            false => roster.check(change).map_err(|why| ChangeError::Refused(why.to_string())),
        }
    }

    /// Has this node know what was changed at others by now, where it does not hear of it by itself.
    fn refresh(&self);

    /// True if one of the nodes leads the catalog, or none does for now; otherwise none ever does.
    fn is_led(&self) -> bool;
}

/// What people are told of a node that is away for longer than it may be, and of what follows.
pub(crate) fn absent_text(
    roster: &Roster,
    (old, new): (NodeId, Option<NodeId>),
    after: Duration,
) -> String {
    let old = roster.name(old);
    match new.map(|new| roster.name(new)) {
        Some(new) => format!(
            "node {old} has not been heard for {after:?} (replace_after): the spare {new} takes its place; should it \
             come back before that is over, `nuthatch cluster keep {old}` lets it keep it"
        ),
        None => format!(
            "node {old} has not been heard for {after:?} (replace_after), and there is no spare that could take its \
             place: start one, or {old}"
        ),
    }
}
