//! Recycled buffers, one small pool per thread, so that idle connections own none.

use bytes::BytesMut;
use std::cell::RefCell;

/// Size of a pooled read buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Read buffers a thread keeps, lent ones included.
const READ_BUFFERS_MAX: usize = 8;
/// Write buffers a thread keeps.
const WRITE_BUFFERS_MAX: usize = 16;
/// Largest write buffer that is kept.
const WRITE_BUFFER_KEPT_BYTES: usize = 128 * 1024;

thread_local! {
    static READ: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty read buffer of [`READ_BUFFER_BYTES`].
#[must_use]
pub fn take_read() -> BytesMut {
    READ.with_borrow_mut(|pool| {
        for at in (0..pool.len()).rev() {
            if pool[at].try_reclaim(READ_BUFFER_BYTES) {
                return pool.swap_remove(at);
            }
        }
        BytesMut::with_capacity(READ_BUFFER_BYTES)
    })
}

/// Takes back a read buffer, even while parts of it are still lent out: it is reused when they
/// have been dropped. It must be empty.
pub fn give_read(buffer: BytesMut) {
    debug_assert!(buffer.is_empty());
    READ.with_borrow_mut(|pool| {
        if pool.len() == READ_BUFFERS_MAX {
            pool.remove(0);
        }
        pool.push(buffer);
    });
}

/// An empty write buffer.
#[must_use]
pub fn take_write() -> Vec<u8> {
    WRITE.with_borrow_mut(|pool| pool.pop().unwrap_or_default())
}

/// Takes back a write buffer.
pub fn give_write(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > WRITE_BUFFER_KEPT_BYTES {
        return;
    }
    buffer.clear();
    WRITE.with_borrow_mut(|pool| {
        if pool.len() < WRITE_BUFFERS_MAX {
            pool.push(buffer);
        }
    });
}
