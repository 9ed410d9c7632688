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

/// Hexadecimal digits in the name of a fence.
const FENCE_DIGITS: usize = 16;

/// Decimal digits in the name of a version of the catalog.
const CATALOG_DIGITS: usize = 20;

/// Stands for `/` in a file's name, so that every file is one directory of objects.
const SLASH: &str = "!";

/// Key of the fence of an epoch.
#[must_use]
pub fn fence(epoch: u32) -> String {
    format!("{FENCES}/{epoch:016x}")
}

/// Key of the note that the owner of an epoch has closed the log and writes nothing any more.
#[must_use]
pub fn left(epoch: u32) -> String {
    format!("{LEFT}/{epoch:016x}")
}

/// The epoch of such a note's key.
#[must_use]
pub fn left_epoch(key: &str) -> Option<u32> {
    let epoch = u32::from_str_radix(key.strip_prefix(LEFT)?.strip_prefix('/')?, 16).ok()?;
    (left(epoch) == key).then_some(epoch)
}

/// What a key below a directory of numbered objects is. Every version gives them names of this form,
/// so that a server of any version meets the fence of the next owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbered<N> {
    /// One of the log's objects.
    Ours(N),
    /// It has the form of one, and a number that this program cannot count to.
    Unreadable,
    /// Nothing of the log's: a file of another tool.
    Stranger,
}

/// What the key of an object below [`FENCES`] is: a fence's epoch, for one.
#[must_use]
pub fn fence_key(key: &str) -> Numbered<u32> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    numbered(key, FENCES, FENCE_DIGITS, is_digit, |digits| u32::from_str_radix(digits, 16).ok())
}

/// Key of a version of the catalog.
#[must_use]
pub fn catalog(version: u64) -> String {
    format!("{CATALOGS}/{version:020}")
}

/// What the key of an object below [`CATALOGS`] is: the number of a version, for one.
#[must_use]
pub fn catalog_key(key: &str) -> Numbered<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    numbered(key, CATALOGS, CATALOG_DIGITS, is_digit, |digits| digits.parse().ok())
}

fn numbered<N>(
    key: &str,
    dir: &str,
    digits: usize,
    is_digit: impl Fn(u8) -> bool,
    parse: impl Fn(&str) -> Option<N>,
) -> Numbered<N> {
    let name = key.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/'));
    match name.filter(|name| name.len() == digits && name.bytes().all(is_digit)) {
        None => Numbered::Stranger,
        Some(name) => parse(name).map_or(Numbered::Unreadable, Numbered::Ours),
    }
}

/// Key of a part of a file: what `epoch` wrote from `offset` on.
#[must_use]
pub fn part(file: &str, offset: u64, epoch: u32) -> String {
    format!("{DATA}/{}/{offset:016x}.{epoch:08x}", file.replace('/', SLASH))
}

/// Key of what `epoch` made of a file that others had begun.
#[must_use]
pub fn manifest(file: &str, epoch: u32) -> String {
    format!("{DATA}/{}/manifest.{epoch:08x}", file.replace('/', SLASH))
}

/// Meaning of a key below [`DATA`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataKey {
    /// A part of a file.
    Part {
        /// The file.
        file: String,
        /// Where in the file it begins.
        offset: u64,
        /// Epoch of its writer.
        epoch: u32,
    },
    /// A manifest of a file.
    Manifest {
        /// The file.
        file: String,
        /// Epoch of its writer.
        epoch: u32,
    },
}

/// Reads the key of an object below [`DATA`]; `None` if it is not one of ours, to the letter.
#[must_use]
pub fn data_key(key: &str) -> Option<DataKey> {
    let read = read_data_key(key)?;
    let ours = match &read {
        DataKey::Part { file, offset, epoch } => part(file, *offset, *epoch),
        DataKey::Manifest { file, epoch } => manifest(file, *epoch),
    };
    (ours == key).then_some(read)
}

fn read_data_key(key: &str) -> Option<DataKey> {
    let rest = key.strip_prefix(DATA)?.strip_prefix('/')?;
    let (file, name) = rest.rsplit_once('/')?;
    let (what, epoch) = name.split_once('.')?;
    let file = file.replace(SLASH, "/");
    let epoch = u32::from_str_radix(epoch, 16).ok()?;
    if what == "manifest" {
        return Some(DataKey::Manifest { file, epoch });
    }
    let offset = u64::from_str_radix(what, 16).ok()?;
    Some(DataKey::Part { file, offset, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let file = "torn/0000-00.seg-7".to_owned();
        assert_eq!(
            data_key(&part(&file, 4096, 7)),
            Some(DataKey::Part { file: file.clone(), offset: 4096, epoch: 7 })
        );
        assert_eq!(data_key(&manifest(&file, 7)), Some(DataKey::Manifest { file, epoch: 7 }));
        assert_eq!(fence_key(&fence(31)), Numbered::Ours(31));
        assert_eq!(left_epoch(&left(31)), Some(31));
        assert_eq!(catalog_key(&catalog(12)), Numbered::Ours(12));
        let foreign = ["data/x", "data/x/y", "data/x/1.zz", "fence/1", "data//", "data/x/0.1"];
        let nested = "data/x/y/0000000000000000.00000001";
        for foreign in foreign.into_iter().chain([nested, "data/x/0000000000000000.00000001~"]) {
            assert_eq!(data_key(foreign), None, "{foreign}");
        }
        assert_eq!(left_epoch("left/ff"), None);
    }

    #[test]
    fn strangers_are_told_from_names_that_cannot_be_read() {
        for stranger in [
            "fence/1",
            "fence/+000000000000001",
            "fence/000000000000000A",
            "fence/0000000000000009.v2",
            "fence/.0000000000000009.swp",
            "fence/0000000000000009~",
            "fence/0000000000000009/x",
            "fence",
        ] {
            assert_eq!(fence_key(stranger), Numbered::Stranger, "{stranger}");
        }
        for stranger in ["catalog/next", "catalog/1", "catalog/00000000000000000007.tmp"] {
            assert_eq!(catalog_key(stranger), Numbered::Stranger, "{stranger}");
        }
        assert_eq!(fence_key("fence/0000000100000000"), Numbered::Unreadable);
        assert_eq!(catalog_key("catalog/99999999999999999999"), Numbered::Unreadable);
    }

    #[test]
    fn keys_sort_as_their_numbers() {
        assert!(part("f", 9, 1) < part("f", 10, 1));
        assert!(catalog(9) < catalog(10));
        assert!(fence(9) < fence(10));
    }
}
