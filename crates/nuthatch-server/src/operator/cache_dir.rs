//! Files of the tokens of accounts that came from other servers (`type: cache`): a file's time of
//! modification is when it was last used.

use super::store::{StoreError, StoredToken, path_of, read_account, write_whole};
use crate::options::CacheResolver;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::SystemTime;

/// A directory of them. Its methods block.
pub(crate) struct CacheDir {
    options: CacheResolver,
    /// Held while files are counted and removed.
    changing: Mutex<()>,
}

impl CacheDir {
    pub(super) fn new(options: CacheResolver) -> Self {
        Self { options, changing: Mutex::default() }
    }

    pub(super) fn create(&self) -> Result<(), StoreError> {
        let dir = &self.options.dir;
        nuthatch_log::env::create_dirs(dir).map_err(StoreError::io("cannot create", dir))
    }

    /// The token of an account, which is used now; `None`: it is not there, too old, or of no use.
    pub(crate) fn take(&self, key: &str) -> Option<StoredToken> {
        let path = path_of(&self.options.dir, key);
        let used = fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
        if self.is_over(used, SystemTime::now()) {
            return None;
        }
        let stored = read_account(&path).ok()?;
        // Not to be able to say that it was used makes it go earlier, nothing else.
        let _ = File::options().append(true).open(&path).and_then(|file| {
            let now = SystemTime::now();
            file.set_modified(now)
        });
        Some(stored)
    }

    /// Keeps a token; one that was not used for the longest time goes if there are too many.
    pub(super) fn keep(&self, key: &str, jwt: &str) -> Result<(), StoreError> {
        let _held = self.changing.lock();
        let path = path_of(&self.options.dir, key);
        if !path.exists() {
            let mut files = self.files();
            files.sort_unstable();
            let room = (self.options.limit as usize).saturating_sub(1);
            let surplus = files.len().saturating_sub(room);
            for (_, oldest) in &files[..surplus] {
                fs::remove_file(oldest).map_err(StoreError::io("cannot remove", oldest))?;
            }
        }
        write_whole(&self.options.dir, key, jwt)
    }

    /// Removes what was not used for too long.
    pub(crate) fn sweep(&self) {
        let _held = self.changing.lock();
        let now = SystemTime::now();
        for (used, path) in self.files() {
            if self.is_over(used, now) {
                // It is tried again.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Forgets an account.
    pub(super) fn remove(&self, key: &str) -> Result<(), StoreError> {
        let path = path_of(&self.options.dir, key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("cannot delete", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn is_over(&self, used: SystemTime, now: SystemTime) -> bool {
        let idle = now.duration_since(used).unwrap_or_default();
        self.options.ttl.is_some_and(|ttl| idle >= ttl)
    }

    /// The files and when they were last used.
    fn files(&self) -> Vec<(SystemTime, PathBuf)> {
        let Ok(entries) = fs::read_dir(&self.options.dir) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let tokens =
            paths.filter(|path| path.extension().is_some_and(|e| e == super::store::EXTENSION));
        tokens.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn files_that_are_not_used_go() {
        let dir = std::env::temp_dir().join(format!("nuthatch-cached-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let options = CacheResolver {
            dir: dir.clone(),
            limit: 2,
            ttl: Some(Duration::from_secs(60)),
            timeout: Duration::from_secs(1),
        };
        let cache = CacheDir::new(options);
        cache.create().expect("a directory");
        let old = |name: &str, seconds| {
            let file = File::options().append(true).open(path_of(&dir, name)).expect("a file");
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("its time");
        };
        let names = || {
            let mut names: Vec<_> = cache
                .files()
                .into_iter()
                .filter_map(|(_, path)| Some(path.file_stem()?.to_owned()))
                .collect();
            names.sort_unstable();
            names
        };
        cache.keep("A", "a").expect("kept");
        cache.keep("B", "b").expect("kept");
        old("A", 10);
        old("B", 20);
        cache.keep("C", "c").expect("kept");
        assert_eq!(names(), ["A", "C"]);
        cache.keep("A", "other").expect("kept");
        assert_eq!(names(), ["A", "C"], "a newer token needs no room");
        old("C", 61);
        assert!(cache.take("C").is_none());
        cache.sweep();
        assert_eq!(names(), ["A"]);
        cache.remove("A").expect("removed");
        cache.remove("A").expect("it is not there");
        assert!(names().is_empty());
        let _ = fs::remove_dir_all(&dir);
    }
}
