//! From a command line to options, or to what else the command line asks for.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nuthatch_protocol::config::{Loader, Source, parse};

use super::draft::{Draft, Invocation};
use super::error::{FlagError, OptionsError};
use super::flags::{FlagValue, Given};
use super::read::ConfigReader;
use super::{ClusterSettings, Options, check, command_line, file, flags};

/// Largest configuration file that is read.
pub const MAX_CONFIG_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Command of a command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Run a server with these options.
    Serve(Box<Options>),
    /// `-t`: read the certificates too, say that the configuration file is valid, and exit.
    TestConfig {
        /// The file.
        file: PathBuf,
        /// The options, with [`Options::warnings`].
        options: Box<Options>,
    },
    /// `-v`: print the version, and exit.
    Version,
    /// `-h`: print this text, and exit.
    Help(String),
    /// `-sl`: send a signal to a running server, and exit.
    Signal {
        /// Which one.
        signal: SignalCommand,
        /// To whom.
        target: SignalTarget,
    },
}

/// The commands of `-sl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalCommand {
    /// `stop`: SIGKILL.
    Stop,
    /// `quit`: SIGINT.
    Quit,
    /// `term`: SIGTERM.
    Term,
    /// `reopen`: SIGUSR1, open the log file anew.
    Reopen,
    /// `reload`: SIGHUP, read the configuration anew.
    Reload,
    /// `ldm`: SIGUSR2, become a lame duck.
    LameDuck,
    /// `clock`: SIGURG, the machine's clock is right.
    Clock,
}

/// Whom `-sl` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// The process with this id.
    Pid(u32),
    /// The only running server on this machine.
    OnlyServer,
}

impl Options {
    /// Reads the arguments after the program's name, and the configuration file that they name.
    ///
    /// Call it again with the same arguments to reload.
    ///
    /// # Errors
    /// What is wrong, in words for the person who wrote it; see [`OptionsError`].
    pub fn load(invocation: Invocation, args: &[String]) -> Result<Command, OptionsError> {
        load_with(invocation, args, &mut FileLoader)
    }

    /// [`Options::load`] for a server that runs with these options: its listeners stay where they
    /// are.
    ///
    /// # Errors
    /// As [`Options::load`].
    pub fn load_again(
        &self,
        invocation: Invocation,
        args: &[String],
    ) -> Result<Command, OptionsError> {
        load_again(invocation, args, &mut FileLoader, self)
    }
}

/// [`Options::load`] with files and environment from elsewhere.
///
/// # Errors
/// As [`Options::load`].
pub fn load_with(
    invocation: Invocation,
    args: &[String],
    loader: &mut dyn Loader,
) -> Result<Command, OptionsError> {
    load_beside(invocation, args, loader, None)
}

/// [`load_with`] for a server that runs with `old` options: its listeners stay where they are.
///
/// # Errors
/// As [`Options::load`].
pub fn load_again(
    invocation: Invocation,
    args: &[String],
    loader: &mut dyn Loader,
    old: &Options,
) -> Result<Command, OptionsError> {
    load_beside(invocation, args, loader, Some(old))
}

fn load_beside(
    invocation: Invocation,
    args: &[String],
    loader: &mut dyn Loader,
    old: Option<&Options>,
) -> Result<Command, OptionsError> {
    let given = flags::parse(args)?;
    if let Some(command) = immediate_command(invocation, &given)? {
        return Ok(command);
    }
    let mut draft = Draft::default();
    let config_file = last_text(&given, "config").filter(|path| !path.is_empty());
    if let Some(path) = config_file {
        read_file(path, loader, &mut draft)?;
    }
    command_line::apply(&given, &mut draft)?;
    if draft.cluster.names_nothing() {
        let text = "flag '-cluster_name' has no effect: this server is alone";
        draft.options.warnings.push(text.to_owned());
    }
    let cluster = std::mem::take(&mut draft.cluster)
        .finish(invocation, draft.options.server_name.as_deref())?;
    let mut options = draft.finish(invocation, old);
    options.warnings.extend(cluster.as_ref().and_then(ClusterSettings::exposure));
    options.cluster = cluster;
    if options.cluster.is_some() && options.jetstream.sync != super::SyncPolicy::Always {
        let text = "sync_interval does nothing for the quorum log: what is acknowledged is durable on a majority";
        options.warnings.push(text.to_owned());
    }
    check::check(&options)?;
    if !is_on(&given, "t") {
        return Ok(Command::Serve(Box::new(options)));
    }
    match options.config_file.clone() {
        Some(file) => Ok(Command::TestConfig { file, options: Box::new(options) }),
        None => Err(FlagError::NothingToTest.into()),
    }
}

/// Commands that need no options, in nats-server's order of precedence.
fn immediate_command(
    invocation: Invocation,
    given: &[Given],
) -> Result<Option<Command>, OptionsError> {
    if is_on(given, "version") {
        return Ok(Some(Command::Version));
    }
    if is_on(given, "help") || is_on(given, "help_tls") {
        let program = match invocation {
            Invocation::Nuthatch => "nuthatch serve",
            Invocation::NatsServer => "nats-server",
        };
        return Ok(Some(Command::Help(flags::help(program))));
    }
    match last_text(given, "signal").filter(|text| !text.is_empty()) {
        Some(text) => Ok(Some(signal(text)?)),
        None => Ok(None),
    }
}

fn is_on(given: &[Given], name: &str) -> bool {
    let last = given.iter().rev().find(|g| g.flag.names[0] == name);
    last.is_some_and(|g| g.value == FlagValue::Bool(true))
}

fn last_text<'g>(given: &'g [Given], name: &str) -> Option<&'g str> {
    let last = given.iter().rev().find(|g| g.flag.names[0] == name);
    match last.map(|g| &g.value) {
        Some(FlagValue::Text(text)) => Some(text),
        _ => None,
    }
}

fn read_file(path: &str, loader: &mut dyn Loader, draft: &mut Draft) -> Result<(), OptionsError> {
    let source =
        loader.load(path, "").map_err(|why| OptionsError::Read { path: path.to_owned(), why })?;
    let map = parse(&source.name, &source.text, loader)?;
    let mut reader = ConfigReader::default();
    file::read(&mut reader, &map, draft);
    if !reader.problems.is_empty() {
        return Err(OptionsError::Config(reader.problems));
    }
    draft.options.warnings = reader.warnings;
    draft.options.config_file = Some(PathBuf::from(path));
    Ok(())
}

/// `cmd`, `cmd=pid` or `cmd=pidfile`.
fn signal(text: &str) -> Result<Command, FlagError> {
    let (command, process) = match text.split_once('=') {
        Some((command, process)) => (command, Some(process)),
        None => (text, None),
    };
    let signal = match command {
        "stop" => SignalCommand::Stop,
        "quit" => SignalCommand::Quit,
        "term" => SignalCommand::Term,
        "reopen" => SignalCommand::Reopen,
        "reload" => SignalCommand::Reload,
        "ldm" => SignalCommand::LameDuck,
        "clock" => SignalCommand::Clock,
        _ => return Err(FlagError::UnknownSignal { found: command.to_owned() }),
    };
    let target = match process {
        None | Some("") => SignalTarget::OnlyServer,
        Some(process) => SignalTarget::Pid(process_id(process)?),
    };
    Ok(Command::Signal { signal, target })
}

/// A process id, or the one in a file: a file of that name comes first, as in nats-server.
fn process_id(text: &str) -> Result<u32, FlagError> {
    let in_file = read_limited(Path::new(text)).ok();
    let digits = in_file.as_deref().unwrap_or(text).trim();
    // Ids 0 and below would address whole groups of processes.
    digits.parse().ok().filter(|&pid: &u32| pid > 0).ok_or_else(|| {
        let why = match &in_file {
            Some(content) => {
                let shown: String = content.trim().chars().take(40).collect();
                format!(": it holds '{shown}'")
            }
            None => String::new(),
        };
        FlagError::BadPid { found: text.to_owned(), why }
    })
}

/// Reads configuration files from disk and variables from the environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileLoader;

impl Loader for FileLoader {
    fn load(&mut self, path: &str, from: &str) -> Result<Source, String> {
        let directory = Path::new(from).parent().unwrap_or(Path::new(""));
        // Joining an absolute path yields that path.
        let full = directory.join(path);
        let text = read_limited(&full)?;
        Ok(Source { name: full.to_string_lossy().into_owned(), text })
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

pub(super) fn read_limited(path: &Path) -> Result<String, String> {
    let describe = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => e.to_string(),
    };
    let file = File::open(path).map_err(describe)?;
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(describe)?;
    if bytes.len() as u64 > MAX_CONFIG_FILE_BYTES {
        return Err(format!("it is larger than {MAX_CONFIG_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}
