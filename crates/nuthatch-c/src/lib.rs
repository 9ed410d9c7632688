//! The C interface of an embedded broker (`include/nuthatch.h`, `docs/embedding.md`).
//!
//! Brokers are numbers and not pointers, so that a number that is closed, forged or of another process is an error and
//! not a fault. Every function catches panics, and none of them trusts an argument.

mod error;
mod handles;

pub use error::Code;

use error::{Failure, guard};
use handles::Handle;
use nuthatch_embed::Config;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::IntoRawFd as _;

/// Version of this interface: it grows with every incompatible change.
pub const ABI_VERSION: u32 = 1;
/// `nuthatch_open`: no client port.
pub const NO_LISTENER: u32 = 1;
/// `nuthatch_open`: without a log file, lines go to the standard error stream.
pub const LOG_STDERR: u32 = 2;

/// `NUTHATCH_ABI_VERSION` of the library that is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn nuthatch_abi_version() -> u32 {
    ABI_VERSION
}

/// Version of the library, as `nuthatch --version` says it. Lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn nuthatch_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"unknown",
        };
    VERSION.as_ptr()
}

/// Opens a broker and waits until it serves; its number comes in `*broker`.
///
/// # Safety
/// `config` is null or ends with a NUL; `broker` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuthatch_open(
    config: *const c_char,
    flags: u32,
    broker: *mut Handle,
) -> c_int {
    guard(|| {
        if broker.is_null() {
            return Err(Failure::null("broker"));
        }
        // SAFETY: as the caller of this function promises.
        let text = unsafe { text(config, "config")? };
        let opened = open(text, flags)?;
        // SAFETY: it is not null, and can be written.
        unsafe { broker.write(opened) };
        Ok(())
    })
}

/// Connects within the process: `*fd` is one end of a pair of stream sockets, and the caller's to close.
///
/// # Safety
/// `fd` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuthatch_connect(broker: Handle, fd: *mut c_int) -> c_int {
    guard(|| {
        if fd.is_null() {
            return Err(Failure::null("fd"));
        }
        let stream = handles::get(broker)?.stream()?;
        // SAFETY: it is not null, and can be written.
        unsafe { fd.write(stream.into_raw_fd()) };
        Ok(())
    })
}

/// Copies the address for clients of other processes, with its NUL, into `buffer`.
///
/// # Safety
/// `buffer` is null or `size` bytes of it can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuthatch_client_url(
    broker: Handle,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        let url = handles::get(broker)?.client_url().ok_or_else(Failure::no_listener)?;
        // SAFETY: as the caller of this function promises.
        unsafe { copy(&url, buffer, size) }
    })
}

/// The port of clients.
///
/// # Safety
/// `port` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuthatch_client_port(broker: Handle, port: *mut u16) -> c_int {
    guard(|| {
        if port.is_null() {
            return Err(Failure::null("port"));
        }
        let found = handles::get(broker)?.client_port().ok_or_else(Failure::no_listener)?;
        // SAFETY: it is not null, and can be written.
        unsafe { port.write(found) };
        Ok(())
    })
}

/// `NUTHATCH_OK` while the broker serves; `NUTHATCH_DEAD` once it has ended by itself, with the reason as the last
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn nuthatch_check(broker: Handle) -> c_int {
    guard(|| match handles::get(broker)?.fault() {
        None => Ok(()),
        Some(why) => Err(Failure::dead(&why)),
    })
}

/// Closes a broker and waits until nothing of it runs any more. Whatever comes back, the number is used up.
#[unsafe(no_mangle)]
pub extern "C" fn nuthatch_close(broker: Handle) -> c_int {
    guard(|| Ok(handles::take(broker)?.close()?))
}

/// Copies the text of this thread's last error, with its NUL, into `buffer`, cut where there is no room. Returns the
/// length of the whole text without its NUL; 0: there was no error.
///
/// # Safety
/// `buffer` is null or `size` bytes of it can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nuthatch_last_error(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: as the caller of this function promises.
    error::with_last(|text| unsafe { write_cut(text, buffer, size) })
}

fn open(text: &str, flags: u32) -> Result<Handle, Failure> {
    let unknown = flags & !(NO_LISTENER | LOG_STDERR);
    if unknown != 0 {
        return Err(Failure::flags(unknown));
    }
    handles::check_process()?;
    let mut config = Config::from_text(text)?;
    if flags & NO_LISTENER != 0 {
        config = config.without_listener();
    }
    if flags & LOG_STDERR != 0 {
        config = config.log_to_stderr();
    }
    handles::open(config)
}

/// # Safety
/// `text` is null or ends with a NUL, and stays as it is.
unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: it is not null, and ends with a NUL.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|error| Failure::utf8(name, error))
}

/// # Safety
/// `buffer` is null or `size` bytes of it can be written.
unsafe fn copy(text: &str, buffer: *mut c_char, size: usize) -> Result<(), Failure> {
    if buffer.is_null() {
        return Err(Failure::null("buffer"));
    }
    if size <= text.len() {
        return Err(Failure::room(text.len() + 1, size));
    }
    // SAFETY: it is not null, and can be written.
    unsafe { write_cut(text, buffer, size) };
    Ok(())
}

/// # Safety
/// `buffer` is null or `size` bytes of it can be written.
unsafe fn write_cut(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if !buffer.is_null() && size > 0 {
        // What is cut off is whole characters.
        let count = text.floor_char_boundary(size - 1);
        // SAFETY: there is room for `count` bytes and a NUL.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count);
            buffer.add(count).write(0);
        }
    }
    text.len()
}
