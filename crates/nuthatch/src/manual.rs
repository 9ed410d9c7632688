//! Completions and man pages, made from the one definition of the command line.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};

use crate::error::CliError;

/// Print a script with which a shell completes this command
///
/// The script asks this binary how a line goes on: commands and options, and the names of streams,
/// consumers, buckets and contexts that there are.
///
/// bash: nuthatch completions bash > /etc/bash_completion.d/nuthatch;
/// zsh: nuthatch completions zsh > "${fpath[1]}/_nuthatch";
/// fish: nuthatch completions fish > ~/.config/fish/completions/nuthatch.fish
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

/// Write man pages, one for each command
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Directory to write to; it is created
    dir: PathBuf,
}

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    crate::complete::script(&args.shell, &mut script)?;
    Ok(io::stdout().write_all(&script)?)
}

/// Writes man pages.
pub fn man(args: &ManArgs, command: Command) -> Result<(), CliError> {
    let dir = &args.dir;
    let failed = |err: io::Error| {
        CliError::Failed(format!("cannot write man pages to {}: {err}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(command, dir).map_err(failed)?;
    std::fs::write(dir.join("nuthatch-serve.1"), serve_page(&crate::serve::help())).map_err(failed)
}

/// The man page of the server, whose flags are not those of the other commands.
fn serve_page(help: &str) -> String {
    let mut page = String::from(SERVE_HEAD);
    for line in help.lines().skip(1).filter(|line| !line.is_empty()) {
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        match (flag_of(&escaped), escaped.strip_suffix(':')) {
            (Some((flag, meaning)), _) => {
                page.push_str(&format!(".TP\n\\fB{flag}\\fR\n{meaning}\n"));
            }
            (None, Some(title)) => page.push_str(&format!(".SH {}\n", title.to_uppercase())),
            (None, None) => page.push_str(&format!(".SH NOTES\n{escaped}\n")),
        }
    }
    page + SERVE_TAIL
}

/// The flag and its meaning in a line of the help: at least two spaces, or the column of
/// meanings, are between them.
fn flag_of(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("  ")?;
    let (flag, meaning) = line.split_once("  ").or_else(|| line.split_once("> "))?;
    // What was split off belongs to the flag.
    let flag = &line[..flag.len() + usize::from(!line[flag.len()..].starts_with(' '))];
    Some((flag, meaning.trim_start()))
}

const SERVE_HEAD: &str = r#".TH nuthatch\-serve 1
.SH NAME
nuthatch\-serve \- run the server
.SH SYNOPSIS
\fBnuthatch serve\fR [\fIflags\fR]
.PP
\fBnats\-server\fR [\fIflags\fR]
.SH DESCRIPTION
Runs a durable log broker that speaks NATS and JetStream, until it is told to stop. The flags are
those of nats\-server and follow its rules: \fB\-x\fR and \fB\-\-x\fR are the same, a value follows
behind \fB=\fR or as the next argument, a switch takes a value only behind \fB=\fR.
.PP
Started through a link named \fBnats\-server\fR, the binary takes these flags without the word
\fBserve\fR.
"#;

const SERVE_TAIL: &str = r#".SH SIGNALS
SIGINT and SIGTERM stop the server in order, SIGUSR2 lets clients go first, SIGHUP reloads the
configuration, SIGUSR1 opens the log file again.
.SH EXIT STATUS
0: it ended in order. 1: it could not start, or a log failed. 3: a log is damaged, and starting again
will not help: see \fBnuthatch\-doctor\fR(1).
.SH SEE ALSO
\fBnuthatch\fR(1), \fBnuthatch\-doctor\fR(1)
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_server_has_its_flags() {
        let page = serve_page(&crate::serve::help());
        for flag in ["\\-sd, \\-\\-store_dir <dir>", "\\-p, \\-\\-port <port>", "\\-t"] {
            assert!(page.contains(&format!(".TP\n\\fB{flag}\\fR\n")), "{flag}\n{page}");
        }
        assert!(page.contains("Directory to store in") && page.contains(".SH JETSTREAM"), "{page}");
    }

    #[test]
    fn flags_and_meanings() {
        assert_eq!(flag_of("  -t          Test"), Some(("-t", "Test")));
        assert_eq!(
            flag_of("  --store <address> Bucket  of"),
            Some(("--store <address> Bucket", "of"))
        );
        assert_eq!(flag_of("  --long <a> Meaning"), Some(("--long <a>", "Meaning")));
        assert_eq!(flag_of("Server:"), None);
    }
}
