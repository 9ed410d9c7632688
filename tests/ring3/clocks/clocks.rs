//! Preloaded into a server (`LD_PRELOAD`) it makes the clocks wrong: `RING3_CLOCK` names a file of two numbers, how many
//! nanoseconds the wall clock is ahead, read at every look, and by how many millionths the boot clock is faster, read once.
//! Without the file the clocks are right.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn close(fd: c_int) -> c_int;
}

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;
const REALTIME: c_int = 0;
const REALTIME_COARSE: c_int = 5;
const BOOTTIME: c_int = 7;
const SECOND: i64 = 1_000_000_000;
const READ: c_int = 1;
const SHARED: c_int = 1;
const CLOEXEC: c_int = 0o2_000_000;

/// Wall clock ahead, boot clock faster.
struct Wrong {
    ahead_nanos: AtomicI64,
    faster_ppm: AtomicI64,
}

static RIGHT: Wrong = Wrong { ahead_nanos: AtomicI64::new(0), faster_ppm: AtomicI64::new(0) };
static WRONG: AtomicPtr<Wrong> = AtomicPtr::new(null_mut());
/// When this process looked at its boot clock first, and how much faster it is.
static BEGAN: AtomicI64 = AtomicI64::new(0);
static FASTER: AtomicI64 = AtomicI64::new(0);

fn wrong() -> &'static Wrong {
    let known = WRONG.load(Ordering::Acquire);
    let found = if known.is_null() { map() } else { known };
    WRONG.store(found, Ordering::Release);
    // SAFETY: it is the static one, or a mapping that stays.
    unsafe { &*found }
}

fn map() -> *mut Wrong {
    let right = (&raw const RIGHT).cast_mut();
    // SAFETY: names end with zero; a mapping of a page of a file that is as long.
    unsafe {
        let path = getenv(c"RING3_CLOCK".as_ptr());
        let fd = if path.is_null() { -1 } else { open(path, CLOEXEC) };
        if fd < 0 {
            return right;
        }
        let at = mmap(null_mut(), size_of::<Wrong>(), READ, SHARED, fd, 0);
        close(fd);
        if at as isize == -1 { right } else { at.cast() }
    }
}

/// # Safety
/// As of the function of libc that it stands in for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, at: *mut Timespec) -> c_int {
    // SAFETY: the caller's place.
    let done = unsafe { syscall(CLOCK_GETTIME, clock, at) } as c_int;
    if done != 0 {
        return done;
    }
    // SAFETY: the kernel has filled it.
    let at = unsafe { &mut *at };
    let now = at.seconds * SECOND + at.nanos;
    let shown = match clock {
        REALTIME | REALTIME_COARSE => now + wrong().ahead_nanos.load(Ordering::Relaxed),
        BOOTTIME => now + lead(now),
        _ => return 0,
    };
    (at.seconds, at.nanos) = (shown.div_euclid(SECOND), shown.rem_euclid(SECOND));
    0
}

/// How far the boot clock has gone ahead since this process looked at it first.
fn lead(now: i64) -> i64 {
    if BEGAN.load(Ordering::Acquire) == 0 {
        FASTER.store(wrong().faster_ppm.load(Ordering::Relaxed), Ordering::Release);
        let _ = BEGAN.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
    }
    let passed = i128::from(now - BEGAN.load(Ordering::Acquire));
    (passed * i128::from(FASTER.load(Ordering::Acquire)) / 1_000_000) as i64
}
