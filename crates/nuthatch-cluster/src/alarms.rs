//! What people are told of what the cores of a log notice: a sentence with the names of nodes, what it means, and what is to
//! be done, if anything.

use nuthatch_log::Reporter;
use nuthatch_quorum::effect::Alarm;
use nuthatch_quorum::types::NodeId;

/// Names a node.
pub type Named = Box<dyn Fn(NodeId) -> String + Send + Sync>;

/// Tells people of an alarm; `named` gives the names of nodes. What belongs to normal operation is a note.
pub(crate) fn tell(alarm: &Alarm, named: &dyn Fn(NodeId) -> String, report: &Reporter) {
    match alarm {
        Alarm::PossiblyAcknowledged { .. } | Alarm::LeftUndrained { .. } => {
            report.note(&sentence(alarm, named));
        }
        _ => report.say(&sentence(alarm, named)),
    }
}

/// Of a node that is there with another disk than the log's set has.
pub(crate) fn is_new(node: &str) -> String {
    format!(
        "node {node} is there with another disk or memory: it is brought everything, and counts when it has it"
    )
}

fn sentence(alarm: &Alarm, named: &dyn Fn(NodeId) -> String) -> String {
    match alarm {
        Alarm::PossiblyAcknowledged { first, last, .. } => format!(
            "entries {} to {} that this node had of an earlier epoch were taken out, since the log went on without them; they are \
             kept in `torn`. So it is when an owner ends with messages on their way; nothing is to be done. Only where a majority \
             of the disks failed before could one of them have been acknowledged",
            first.0, last.0
        ),
        Alarm::LeftUndrained { to, epoch } => format!(
            "epoch {} was handed over to node {} before all that was on its way was stored: whoever published that gets no \
             answer and publishes it again; nothing is to be done",
            epoch.0,
            named(*to)
        ),
        Alarm::Away { node, .. } => format!(
            "node {} was not heard for 3 s: it gets what it lacks when it is back. Look whether it runs and can be reached, and \
             stop no other node meanwhile",
            named(*node)
        ),
        Alarm::WrongClock { .. } => "this node's clock differs from those of a majority by more than 2 s: others own the log \
                                     while they can. Set the clock right"
            .to_owned(),
        _ => of_disk(alarm, named),
    }
}

fn of_disk(alarm: &Alarm, named: &dyn Fn(NodeId) -> String) -> String {
    match alarm {
        Alarm::SyncFailed { .. } => "a sync of this node's disk failed: nobody knows what is on it, so the node ends and reads \
                                     it again when it starts. Look at the disk if that comes again"
            .to_owned(),
        Alarm::WriteFailed { why, .. } => format!(
            "this node's disk could not be written ({why}): the node ends and reads it again when it starts. Look at the disk, \
             and whether it is full"
        ),
        Alarm::Damaged { lsn, .. } => format!(
            "entry {} on this node's disk cannot be read any more: it is fetched from another node. Look at the disk if that \
             comes again",
            lsn.0
        ),
        Alarm::CatalogWentBack { .. } => "the catalog is behind what this node has seen: somebody has set it back, from a backup \
                                          perhaps. This node does not listen to it; put back the newest catalog"
            .to_owned(),
        Alarm::ForeignDisk { of, .. } => format!(
            "the directory belongs to node {}: this node does nothing. Start each node with its own directory",
            named(*of)
        ),
        Alarm::Unreadable { lsn, .. } => format!(
            "entry {} cannot be read at any node that is there: the takeover waits for one that has it. Start the nodes that are \
             away",
            lsn.0
        ),
        Alarm::BeganAnew { epoch, left, of } => format!(
            "the log began anew, empty, with epoch {}: {left} of the {of} nodes still had it, which is no majority. Whatever was \
             in it is lost",
            epoch.0
        ),
        Alarm::LeftOut { last, .. } => {
            format!("the log goes on without what this node had of it, which gives up the {} entries that it had", last.0)
        }
        Alarm::Diverged { lsn, .. } => format!(
            "entry {} is not the same at two nodes, which must never be: stop the cluster, keep all directories, and report it",
            lsn.0
        ),
        Alarm::PossiblyAcknowledged { .. }
        | Alarm::LeftUndrained { .. }
        | Alarm::Away { .. }
        | Alarm::WrongClock { .. } => unreachable!("as dispatched"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_quorum::types::{Epoch, Lsn};
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[test]
    fn alarms_are_sentences_with_the_names_of_nodes() {
        let (said, noted) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(vec![])));
        let (say, note) = (Arc::clone(&said), Arc::clone(&noted));
        let report = Reporter::with_notes(
            move |text| say.lock().push(text.to_owned()),
            move |text| note.lock().push(text.to_owned()),
        );
        let named = |node: NodeId| format!("n{}", node.0);
        let (node, epoch, lsn) = (NodeId(2), Epoch(6), Lsn(9));
        let alarms = [
            Alarm::Away { node, epoch },
            Alarm::WrongClock { node },
            Alarm::SyncFailed { node },
            Alarm::Damaged { node, lsn },
            Alarm::CatalogWentBack { node },
            Alarm::ForeignDisk { node, of: node },
            Alarm::Unreadable { epoch, lsn },
            Alarm::Diverged { node, lsn },
            Alarm::LeftUndrained { to: node, epoch },
            Alarm::PossiblyAcknowledged { node, first: lsn, last: lsn },
        ];
        alarms.iter().for_each(|alarm| tell(alarm, &named, &report));
        let (said, noted) = (said.lock(), noted.lock());
        assert_eq!((said.len(), noted.len()), (8, 2));
        assert!(said[0].starts_with("node n2 was not heard for 3 s"), "{}", said[0]);
        for text in said.iter().chain(noted.iter()) {
            assert!(!text.contains(" {") && !text.contains("NodeId"), "{text}");
        }
    }
}
