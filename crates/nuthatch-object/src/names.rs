//! Keys below a log's prefix, and what they say.

/// Directory of the fences.
pub const FENCES: &str = "fence";

/// Directory of the catalog's versions.
pub const CATALOGS: &str = "catalog";

/// Directory of the notes of owners that closed the log and went.
pub const LEFT: &str = "left";

/// Directory of what trying the store out may leave.
pub const SELFTESTS: &str = "selftest";

/// Directory of the files.
pub const DATA: &str = "data";

/// Stands for `/` in a file's name, so that every file is one directory of objects.
const SLASH: &str = "!";

/// Key of the fence of a generation.
#[must_use]
pub fn fence(generation: u32) -> String {
    format!("{FENCES}/{generation:016x}")
}

/// Key of the note that the owner of a generation has closed the log and writes nothing any more.
#[must_use]
pub fn left(generation: u32) -> String {
    format!("{LEFT}/{generation:016x}")
}

/// The generation of such a note's key.
#[must_use]
pub fn left_generation(key: &str) -> Option<u32> {
    u32::from_str_radix(key.strip_prefix(LEFT)?.strip_prefix('/')?, 16).ok()
}

/// The generation of a fence's key.
#[must_use]
pub fn fence_generation(key: &str) -> Option<u32> {
    u32::from_str_radix(key.strip_prefix(FENCES)?.strip_prefix('/')?, 16).ok()
}

/// Key of a version of the catalog.
#[must_use]
pub fn catalog(version: u64) -> String {
    format!("{CATALOGS}/{version:020}")
}

/// The version of a catalog's key.
#[must_use]
pub fn catalog_version(key: &str) -> Option<u64> {
    key.strip_prefix(CATALOGS)?.strip_prefix('/')?.parse().ok()
}

/// Key of a part of a file: what `generation` wrote from `offset` on.
#[must_use]
pub fn part(file: &str, offset: u64, generation: u32) -> String {
    format!("{DATA}/{}/{offset:016x}.{generation:08x}", file.replace('/', SLASH))
}

/// Key of what `generation` made of a file that others had begun.
#[must_use]
pub fn manifest(file: &str, generation: u32) -> String {
    format!("{DATA}/{}/manifest.{generation:08x}", file.replace('/', SLASH))
}

/// What an object below [`DATA`] is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataKey {
    /// A part of a file.
    Part {
        /// The file.
        file: String,
        /// Where in the file it begins.
        offset: u64,
        /// Who wrote it.
        generation: u32,
    },
    /// A manifest of a file.
    Manifest {
        /// The file.
        file: String,
        /// Who wrote it.
        generation: u32,
    },
}

/// Reads the key of an object below [`DATA`]; `None` if it is not one of ours.
#[must_use]
pub fn data_key(key: &str) -> Option<DataKey> {
    let rest = key.strip_prefix(DATA)?.strip_prefix('/')?;
    let (file, name) = rest.rsplit_once('/')?;
    let (what, generation) = name.split_once('.')?;
    let file = file.replace(SLASH, "/");
    let generation = u32::from_str_radix(generation, 16).ok()?;
    if what == "manifest" {
        return Some(DataKey::Manifest { file, generation });
    }
    let offset = u64::from_str_radix(what, 16).ok()?;
    Some(DataKey::Part { file, offset, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let file = "torn/0000-00.seg-7".to_owned();
        assert_eq!(
            data_key(&part(&file, 4096, 7)),
            Some(DataKey::Part { file: file.clone(), offset: 4096, generation: 7 })
        );
        assert_eq!(data_key(&manifest(&file, 7)), Some(DataKey::Manifest { file, generation: 7 }));
        assert_eq!(fence_generation(&fence(31)), Some(31));
        assert_eq!(left_generation(&left(31)), Some(31));
        assert_eq!(catalog_version(&catalog(12)), Some(12));
        for foreign in ["data/x", "data/x/y", "data/x/1.zz", "fence/1", "data//"] {
            assert_eq!(data_key(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn keys_sort_as_their_numbers() {
        assert!(part("f", 9, 1) < part("f", 10, 1));
        assert!(catalog(9) < catalog(10));
        assert!(fence(9) < fence(10));
    }
}
