//! Layout of a file: pieces by offset, some of them objects (or ranges of objects), some still in
//! memory. Knows nothing of stores.

use bytes::Bytes;
use std::collections::BTreeMap;

/// Where the bytes of a piece lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// In the object that `epoch` wrote for `offset`, `skip` bytes behind its beginning.
    Object {
        /// Offset in the object's key.
        offset: u64,
        /// Epoch in the object's key.
        epoch: u32,
        /// Bytes of the object before the piece.
        skip: u64,
    },
    /// Not written yet.
    Memory(Bytes),
    /// Being written.
    Uploading(Bytes),
}

/// A stretch of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its length in bytes.
    pub len: u64,
    /// Source of its bytes.
    pub source: Source,
}

impl Piece {
    /// The part of the piece from `from` to `to`, counted from its beginning.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Self {
        let source = match &self.source {
            Source::Memory(bytes) => Source::Memory(bytes.slice(to_usize(from)..to_usize(to))),
            Source::Uploading(bytes) => {
                Source::Uploading(bytes.slice(to_usize(from)..to_usize(to)))
            }
            Source::Object { offset, epoch, skip } => {
                Source::Object { offset: *offset, epoch: *epoch, skip: skip + from }
            }
        };
        Self { len: to - from, source }
    }

    const fn is_object(&self) -> bool {
        matches!(self.source, Source::Object { .. })
    }
}

/// Pieces of a file, never overlapping. What no piece covers below `len` reads as zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    pieces: BTreeMap<u64, Piece>,
    len: u64,
    cut: bool,
}

impl Extents {
    /// A file of these pieces, later ones over earlier ones.
    #[must_use]
    pub fn of(pieces: impl IntoIterator<Item = (u64, Piece)>, len: u64) -> Self {
        let mut extents = Self::default();
        for (at, piece) in pieces {
            extents.put(at, piece);
        }
        extents.set_len(len);
        extents.cut = false;
        extents
    }

    /// The file's length.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True if stored bytes were overwritten or cut off since [`Extents::settle`]: listing the
    /// file's objects does then not tell its content.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Says that a manifest of the content as it is has been stored.
    pub const fn settle(&mut self) {
        self.cut = false;
    }

    /// Adds a piece, over what may be there.
    pub fn put(&mut self, at: u64, piece: Piece) {
        let end = at + piece.len;
        self.clear(at, end);
        self.len = self.len.max(end);
        if piece.len > 0 {
            self.pieces.insert(at, piece);
        }
    }

    /// Cuts the file, or extends it with zeros.
    pub fn set_len(&mut self, len: u64) {
        self.clear(len, self.len.max(len));
        self.len = len;
    }

    fn clear(&mut self, start: u64, end: u64) {
        let before = self.pieces.range(..start).next_back().map(|(at, piece)| (*at, piece.clone()));
        if let Some((at, piece)) = before
            && at + piece.len > start
        {
            self.cut |= piece.is_object();
            self.pieces.insert(at, piece.slice(0, start - at));
            if at + piece.len > end {
                self.pieces.insert(end, piece.slice(end - at, piece.len));
            }
        }
        let inside: Vec<u64> = self.pieces.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            let Some(piece) = self.pieces.remove(&at) else { continue };
            self.cut |= piece.is_object();
            if at + piece.len > end {
                self.pieces.insert(end, piece.slice(end - at, piece.len));
            }
        }
    }

    /// All pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.pieces.iter().map(|(at, piece)| (*at, piece))
    }

    /// The pieces (cut to fit) that lie in a range, in order.
    #[must_use]
    pub fn within(&self, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let first = self.pieces.range(..=start).next_back().map_or(start, |(at, _)| *at);
        let overlapping = self.pieces.range(first..end.max(first));
        overlapping
            .filter_map(|(at, piece)| {
                let from = start.max(*at);
                let to = end.min(*at + piece.len);
                (from < to).then(|| (from, piece.slice(from - at, to - at)))
            })
            .collect()
    }

    /// Pieces in memory that no upload has taken yet, as runs of adjacent pieces.
    #[must_use]
    pub fn unwritten(&self) -> Vec<(u64, Vec<Bytes>)> {
        let mut runs: Vec<(u64, u64, Vec<Bytes>)> = Vec::new();
        for (at, piece) in &self.pieces {
            let Source::Memory(bytes) = &piece.source else { continue };
            match runs.last_mut().filter(|(_, end, _)| *end == *at) {
                Some((_, end, run)) => {
                    *end += piece.len;
                    run.push(bytes.clone());
                }
                None => runs.push((*at, at + piece.len, vec![bytes.clone()])),
            }
        }
        runs.into_iter().map(|(at, _, run)| (at, run)).collect()
    }

    /// The bytes of `at..at + len` are being written, so they are no longer among
    /// [`Extents::unwritten`]; or, if not `leaving`, they have not been after all.
    pub fn set_leaving(&mut self, at: u64, len: u64, leaving: bool) {
        for (_, piece) in self.pieces.range_mut(at..at + len) {
            piece.source = match std::mem::replace(&mut piece.source, Source::Memory(Bytes::new()))
            {
                Source::Memory(bytes) if leaving => Source::Uploading(bytes),
                Source::Uploading(bytes) if !leaving => Source::Memory(bytes),
                source => source,
            };
        }
    }

    /// The bytes of `at..at + len`, which were leaving, are in an object of their own now. What was
    /// overwritten in the meantime stays as it is.
    pub fn written(&mut self, at: u64, len: u64, epoch: u32) {
        for (offset, piece) in self.within(at, at + len) {
            if matches!(piece.source, Source::Uploading(_)) {
                let skip = offset - at;
                let source = Source::Object { offset: at, epoch, skip };
                // Exactly this stretch is replaced; it was in memory, so nothing stored is cut.
                let cut = self.cut;
                self.put(offset, Piece { len: piece.len, source });
                self.cut = cut;
            }
        }
    }
}

/// A length that fits into memory, as an index.
pub fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write { at: u64, len: u64 },
        Cut { len: u64 },
        Store,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..300u64, 0..80u64).prop_map(|(at, len)| Step::Write { at, len }),
            1 => (0..300u64).prop_map(|len| Step::Cut { len }),
            2 => Just(Step::Store),
        ]
    }

    fn read(extents: &Extents, objects: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
        let mut out = vec![0; to_usize(extents.len())];
        for (at, piece) in extents.within(0, extents.len()) {
            let target = &mut out[to_usize(at)..to_usize(at + piece.len)];
            match &piece.source {
                Source::Memory(bytes) | Source::Uploading(bytes) => target.copy_from_slice(bytes),
                Source::Object { offset, skip, .. } => {
                    let object = &objects[offset];
                    target.copy_from_slice(&object[to_usize(*skip)..to_usize(skip + piece.len)]);
                }
            }
        }
        out
    }

    proptest! {
        /// Whatever is written, cut and stored in whatever order: the content is that of a plain
        /// buffer, and a file without a cut is the run of its objects.
        #[test]
        fn content_is_that_of_a_plain_buffer(steps in prop::collection::vec(step(), 1..40)) {
            let mut extents = Extents::default();
            let mut model: Vec<u8> = Vec::new();
            let mut objects = BTreeMap::new();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write { at, len } => {
                        let bytes = vec![n as u8 + 1; to_usize(len)];
                        model.resize(model.len().max(to_usize(at + len)), 0);
                        model[to_usize(at)..to_usize(at + len)].copy_from_slice(&bytes);
                        let source = Source::Memory(Bytes::from(bytes));
                        extents.put(at, Piece { len, source });
                    }
                    Step::Cut { len } => {
                        model.resize(to_usize(len), 0);
                        extents.set_len(len);
                    }
                    Step::Store => {
                        // Keys are offsets: an object that is still needed is not written again.
                        for (at, run) in extents.unwritten() {
                            if objects.contains_key(&at) { continue }
                            let bytes = run.concat();
                            let len = bytes.len() as u64;
                            objects.insert(at, bytes);
                            extents.set_leaving(at, len, true);
                            extents.written(at, len, 1);
                        }
                    }
                }
                prop_assert_eq!(read(&extents, &objects), model.clone());
            }
        }
    }

    #[test]
    fn what_is_overwritten_while_it_leaves_stays_to_be_written() {
        let memory = |text: &'static [u8]| Piece {
            len: text.len() as u64,
            source: Source::Memory(Bytes::from_static(text)),
        };
        let mut extents = Extents::default();
        extents.put(0, memory(b"abcdef"));
        extents.set_leaving(0, 6, true);
        assert!(extents.unwritten().is_empty());
        extents.put(2, memory(b"XY"));
        extents.written(0, 6, 1);
        assert_eq!(extents.unwritten(), [(2, vec![Bytes::from_static(b"XY")])]);
        extents.put(6, memory(b"gh"));
        extents.set_leaving(2, 6, true);
        extents.set_leaving(2, 6, false);
        let left = extents.unwritten();
        assert_eq!(left.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 6]);
    }

    #[test]
    fn cutting_stored_bytes_is_noticed() {
        let object =
            |at, len| (at, Piece { len, source: Source::Object { offset: at, epoch: 1, skip: 0 } });
        let mut extents = Extents::of([object(0, 10), object(10, 10)], 20);
        extents.put(20, Piece { len: 3, source: Source::Memory(Bytes::from_static(b"abc")) });
        extents.set_len(23);
        assert!(!extents.is_cut());
        extents.set_leaving(20, 3, true);
        extents.written(20, 3, 1);
        assert!(!extents.is_cut());
        extents.set_len(22);
        assert!(extents.is_cut());
    }
}
