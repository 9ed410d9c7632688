//! Objects that are numbered: fences, and versions of the catalog; and what else lies among them.

use crate::bucket::Bucket;
use crate::names::{CATALOGS, FENCES, Numbered, catalog_key, fence_key};
use crate::rules;
use std::io;

/// The numbers of the objects below a directory, ascending, and the keys there that are of no object
/// of a log's.
///
/// # Errors
/// The store's; `InvalidData` if a key claims to be one of the log's and cannot be read: it may be
/// that of an owner of a later version, which must not be passed over.
pub fn numbered<N: Ord>(
    bucket: &Bucket,
    dir: &str,
    what: &str,
    read: impl Fn(&str) -> Numbered<N>,
) -> io::Result<(Vec<N>, Vec<String>)> {
    let (mut numbers, mut strangers) = (Vec::new(), Vec::new());
    for listed in bucket.list(dir)? {
        match read(&listed.key) {
            Numbered::Ours(number) => numbers.push(number),
            Numbered::Unreadable if rules::STRANGERS_REFUSED.holds() => {
                return Err(unreadable_key(bucket, &listed.key, what));
            }
            Numbered::Unreadable | Numbered::Stranger => strangers.push(listed.key),
        }
    }
    numbers.sort_unstable();
    Ok((numbers, strangers))
}

fn unreadable_key(bucket: &Bucket, key: &str, what: &str) -> io::Error {
    let text = format!(
        "{key} in {} has the name of a {what}, with a number that this program cannot read: of a \
         later version, or damaged",
        bucket.label()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Keys among the fences and the versions of the catalog that are neither: they say nothing of the
/// log, and are left alone.
///
/// # Errors
/// Those of [`numbered`].
pub fn strangers(bucket: &Bucket) -> io::Result<Vec<String>> {
    let (_, mut strangers) = numbered(bucket, CATALOGS, "version of the catalog", catalog_key)?;
    strangers.extend(numbered(bucket, FENCES, "fence", fence_key)?.1);
    Ok(strangers)
}

/// Says that there are such keys.
///
/// # Errors
/// Those of [`numbered`].
pub fn report_strangers(bucket: &Bucket) -> io::Result<()> {
    let strangers = strangers(bucket)?;
    if let Some(first) = strangers.first() {
        let (label, count) = (bucket.label(), strangers.len());
        let what = "have names that no log gives, and are left alone";
        bucket.report(&format!("{label}: {count} objects ({first} first) {what}"));
    }
    Ok(())
}
