//! Page-aligned buffers, pooled by size class: frames are built in them, written from them with
//! `O_DIRECT` and then shared by the tail cache, all without a copy.

use super::DIRECT_ALIGN;
use bytes::Bytes;
use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Smallest buffer handed out.
pub const MIN_BUF_BYTES: usize = 16 * 1024;

/// Buffers above this are freed rather than pooled: they hold single huge records. Frames of a log in
/// a bucket are below: an allocator that gets buffers of that size and gives them out again in other
/// sizes keeps much more from the system than is in use.
const MAX_POOLED_BYTES: usize = 32 * 1024 * 1024;

/// Sizes between one power of two and the next; so at most a quarter of a buffer is unused.
const STEPS: usize = 4;

const CLASSES: usize = (MAX_POOLED_BYTES / MIN_BUF_BYTES).ilog2() as usize * STEPS + 1;

/// A buffer of the class asked for or of the next one is as good.
const NEAR_CLASSES: usize = 2;

const _: () = assert!(MIN_BUF_BYTES / STEPS == DIRECT_ALIGN);

/// A buffer aligned to [`DIRECT_ALIGN`] that goes back to its pool when dropped. Like a vector of
/// fixed capacity: as a slice it is what has been written to it, and memory is not cleared first.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    pool: Weak<PoolInner>,
}

// SAFETY: the buffer is owned memory without thread affinity; access follows the borrow rules.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer for `capacity` bytes, outside any pool.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1).next_multiple_of(DIRECT_ALIGN);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len: 0, capacity, pool: Weak::new() }
    }

    /// A buffer of `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.extend_zeros(len);
        buf
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, DIRECT_ALIGN).expect("capacity is bounded by MAX_FRAME")
    }

    /// How many bytes fit.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends `bytes`.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity - self.len, "the caller made room");
        // SAFETY: there is room behind `len`, and `bytes` cannot overlap memory owned by `self`.
        unsafe {
            let end = self.start.as_ptr().add(self.len);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        self.len += bytes.len();
    }

    /// Appends zeros.
    pub fn extend_zeros(&mut self, count: usize) {
        assert!(count <= self.capacity - self.len, "the caller made room");
        // SAFETY: there is room behind `len`.
        unsafe { self.start.as_ptr().add(self.len).write_bytes(0, count) };
        self.len += count;
    }

    /// Turns the first `len` bytes into shared bytes without a copy.
    #[must_use]
    pub fn into_bytes(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes were written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade()
            && pool.keep(self.start, self.capacity)
        {
            return;
        }
        // SAFETY: allocated by `with_capacity` with the same layout, and not kept by the pool.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// Keeps returned buffers for reuse, up to a budget of idle bytes.
#[derive(Clone)]
pub struct BufPool(Arc<PoolInner>);

struct PoolInner {
    free: Mutex<Free>,
    idle_limit: usize,
}

struct Free {
    classes: Box<[Vec<NonNull<u8>>]>,
    idle_bytes: usize,
}

// SAFETY: the pointers are owned allocations nobody else refers to while they are in the pool.
unsafe impl Send for Free {}

/// The capacity that is handed out for `len` bytes.
fn capacity_for(len: usize) -> usize {
    if len > MAX_POOLED_BYTES {
        return len.next_multiple_of(DIRECT_ALIGN);
    }
    let len = len.max(MIN_BUF_BYTES);
    let below = 1 << len.ilog2();
    len.next_multiple_of(below / STEPS)
}

/// The class of a capacity made by [`capacity_for`]; `None` if such buffers are not kept.
fn class_of(capacity: usize) -> Option<usize> {
    if !(MIN_BUF_BYTES..=MAX_POOLED_BYTES).contains(&capacity) {
        return None;
    }
    let below = 1usize << capacity.ilog2();
    let doublings = (below / MIN_BUF_BYTES).ilog2() as usize;
    let step = (capacity - below) / (below / STEPS);
    Some(doublings * STEPS + step)
}

fn capacity_of_class(class: usize) -> usize {
    let below = MIN_BUF_BYTES << (class / STEPS);
    below + class % STEPS * (below / STEPS)
}

impl BufPool {
    /// A pool that keeps at most `idle_limit` bytes of unused buffers.
    #[must_use]
    pub fn new(idle_limit: usize) -> Self {
        let free = Free { classes: (0..CLASSES).map(|_| Vec::new()).collect(), idle_bytes: 0 };
        Self(Arc::new(PoolInner { free: Mutex::new(free), idle_limit }))
    }

    /// An empty buffer for at least `len` bytes.
    #[must_use]
    pub fn take(&self, len: usize) -> AlignedBuf {
        let capacity = capacity_for(len);
        let mut buf = self.0.reuse(capacity).unwrap_or_else(|| AlignedBuf::with_capacity(capacity));
        buf.pool = Arc::downgrade(&self.0);
        buf
    }
}

impl PoolInner {
    /// A kept buffer of this capacity, or a little larger.
    fn reuse(&self, capacity: usize) -> Option<AlignedBuf> {
        let class = class_of(capacity)?;
        let mut free = self.free.lock();
        let near = class..(class + NEAR_CLASSES).min(CLASSES);
        let class = near.into_iter().find(|class| !free.classes[*class].is_empty())?;
        let start = free.classes[class].pop()?;
        let capacity = capacity_of_class(class);
        free.idle_bytes -= capacity;
        Some(AlignedBuf { start, len: 0, capacity, pool: Weak::new() })
    }

    fn keep(&self, start: NonNull<u8>, capacity: usize) -> bool {
        let Some(class) = class_of(capacity) else { return false };
        let mut free = self.free.lock();
        if free.idle_bytes + capacity > self.idle_limit {
            return false;
        }
        free.idle_bytes += capacity;
        free.classes[class].push(start);
        true
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        let free = self.free.get_mut();
        for (class, starts) in free.classes.iter_mut().enumerate() {
            let capacity = capacity_of_class(class);
            for start in starts.drain(..) {
                drop(AlignedBuf { start, len: 0, capacity, pool: Weak::new() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.take(20_000);
        buf.extend(b"nuthatch");
        let address = buf.as_ptr() as usize;
        assert_eq!(address % DIRECT_ALIGN, 0);
        assert_eq!(buf.capacity(), 20_480);
        drop(buf.into_bytes(7));
        assert_eq!(pool.take(17_000).as_ptr() as usize, address);
    }

    #[test]
    fn every_capacity_has_its_class() {
        for len in (1..MAX_POOLED_BYTES).step_by(3001) {
            let capacity = capacity_for(len);
            assert!(capacity >= len && capacity.is_multiple_of(DIRECT_ALIGN));
            assert!(capacity <= (len + len / 4 + DIRECT_ALIGN).max(MIN_BUF_BYTES));
            assert_eq!(class_of(capacity).map(capacity_of_class), Some(capacity));
        }
        assert_eq!(class_of(MAX_POOLED_BYTES), Some(CLASSES - 1));
    }

    #[test]
    fn the_idle_budget_holds() {
        let pool = BufPool::new(MIN_BUF_BYTES);
        let (a, b) = (pool.take(1), pool.take(1));
        drop(a);
        drop(b);
        assert_eq!(pool.0.free.lock().idle_bytes, MIN_BUF_BYTES);
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.take(1);
        buf.extend(&[7; 10]);
        let bytes = buf.into_bytes(9);
        drop(pool);
        assert_eq!(bytes[..], [7; 9]);
    }
}
