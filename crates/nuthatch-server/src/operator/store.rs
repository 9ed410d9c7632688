//! The tokens of accounts: in memory, or also in a directory with a file `<public nkey>.jwt` for
//! each, as nats-server keeps them.
//!
//! A file is replaced whole: written beside, flushed to the disk, renamed. A file that cannot be
//! read is named and left alone.

use super::cache_dir::CacheDir;
use crate::account_id::named_account_id;
use crate::options::{DeletePolicy, FullResolver, Resolver};
use crate::signature;
use nuthatch_protocol::jwt::{
    self, AccountClaims, ActivationClaims, JwtError, MAX_TOKEN_BYTES, account_issues,
};
use nuthatch_protocol::nkey::{KeyKind, decode_as};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most accounts that a server serves.
pub const ACCOUNTS_MAX: usize = 100_000;
pub(super) const EXTENSION: &str = "jwt";

/// Why a token cannot be kept, or the directory not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// As many accounts as there may be.
    #[error("jwt store is full: it holds {max} accounts")]
    Full {
        /// How many.
        max: usize,
    },
    /// The server that has the accounts cannot be asked.
    #[error("account resolver: {0}")]
    Resolver(String),
    /// Deleting is not allowed.
    #[error("store is not set up to for delete")]
    NoDelete,
    /// The file system said no.
    #[error("{what} {}: {source}", .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl StoreError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// The token of an account and what it says.
#[derive(Debug)]
pub(crate) struct StoredToken {
    pub(crate) jwt: String,
    pub(crate) claims: AccountClaims,
    /// Its faults, apart from its times.
    pub(crate) issues: Vec<String>,
    /// The activations of its imports: `None` without one.
    pub(crate) activations: Vec<Option<Result<ActivationClaims, JwtError>>>,
}

impl StoredToken {
    /// Reads a token.
    ///
    /// # Errors
    /// [`JwtError`]
    pub(crate) fn decode(jwt: &str) -> Result<Self, JwtError> {
        let claims: AccountClaims = jwt::decode(jwt, &signature::verify)?;
        if decode_as(KeyKind::Account, &claims.data.subject).is_none() {
            return Err(JwtError::Kind { wanted: "account" });
        }
        let imports = claims.nats.imports.iter();
        let activations = imports.map(|import| {
            (!import.token.is_empty()).then(|| jwt::decode(&import.token, &signature::verify))
        });
        let activations = activations.collect();
        let issues = account_issues(&claims);
        Ok(Self { jwt: jwt.to_owned(), claims, issues, activations })
    }

    pub(crate) fn key(&self) -> &str {
        &self.claims.data.subject
    }

    /// True if it takes the place of `other`: signed later, and another token.
    fn is_newer_than(&self, other: &Self) -> bool {
        let (new, old) = (&self.claims.data, &other.claims.data);
        new.id != old.id && new.issued_at >= old.issued_at
    }
}

/// Tokens by public nkey of the account.
pub(crate) type Accounts = BTreeMap<String, Arc<StoredToken>>;

/// The tokens of accounts.
pub(crate) struct Store {
    directory: Option<FullResolver>,
    /// What came from other servers.
    cache: Option<Arc<CacheDir>>,
    /// Accounts come when they are needed.
    fetches: bool,
    accounts: Mutex<Accounts>,
}

impl Store {
    /// An empty one, which reads nothing yet.
    pub(crate) fn new(resolver: Option<&Resolver>) -> Self {
        let directory = match resolver {
            Some(Resolver::Full(full)) => Some(full.clone()),
            Some(Resolver::Memory | Resolver::Cache(_) | Resolver::Url(_)) | None => None,
        };
        let cache = match resolver {
            Some(Resolver::Cache(cache)) => Some(Arc::new(CacheDir::new(cache.clone()))),
            _ => None,
        };
        let fetches = resolver.is_some_and(Resolver::fetches);
        Self { directory, cache, fetches, accounts: Mutex::default() }
    }

    /// True if it has a directory, so that requests may change it.
    pub(crate) fn is_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// The files of what came from other servers.
    pub(crate) fn cache(&self) -> Option<&Arc<CacheDir>> {
        self.cache.as_ref()
    }

    /// True if accounts come when they are needed.
    pub(crate) fn fetches(&self) -> bool {
        self.fetches
    }

    /// All accounts now.
    pub(crate) fn snapshot(&self) -> Accounts {
        self.accounts.lock().clone()
    }

    /// Another account that cannot be told apart from this one by the identity that streams carry.
    pub(crate) fn namesake(&self, key: &str) -> Option<String> {
        let id = named_account_id(key);
        let accounts = self.accounts.lock();
        accounts.keys().find(|k| *k != key && named_account_id(k) == id).cloned()
    }

    /// One of them.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<StoredToken>> {
        self.accounts.lock().get(key).cloned()
    }

    /// Reads everything anew: the directory, then the tokens of the configuration, where those are
    /// newer. Returns what cannot be read.
    pub(crate) fn load<'a>(
        &self,
        preload: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Vec<String>, StoreError> {
        let mut problems = Vec::new();
        let mut found = Accounts::new();
        // Held while the directory is read: a token that is saved meanwhile must not be forgotten.
        let mut accounts = self.accounts.lock();
        if let Some(cache) = &self.cache {
            cache.create()?;
        }
        if self.fetches {
            // What came is kept; it changes as accounts do.
            found = std::mem::take(&mut *accounts);
        }
        if let Some(full) = &self.directory {
            nuthatch_log::env::create_dirs(&full.dir)
                .map_err(StoreError::io("cannot create", &full.dir))?;
            read_directory(&full.dir, self.max(), &mut found, &mut problems)?;
        }
        *accounts = found;
        drop(accounts);
        for (key, token) in preload {
            match StoredToken::decode(token) {
                Ok(stored) => self.save_if_newer(stored)?,
                Err(error) => problems.push(format!("preload account error for {key:?}: {error}")),
            }
        }
        Ok(problems)
    }

    fn max(&self) -> usize {
        let limit = self.directory.as_ref().and_then(|full| full.limit);
        limit.map_or(ACCOUNTS_MAX, |limit| ACCOUNTS_MAX.min(limit as usize))
    }

    fn save_if_newer(&self, stored: StoredToken) -> Result<(), StoreError> {
        match self.get(stored.key()) {
            Some(old) if !stored.is_newer_than(&old) => Ok(()),
            _ => self.save(stored).map(drop),
        }
    }

    /// Keeps a token in place of the one that the account has. Returns whether anything changed.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub(crate) fn save(&self, stored: StoredToken) -> Result<bool, StoreError> {
        let mut accounts = self.accounts.lock();
        match accounts.get(stored.key()) {
            Some(old) if old.jwt == stored.jwt => return Ok(false),
            Some(_) => {}
            None if accounts.len() >= self.max() => {
                return Err(StoreError::Full { max: self.max() });
            }
            None => {}
        }
        if let Some(full) = &self.directory {
            write_whole(&full.dir, stored.key(), &stored.jwt)?;
        }
        if let Some(cache) = &self.cache {
            cache.keep(stored.key(), &stored.jwt)?;
        }
        accounts.insert(stored.key().to_owned(), Arc::new(stored));
        Ok(true)
    }

    /// Forgets an account; its file goes the way that is configured.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing has changed.
    pub(crate) fn delete(&self, key: &str) -> Result<(), StoreError> {
        let mut accounts = self.accounts.lock();
        if let Some(cache) = &self.cache {
            cache.remove(key)?;
            accounts.remove(key);
            return Ok(());
        }
        let Some(full) = &self.directory else { return Err(StoreError::NoDelete) };
        let path = path_of(&full.dir, key);
        let done = match full.delete {
            DeletePolicy::Refused => return Err(StoreError::NoDelete),
            DeletePolicy::Renamed => {
                fs::rename(&path, full.dir.join(format!("{key}.{EXTENSION}.deleted")))
            }
            DeletePolicy::Removed => fs::remove_file(&path),
        };
        match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("cannot delete", &path)(error));
            }
            _ => sync_directory(&full.dir)?,
        }
        accounts.remove(key);
        Ok(())
    }

    /// True if requests to delete are honoured.
    pub(crate) fn may_delete(&self) -> bool {
        let policy = self.directory.as_ref().map(|full| full.delete);
        self.cache.is_some() || policy.is_some_and(|policy| policy != DeletePolicy::Refused)
    }
}

pub(super) fn path_of(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("{key}.{EXTENSION}"))
}

fn read_directory(
    dir: &Path,
    max: usize,
    found: &mut Accounts,
    problems: &mut Vec<String>,
) -> Result<(), StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("cannot list", dir))?;
    for entry in entries {
        let path = entry.map_err(StoreError::io("cannot list", dir))?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        if found.len() >= max {
            problems.push(format!("more than {max} accounts are in {}", dir.display()));
            break;
        }
        match read_account(&path) {
            Ok(stored) => {
                found.insert(stored.key().to_owned(), Arc::new(stored));
            }
            Err(why) => problems.push(format!(
                "the account in {} is not served: {why}; the file was left as it is",
                path.display()
            )),
        }
    }
    Ok(())
}

pub(super) fn read_account(path: &Path) -> Result<StoredToken, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let stored = StoredToken::decode(text.trim()).map_err(|error| error.to_string())?;
    if path.file_stem().is_none_or(|stem| stem != stored.key()) {
        return Err(format!("it is that of {}", stored.key()));
    }
    Ok(stored)
}

/// Replaces the file of an account: after a crash there is the old one or the new one.
pub(super) fn write_whole(dir: &Path, key: &str, jwt: &str) -> Result<(), StoreError> {
    let beside = dir.join(format!(".{key}.tmp"));
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(jwt.as_bytes())?;
        file.sync_all()
    };
    write().map_err(StoreError::io("cannot write", &beside))?;
    let path = path_of(dir, key);
    fs::rename(&beside, &path).map_err(StoreError::io("cannot write", &path))?;
    sync_directory(dir)
}

fn sync_directory(dir: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(StoreError::io("cannot flush", dir))
}
