//! Completions: a shell asks this binary how a line goes on, so that it can name what there is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use clap::{ArgMatches, Command, FromArgMatches};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::Shells;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::connect::context::Store;
use serde_json::Value;

use crate::error::CliError;
use crate::session::Session;

/// Tells that a shell asks, and which.
const VARIABLE: &str = "NUTHATCH_COMPLETE";
/// The command that scripts complete and call.
const PROGRAM: &str = "nuthatch";
/// Nobody waits longer for a server after a key.
const LIMIT: Duration = Duration::from_secs(1);

/// Makes the definition of the command line.
type Definition = fn() -> Command;

/// Names that stand for something that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Streams,
    /// Of the stream that the line names.
    Consumers,
    /// Streams whose names begin so, without that.
    Buckets(&'static str),
    Contexts,
}

/// Answers a shell that asks, and ends the process; else returns.
pub fn answer(definition: Definition) {
    CompleteEnv::with_factory(|| with_names(definition(), "", definition))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .complete();
}

/// Writes the script that makes a shell ask.
///
/// # Errors
/// The shell is not known, or the output is gone.
pub fn script(shell: &str, out: &mut dyn io::Write) -> Result<(), CliError> {
    let shells = Shells::builtins();
    let unknown = || CliError::Usage(format!("there are no completions for {shell}"));
    let completer = shells.completer(shell).ok_or_else(unknown)?;
    Ok(completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, out)?)
}

/// Gives arguments that name something the names of what there is. `area` is the first word of the
/// command.
fn with_names(command: Command, area: &str, definition: Definition) -> Command {
    let name = command.get_name().to_owned();
    // What a command creates has no name yet.
    let is_new = |names: Names| match names {
        Names::Streams => name == "add" && area == "stream",
        Names::Consumers | Names::Buckets(_) => name == "add",
        Names::Contexts => false,
    };
    let command = command.mut_args(|arg| {
        if name == "serve" {
            return arg.add(ArgValueCompleter::new(ServerFlags));
        }
        match meant_by(arg.get_id().as_str(), area) {
            Some(names) if !is_new(names) => {
                arg.add(ArgValueCandidates::new(move || candidates(names, definition)))
            }
            _ => arg,
        }
    });
    command.mut_subcommands(|sub| {
        let name = sub.get_name().to_owned();
        with_names(sub, if area.is_empty() { &name } else { area }, definition)
    })
}

fn meant_by(id: &str, area: &str) -> Option<Names> {
    match (id, area) {
        ("stream" | "streams", _) => Some(Names::Streams),
        ("consumer", _) => Some(Names::Consumers),
        ("bucket", "kv") => Some(Names::Buckets("KV_")),
        ("bucket", "object") => Some(Names::Buckets("OBJ_")),
        ("context", _) => Some(Names::Contexts),
        _ => None,
    }
}

/// The names there are; none when they cannot be had, as nobody reads an error here.
fn candidates(names: Names, definition: Definition) -> Vec<CompletionCandidate> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let found = found(names, words.collect(), definition).unwrap_or_default();
    found.into_iter().map(CompletionCandidate::new).collect()
}

fn found(names: Names, line: Vec<OsString>, definition: Definition) -> Option<Vec<String>> {
    if names == Names::Contexts {
        return Store::open().names().ok();
    }
    let matches = definition().ignore_errors(true).try_get_matches_from(line).ok()?;
    let mut connect = ConnectArgs::from_arg_matches(&matches).ok()?.resolve().ok()?;
    connect.timeout = connect.timeout.min(LIMIT);
    let mut session = Session::open(&connect).ok()?;
    let (list, field, prefix) = match names {
        Names::Consumers => {
            let stream = named_stream(&matches)?;
            crate::input::check_name("stream", &stream).ok()?;
            (format!("CONSUMER.NAMES.{stream}"), "consumers", "")
        }
        Names::Buckets(prefix) => ("STREAM.NAMES".to_owned(), "streams", prefix),
        Names::Streams | Names::Contexts => ("STREAM.NAMES".to_owned(), "streams", ""),
    };
    let page = session.api(&list, &Value::Null).ok()?;
    let names = page[field].as_array()?.iter().filter_map(Value::as_str);
    Some(names.filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned).collect())
}

/// The stream that the line names already.
fn named_stream(matches: &ArgMatches) -> Option<String> {
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches.try_get_one::<String>("stream").ok().flatten().cloned()
}

/// The server's flags, whose form is not that of other commands; else files.
struct ServerFlags;

impl ValueCompleter for ServerFlags {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let word = current.to_string_lossy();
        if !word.is_empty() && !word.starts_with('-') {
            return PathCompleter::any().complete(current);
        }
        let help = crate::serve::help();
        let flags = help.lines().filter(|line| line.starts_with("  -")).flat_map(flags_in);
        flags
            .filter(|(flag, _)| flag.starts_with(&*word))
            .map(|(flag, line)| CompletionCandidate::new(flag).help(Some(line.to_owned().into())))
            .collect()
    }
}

/// The flags that a line of the help is about, each with the line.
fn flags_in(line: &str) -> Vec<(String, &str)> {
    let words = line.split_whitespace().take_while(|word| word.starts_with('-'));
    words.map(|word| (word.trim_end_matches(',').to_owned(), line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_server() {
        let offered = |word: &str| -> Vec<String> {
            let candidates = ServerFlags.complete(OsStr::new(word));
            candidates.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect()
        };
        assert!(offered("-s").contains(&"-sd".to_owned()), "{:?}", offered("-s"));
        assert_eq!(offered("--store_"), ["--store_dir"]);
    }

    #[test]
    fn scripts_are_short() {
        for shell in ["bash", "zsh", "fish"] {
            let mut out = Vec::new();
            script(shell, &mut out).unwrap();
            assert!((100..10_000).contains(&out.len()), "{shell}: {} bytes", out.len());
        }
        assert!(script("cmd", &mut Vec::new()).is_err());
    }
}
