//! Names of queue groups, numbered so that matches can carry and compare them cheaply.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A queue group name of one tree. Valid while the group has a subscription; then it may be given
/// to another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(u32);

#[derive(Default)]
struct QueueSlot {
    name: Box<[u8]>,
    uses: usize,
}

/// Interned names with a count of uses.
#[derive(Default)]
pub(super) struct QueueNames {
    ids: HashMap<Box<[u8]>, QueueId, FixedState>,
    slots: Vec<QueueSlot>,
    free: Vec<QueueId>,
}

impl QueueNames {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<QueueId> {
        self.ids.get(name).copied()
    }

    pub(super) fn name(&self, id: QueueId) -> &[u8] {
        self.slots.get(id.0 as usize).map_or(&[], |slot| &slot.name)
    }

    /// The id of `name`, with one more use.
    pub(super) fn acquire(&mut self, name: &[u8]) -> QueueId {
        if let Some(id) = self.find(name) {
            self.slots[id.0 as usize].uses += 1;
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(QueueSlot::default());
            QueueId(self.slots.len() as u32 - 1)
        });
        self.slots[id.0 as usize] = QueueSlot { name: name.into(), uses: 1 };
        self.ids.insert(name.into(), id);
        id
    }

    /// Gives back one use; the last one frees the name.
    pub(super) fn release(&mut self, id: QueueId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.uses -= 1;
        if slot.uses == 0 {
            self.ids.remove(&slot.name);
            slot.name = Box::default();
            self.free.push(id);
        }
    }
}
