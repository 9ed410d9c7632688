//! Subject texts and their ids.

use crate::pattern;
use rustc_hash::FxHashMap;

/// Texts by id and ids by text. Ids are dense and reused.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: FxHashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
    free: Vec<u32>,
    text_bytes: usize,
}

/// What a name costs beyond its text, roughly: two boxes and a map slot.
const NAME_OVERHEAD_BYTES: usize = 64;

impl Names {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        2 * self.text_bytes + self.ids.len() * NAME_OVERHEAD_BYTES
    }

    #[inline]
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn insert(&mut self, text: &[u8]) -> u32 {
        let id = self.free.pop().unwrap_or(self.texts.len() as u32);
        if id as usize == self.texts.len() {
            self.texts.push(text.into());
        } else {
            self.texts[id as usize] = text.into();
        }
        self.ids.insert(text.into(), id);
        self.text_bytes += text.len();
        id
    }

    pub(super) fn remove(&mut self, id: u32) {
        let Some(text) = self.texts.get_mut(id as usize) else { return };
        let text = std::mem::take(text);
        if self.ids.remove(&text).is_some() {
            self.text_bytes -= text.len();
            self.free.push(id);
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).map_or(&[], |text| text)
    }

    pub(super) fn for_each_match(&self, pattern: &[u8], visit: &mut dyn FnMut(u32)) {
        if !pattern::has_wildcard(pattern) {
            if let Some(id) = self.find(pattern) {
                visit(id);
            }
            return;
        }
        for (text, &id) in &self.ids {
            if pattern::matches(pattern, text) {
                visit(id);
            }
        }
    }
}
