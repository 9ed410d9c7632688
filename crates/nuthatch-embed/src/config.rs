//! What a broker is opened with: the text of a configuration file, and what only an embedded broker has.

use nuthatch_protocol::config::{Loader, Source};
use nuthatch_server::options::{
    Command, FileLoader, Invocation, LogStore, MAX_CONFIG_FILE_BYTES, Options, load_with,
};
use std::path::{Path, PathBuf};

/// Name of a text that is no file, in messages.
const TEXT_NAME: &str = "configuration";

/// Why a configuration is of no use. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not understood, or its settings do not fit each other.
    #[error("{0}")]
    Options(String),
    /// A setting that belongs to a process of its own.
    #[error("{key}: {why}")]
    NotEmbedded {
        /// The setting.
        key: &'static str,
        /// Why an embedded broker does not take it, and what to do.
        why: &'static str,
    },
    /// A path cannot be made absolute: the current directory is gone.
    #[error("cannot make {} absolute: {source}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// What a broker is opened with.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) options: Options,
    pub(crate) listens: bool,
    pub(crate) logs_to_stderr: bool,
}

impl Config {
    /// The settings of `nuthatch serve`, in the text of its configuration file (`docs/configuration.md`). Paths,
    /// those of includes too, are relative to the current directory of this call.
    ///
    /// # Errors
    /// [`ConfigError`], in words for the person who wrote it.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        if text.len() as u64 > MAX_CONFIG_FILE_BYTES {
            let text = format!("it is longer than {MAX_CONFIG_FILE_BYTES} bytes");
            return Err(ConfigError::Options(text));
        }
        let mut config = Self::load(TEXT_NAME, &mut TextLoader(text))?;
        config.options.config_file = None;
        Ok(config)
    }

    /// As [`Config::from_text`], from a file; includes are relative to it.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::load(&path.to_string_lossy(), &mut FileLoader)
    }

    /// No client port: clients come through [`crate::Broker::connect`] only. Otherwise the broker listens where the
    /// text says (`port: -1`: on a free port), by default on 127.0.0.1:4222.
    #[must_use]
    pub fn without_listener(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Where the text names no `log_file`, lines go to the standard error stream instead of nowhere.
    #[must_use]
    pub fn log_to_stderr(mut self) -> Self {
        self.logs_to_stderr = true;
        self
    }

    fn load(name: &str, loader: &mut dyn Loader) -> Result<Self, ConfigError> {
        let args = ["-c".to_owned(), name.to_owned()];
        let command = load_with(Invocation::Nuthatch, &args, loader)
            .map_err(|error| ConfigError::Options(error.to_string()))?;
        let Command::Serve(options) = command else {
            return Err(ConfigError::Options("this does not start a server".to_owned()));
        };
        let mut options = *options;
        refuse_what_is_not_embedded(&options)?;
        // On by default under this name, and then a process's.
        options.console.enabled = false;
        make_paths_absolute(&mut options)?;
        Ok(Self { options, listens: true, logs_to_stderr: false })
    }
}

/// Settings of which a process has one, or that need one.
fn refuse_what_is_not_embedded(options: &Options) -> Result<(), ConfigError> {
    let refused = [
        (
            options.console.enabled && !options.console.by_default,
            "console",
            "the web console is a part of the program `nuthatch`: leave it out",
        ),
        (options.pid_file.is_some(), "pid_file", "the process is that of the host: leave it out"),
        (
            options.ports_file_dir.is_some(),
            "ports_file_dir",
            "the host asks the broker for its port: leave it out",
        ),
    ];
    match refused.into_iter().find(|(is_set, ..)| *is_set) {
        Some((_, key, why)) => Err(ConfigError::NotEmbedded { key, why }),
        None => Ok(()),
    }
}

/// The host may change its current directory later.
fn make_paths_absolute(options: &mut Options) -> Result<(), ConfigError> {
    make_absolute(&mut options.jetstream.store_dir)?;
    options.log.file.as_mut().map(make_absolute).transpose()?;
    let key = options.cluster.as_mut().and_then(|cluster| cluster.key.as_mut());
    key.map(make_absolute).transpose()?;
    for log in &mut options.jetstream.logs {
        if let LogStore::Directory(Some(dir)) = &mut log.home {
            make_absolute(dir)?;
        }
    }
    Ok(())
}

fn make_absolute(path: &mut PathBuf) -> Result<(), ConfigError> {
    *path = std::path::absolute(&path)
        .map_err(|source| ConfigError::Path { path: path.clone(), source })?;
    Ok(())
}

/// One text from memory, and what it includes from files.
struct TextLoader<'a>(&'a str);

impl Loader for TextLoader<'_> {
    fn load(&mut self, path: &str, from: &str) -> Result<Source, String> {
        if from.is_empty() && path == TEXT_NAME {
            return Ok(Source { name: TEXT_NAME.to_owned(), text: self.0.to_owned() });
        }
        FileLoader.load(path, from)
    }

    fn env(&self, name: &str) -> Option<String> {
        FileLoader.env(name)
    }
}
