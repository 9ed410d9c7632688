//! Checks of the mount of a shared directory. An NFS client may remember that a file does not
//! exist, and with that a server could miss the fence of the next owner for as long as it
//! remembers.

use std::io;
use std::path::Path;

/// Fails for a directory on NFS whose mount remembers what does not exist.
///
/// # Errors
/// `Unsupported` with advice. A mount table that cannot be read is no error: most systems without
/// one have no NFS either.
pub fn check(dir: &Path) -> io::Result<()> {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return Ok(()) };
    let dir = dir.canonicalize()?;
    match unsafe_mount(&table, &dir) {
        None => Ok(()),
        Some(point) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "{point} is NFS and remembers files that do not exist, so that two servers could \
                 both acknowledge; mount it with lookupcache=none (or noac) on every machine"
            ),
        )),
    }
}

/// The mount point that holds `dir`, if it is NFS without the options that make fences visible at
/// once. Lines of `mountinfo` are `id parent major:minor root point options [fields] - type source
/// super-options`, see proc(5).
fn unsafe_mount(table: &str, dir: &Path) -> Option<String> {
    let mounts = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = unescape(mount.split(' ').nth(4)?);
        let mut fields = file_system.split(' ');
        let kind = fields.next()?;
        let options = fields.nth(1).unwrap_or("");
        dir.starts_with(&point).then(|| (point, kind.to_owned(), options.to_owned()))
    });
    // The longest point that holds the directory is the one; of several on one point the last.
    let (point, kind, options) = mounts.max_by_key(|(point, ..)| point.len())?;
    let sees_at_once = |option: &str| matches!(option, "lookupcache=none" | "noac");
    let fine = !kind.starts_with("nfs") || options.split(',').any(sees_at_once);
    (!fine).then_some(point)
}

/// Spaces and the like are written as `\040` in the table.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((&first, rest)) = bytes.split_first() {
        let code = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                bytes = &rest[3..];
            }
            _ => {
                out.push(first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/cached rw,relatime - nfs4 host:/a rw,vers=4.2,hard
31 22 0:41 / /mnt/plain\\040name rw - nfs host:/b rw,lookupcache=none,hard
32 30 8:2 / /mnt/cached/local rw - xfs /dev/sdb1 rw
33 22 0:42 / /mnt/noac rw - nfs4 host:/c rw,noac";

    #[test]
    fn only_nfs_that_remembers_is_refused() {
        let of = |dir: &str| unsafe_mount(TABLE, Path::new(dir));
        assert_eq!(of("/mnt/cached/logs"), Some("/mnt/cached".to_owned()));
        assert_eq!(of("/mnt/cached/local/logs"), None);
        assert_eq!(of("/mnt/plain name/logs"), None);
        assert_eq!(of("/mnt/noac"), None);
        assert_eq!(of("/srv"), None);
        assert_eq!(of("/mnt/cachedmore"), None);
        assert_eq!(unsafe_mount("nonsense", Path::new("/")), None);
    }

    #[test]
    fn this_machine_has_a_table_that_is_understood() {
        assert!(check(&std::env::temp_dir()).is_ok());
    }
}
