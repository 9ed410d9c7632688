//! Modes of the files that the process makes: what users sent is for nobody else.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Our data lives in this subdirectory of the store directory.
pub const OUR_DIRECTORY: &str = "nuthatch";
/// Bits of permission that nothing of the server's own gives away: the store holds what users sent.
const PRIVATE_UMASK: libc::mode_t = 0o077;
/// Mode of the log file, before the umask that the process was started with: a group may collect it.
pub(crate) const LOG_MODE: u32 = 0o640;

/// The umask that the process was started with, once [`keep_private`] has replaced it.
static GIVEN_UMASK: AtomicU32 = AtomicU32::new(NOT_REPLACED);
/// The umask is the host's: a server that is embedded leaves it alone.
const NOT_REPLACED: u32 = u32::MAX;

/// Keeps what the process creates from now on to its user, whatever the umask it was started with:
/// directories 0700, files 0600. What others are to read is given to them by [`permit`].
pub fn keep_private() {
    // SAFETY: it sets a number of the process and cannot fail.
    let given = unsafe { libc::umask(PRIVATE_UMASK) };
    GIVEN_UMASK.store(given, Ordering::Relaxed);
}

/// Keeps the memory of the process, which holds keys, out of core dumps and from other processes of its
/// user.
pub(crate) fn keep_memory_private() {
    #[cfg(target_os = "linux")]
    // SAFETY: it sets a flag of the process; the other arguments are not used.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Gives a file that was made just now the mode that it would have had without [`keep_private`].
///
/// # Errors
/// Those of the system.
pub(crate) fn permit(file: &File, mode: u32) -> io::Result<()> {
    let allowed = match GIVEN_UMASK.load(Ordering::Relaxed) {
        NOT_REPLACED => file.metadata()?.permissions().mode(),
        given => !given,
    };
    file.set_permissions(Permissions::from_mode(mode & allowed & 0o777))
}

/// Takes our directory of the store from others: those of before were made under any umask.
///
/// # Errors
/// Those of the system.
pub fn close_directory(dir: &Path) -> io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))
}
