//! Contexts: named settings in files, in the place and form of the `nats` command, so that each can
//! use what the other has made: `$XDG_CONFIG_HOME/nats` or `~/.config/nats`, there
//! `context/NAME.json`, and `context.txt` with the name of the selected one.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings that a context may hold and this client cannot honour; a context that has one is
/// refused rather than half used.
const UNSUPPORTED: [&str; 4] = ["nsc", "socks_proxy", "user_jwt", "windows_cert_store"];

/// The settings of one context; an empty text means unset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Words about it.
    pub description: String,
    /// Server addresses, separated by commas.
    pub url: String,
    /// Token.
    pub token: String,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// Path of a credentials file.
    pub creds: String,
    /// Path of a file with an nkey seed.
    pub nkey: String,
    /// Path of our certificate.
    pub cert: String,
    /// Path of its key.
    pub key: String,
    /// Path of the authorities' certificates.
    pub ca: String,
    /// JetStream domain.
    pub jetstream_domain: String,
    /// What JetStream's API subjects begin with.
    pub jetstream_api_prefix: String,
    /// What reply subjects begin with.
    pub inbox_prefix: String,
    /// Whether the TLS handshake comes before the greeting.
    pub tls_first: bool,
    /// What other programs keep there; written back as it was.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Why a context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// Neither `XDG_CONFIG_HOME` nor `HOME` is set.
    #[error("contexts have no place: neither XDG_CONFIG_HOME nor HOME is set")]
    NoHome,
    /// A name that cannot be a file's.
    #[error("{0:?} is no context name: it must not be empty nor contain / \\ or ..")]
    BadName(String),
    /// There is none of this name.
    #[error("there is no context {name:?}; known are: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Its file is not what it should be.
    #[error("the context file {} is of no use: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It needs something that this client does not have.
    #[error(
        "context {name:?} sets {setting:?}, which this command does not support; use a context \
         without it, or --no-context"
    )]
    Unsupported {
        /// Its name.
        name: String,
        /// The setting.
        setting: &'static str,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The directory with the contexts.
#[derive(Debug, Clone)]
pub struct Store {
    /// `…/nats`; nothing when there is no home, which matters only when contexts are asked for.
    dir: Option<PathBuf>,
}

impl Store {
    /// The store of the user who runs this.
    pub fn open() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let config = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")));
        Self { dir: config.map(|config| config.join("nats")) }
    }

    /// A store in a directory of choice.
    pub fn at(dir: &Path) -> Self {
        Self { dir: Some(dir.to_owned()) }
    }

    fn dir(&self) -> Result<&Path, ContextError> {
        self.dir.as_deref().ok_or(ContextError::NoHome)
    }

    /// Where a context's file is, whether it exists or not.
    ///
    /// # Errors
    /// When the name cannot be a file's.
    pub fn path(&self, name: &str) -> Result<PathBuf, ContextError> {
        if name.is_empty() || name.contains(['/', '\\']) || name.contains("..") {
            return Err(ContextError::BadName(name.into()));
        }
        Ok(self.dir()?.join("context").join(format!("{name}.json")))
    }

    fn selection(&self) -> Result<PathBuf, ContextError> {
        Ok(self.dir()?.join("context.txt"))
    }

    /// The names of all contexts, sorted.
    ///
    /// # Errors
    /// When the directory exists and cannot be read.
    pub fn names(&self) -> Result<Vec<String>, ContextError> {
        let dir = self.dir()?.join("context");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ContextError::File { path: dir, source }),
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The selected context's name; nothing when none is, or when it is gone.
    ///
    /// # Errors
    /// When the selection exists and cannot be read.
    pub fn selected(&self) -> Result<Option<String>, ContextError> {
        if self.dir.is_none() {
            return Ok(None);
        }
        let path = self.selection()?;
        match fs::read_to_string(&path) {
            Ok(text) => {
                let name = text.trim();
                let known = self.path(name).is_ok_and(|path| path.is_file());
                Ok(known.then(|| name.to_owned()))
            }
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ContextError::File { path, source }),
        }
    }

    /// The context that is named, a path to a `.json` file included, else the selected one.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or sets something that is not supported.
    pub fn wanted(&self, name: &Option<String>) -> Result<Option<Context>, ContextError> {
        let (name, context) = match name.as_deref().filter(|name| !name.is_empty()) {
            Some(file) if file.ends_with(".json") && Path::new(file).is_file() => {
                (file.to_owned(), read(Path::new(file))?)
            }
            Some(name) => (name.to_owned(), self.load(name)?),
            None => match self.selected()? {
                Some(name) => {
                    let context = self.load(&name)?;
                    (name, context)
                }
                None => return Ok(None),
            },
        };
        let is_set = |setting: &&&str| {
            context.other.get(**setting).and_then(Value::as_str).is_some_and(|v| !v.is_empty())
        };
        match UNSUPPORTED.iter().find(is_set) {
            Some(setting) => Err(ContextError::Unsupported { name, setting }),
            None => Ok(Some(context)),
        }
    }

    /// Reads a context.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn load(&self, name: &str) -> Result<Context, ContextError> {
        let path = self.path(name)?;
        if !path.is_file() {
            let known = self.names()?.join(", ");
            let known = if known.is_empty() { "none".into() } else { known };
            return Err(ContextError::Unknown { name: name.into(), known });
        }
        read(&path)
    }

    /// Writes a context, for the user's eyes only: it may hold a password.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, name: &str, context: &Context) -> Result<PathBuf, ContextError> {
        let path = self.path(name)?;
        let text = serde_json::to_string_pretty(context)
            .map_err(|err| ContextError::Malformed { path: path.clone(), why: err.to_string() })?;
        write_private(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Removes a context, and its selection.
    ///
    /// # Errors
    /// When it does not exist or cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), ContextError> {
        self.load_path(name).and_then(|path| {
            fs::remove_file(&path).map_err(|source| ContextError::File { path, source })
        })?;
        let selection = self.selection()?;
        if fs::read_to_string(&selection).is_ok_and(|text| text.trim() == name) {
            self.unselect()?;
        }
        Ok(())
    }

    fn load_path(&self, name: &str) -> Result<PathBuf, ContextError> {
        let path = self.path(name)?;
        if path.is_file() { Ok(path) } else { self.load(name).map(|_| path) }
    }

    /// Makes a context the one to use when none is named.
    ///
    /// # Errors
    /// When it does not exist or the choice cannot be written.
    pub fn select(&self, name: &str) -> Result<(), ContextError> {
        self.load_path(name)?;
        write_private(&self.selection()?, name.as_bytes())
    }

    /// Ends the selection.
    ///
    /// # Errors
    /// When it exists and cannot be removed.
    pub fn unselect(&self) -> Result<(), ContextError> {
        let path = self.selection()?;
        match fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(ContextError::File { path, source })
            }
            _ => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<Context, ContextError> {
    let text = fs::read_to_string(path)
        .map_err(|source| ContextError::File { path: path.to_owned(), source })?;
    serde_json::from_str(&text)
        .map_err(|err| ContextError::Malformed { path: path.to_owned(), why: err.to_string() })
}

/// Writes beside and renames, so that a crash leaves the old or the new file.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), ContextError> {
    let written = || {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let fresh = path.with_extension(format!("new-{}", std::process::id()));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(bytes)?;
        fs::rename(&fresh, path)
    };
    written().map_err(|source| ContextError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str) -> (PathBuf, Store) {
        let dir =
            std::env::temp_dir().join(format!("nuthatch-context-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        (dir.clone(), Store::at(&dir))
    }

    #[test]
    fn made_selected_removed() {
        let (dir, store) = store("life");
        assert!(store.names().unwrap().is_empty());
        assert_eq!(store.wanted(&None).unwrap(), None);
        let context = Context { url: "nats://a".into(), ..Context::default() };
        store.save("one", &context).unwrap();
        store.select("one").unwrap();
        assert_eq!(store.selected().unwrap().as_deref(), Some("one"));
        assert_eq!(store.wanted(&None).unwrap(), Some(context));
        assert!(matches!(store.wanted(&Some("two".into())), Err(ContextError::Unknown { .. })));
        store.remove("one").unwrap();
        assert_eq!(store.selected().unwrap(), None);
        for bad in ["", "../x", "a/b"] {
            assert!(matches!(store.path(bad), Err(ContextError::BadName(_))), "{bad}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    /// A file as natscli 0.3 writes it keeps everything through a change of ours.
    #[test]
    fn files_of_the_nats_command() {
        let (dir, store) = store("foreign");
        let text = r#"{"description":"d","url":"nats://h:1","socks_proxy":"","token":"","user":"u",
            "password":"p","creds":"","nkey":"","cert":"","key":"","ca":"","nsc":"",
            "jetstream_domain":"","jetstream_api_prefix":"","jetstream_event_prefix":"",
            "inbox_prefix":"","user_jwt":"","color_scheme":"red","tls_first":false}"#;
        fs::create_dir_all(dir.join("context")).unwrap();
        fs::write(dir.join("context/x.json"), text).unwrap();
        let context = store.wanted(&Some("x".into())).unwrap().unwrap();
        assert_eq!((context.url.as_str(), context.user.as_str()), ("nats://h:1", "u"));
        store.save("y", &context).unwrap();
        let again: Value =
            serde_json::from_str(&fs::read_to_string(dir.join("context/y.json")).unwrap()).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
        fs::write(dir.join("context/z.json"), r#"{"nsc":"nsc://o/a/u"}"#).unwrap();
        let refused = store.wanted(&Some("z".into()));
        assert!(matches!(refused, Err(ContextError::Unsupported { setting: "nsc", .. })));
        fs::remove_dir_all(dir).unwrap();
    }
}
