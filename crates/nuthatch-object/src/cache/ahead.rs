//! Sequential readers of a file, and how far ahead of each to fetch.

/// Readers of one file that are followed at a time.
const CURSORS: usize = 8;

/// The first step ahead, once a reader is known to read in order.
const FIRST_WINDOW_BYTES: u64 = 2 << 20;

/// The longest.
const WINDOW_MAX_BYTES: u64 = 16 << 20;

/// A reader may leave out this much and still read in order.
const SKIP_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Default)]
struct Cursor {
    start: u64,
    end: u64,
    window: u64,
}

/// The readers of a file.
#[derive(Default)]
pub struct Cursors {
    cursors: [Cursor; CURSORS],
    next: usize,
}

impl Cursors {
    /// A stretch was read. Returns how many bytes behind it should be fetched: none for a first read
    /// somewhere, twice as many each time it is followed by the next.
    pub fn note(&mut self, at: u64, len: u64) -> u64 {
        let end = at + len;
        let follows = |cursor: &&mut Cursor| {
            cursor.end > 0 && cursor.start <= at && at <= cursor.end + SKIP_BYTES
        };
        if let Some(cursor) = self.cursors.iter_mut().find(follows) {
            // The same stretch again says nothing about what comes next.
            if end > cursor.end {
                let window = cursor.window * 2;
                cursor.window = window.clamp(FIRST_WINDOW_BYTES, WINDOW_MAX_BYTES);
            }
            (cursor.start, cursor.end) = (at, end);
            return cursor.window;
        }
        self.cursors[self.next] = Cursor { start: at, end, window: 0 };
        self.next = (self.next + 1) % CURSORS;
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_in_order_are_told_from_others() {
        let mut cursors = Cursors::default();
        let step = 512 << 10;
        assert_eq!(cursors.note(0, step), 0);
        assert_eq!(cursors.note(500 << 20, step), 0, "somewhere else");
        assert_eq!(cursors.note(step, step), FIRST_WINDOW_BYTES);
        assert_eq!(cursors.note((500 << 20) + step, step), FIRST_WINDOW_BYTES, "side by side");
        for n in 2..10 {
            let window = cursors.note(n * step, step);
            assert!((FIRST_WINDOW_BYTES..=WINDOW_MAX_BYTES).contains(&window));
        }
        assert_eq!(cursors.note(10 * step, step), WINDOW_MAX_BYTES);
        assert_eq!(cursors.note(100 << 20, step), 0, "a jump");
    }
}
