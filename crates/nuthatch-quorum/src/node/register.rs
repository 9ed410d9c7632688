//! The disk of this node in the catalog: its boot counter, and what is no disk of the log any more.

use super::{Node, Purpose};
use crate::catalog::{Key, NodeRow, Snapshot, Value};
use crate::effect::{Alarm, Effect};
use crate::out::Out;
use crate::rules::Rule;
use crate::store::Identity;
use crate::timing::CATALOG_BACK;
use crate::types::{BootCount, Revision, Time};

impl Node {
    /// Goes on with the registration of this disk as soon as what it needs is known and durable.
    pub(super) fn try_register(&mut self, now: Time, out: &mut Out) {
        let ready = self.row.is_some() && self.keeper.is_settled() && !self.keeper.is_poisoned();
        if ready && !self.registered && self.proposal.is_none() {
            self.register(now, out);
        }
    }

    /// Raises the boot counter of this disk, on the disk to one more than the catalog has and then in the
    /// catalog. A disk whose counter is below the catalog's is an old image and begins anew. It must not
    /// be raised before it is compared: an old image would catch up by starting often enough.
    pub(super) fn register(&mut self, now: Time, out: &mut Out) {
        let Identity { incarnation, mut boots, .. } = self.keeper.identity();
        let id = self.config.id;
        let known = self.row.as_ref().and_then(|snapshot| snapshot.nodes.get(&id)).cloned();
        let revision = known.as_ref().map_or(Revision(0), |row| row.revision);
        let mut former = vec![];
        if let Some(known) = known.map(|known| known.value) {
            former.clone_from(&known.former);
            let same = known.incarnation == incarnation;
            let old = same && boots < known.boots && Rule::BootCounter.holds();
            if old || former.contains(&incarnation) {
                self.begin_anew(out);
                return;
            }
            if same && boots <= known.boots {
                boots = BootCount(known.boots.0 + 1);
                self.keeper.raise_boots(boots, out);
                return;
            }
            if !same {
                former.push(known.incarnation);
                self.forget_former(&mut former);
            }
        }
        let row = NodeRow { incarnation, boots, former };
        self.propose(Key::Node(id), revision, Value::Node(row), Purpose::Register, now, out);
    }

    fn begin_anew(&mut self, out: &mut Out) {
        assert!(!self.renewed, "a new incarnation is not in the catalog");
        self.renewed = true;
        self.keeper.begin_anew(self.config.fresh[1], out);
    }

    /// True if an answer of the catalog is behind what this node has durably seen. Such a one may be late; if no
    /// other comes, the catalog was set back, and whoever went by it might own the log with a former set.
    pub(super) fn went_back(&mut self, snapshot: &Snapshot, now: Time, out: &mut Out) -> bool {
        let seen = self.keeper.identity().seen;
        if snapshot.revision >= seen || !Rule::CatalogNeverGoesBack.holds() {
            self.behind = None;
            return false;
        }
        let (since, told) = self.behind.unwrap_or((now, false));
        let tells = !told && now.since(since) >= CATALOG_BACK;
        if tells {
            out.effects.push(Effect::Alarm(Alarm::CatalogWentBack { node: self.config.id }));
        }
        self.behind = Some((since, told || tells));
        true
    }
}
