//! Completions and man pages, made from the one definition of the command line.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::CliError;

/// Print a script with which a shell completes this command
///
/// bash: nuthatch completions bash > /etc/bash_completion.d/nuthatch;
/// zsh: nuthatch completions zsh > "${fpath[1]}/_nuthatch";
/// fish: nuthatch completions fish > ~/.config/fish/completions/nuthatch.fish
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write man pages, one for each command
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Directory to write to; it is created
    dir: PathBuf,
}

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "nuthatch", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Writes man pages.
pub fn man(args: &ManArgs, command: Command) -> Result<(), CliError> {
    let failed = |err: io::Error| {
        CliError::Failed(format!("cannot write man pages to {}: {err}", args.dir.display()))
    };
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(command, &args.dir).map_err(failed)
}
