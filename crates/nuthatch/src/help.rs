//! Help: what every command has in common is told once, by `nuthatch help connection`.

use clap::builder::Resettable;
use clap::{Args, Command, Id};
use nuthatch_client::connect::ConnectArgs;

/// The command whose help is about the options of the connection.
pub const TOPIC: &str = "connection";

/// Widest help, on terminals that are wider.
pub const MAX_WIDTH: usize = 100;

/// Stands for the options of the connection in the help of a command.
const FOLDED: &str = "Connection options (--server, --context, --user, --creds, --timeout, …): nuthatch help connection";

/// Commands that talk to no server.
const LOCAL: [&str; 8] =
    ["serve", "doctor", "completions", "man", "mapping", "inspect", "force-recover", TOPIC];

/// Options that stay in the help of every command.
const KEPT: [&str; 1] = ["json"];

const INTRODUCTION: &str = "\
Options of every command that talks to a server; they stand before or behind the command's name.

What is not given comes from environment variables, then from the context that is named or
selected (`nuthatch context --help`), then from the defaults.";

/// Takes the options of the connection out of all help texts but one. They are understood as
/// before.
pub fn fold(command: Command) -> Command {
    let topic = options();
    let shared = ConnectArgs::augment_args(Command::new("shared"));
    let ids: Vec<Id> = shared.get_arguments().map(|arg| arg.get_id().clone()).collect();
    let folded = command.mut_args(|arg| {
        if KEPT.contains(&arg.get_id().as_str()) {
            arg.help_heading(Resettable::Reset)
        } else if ids.contains(arg.get_id()) {
            arg.hide(true)
        } else {
            arg
        }
    });
    note(folded).mut_subcommand(TOPIC, |command| command.override_help(topic))
}

/// Puts the line about the options under the help of a command and of those below it.
fn note(command: Command) -> Command {
    if LOCAL.contains(&command.get_name()) {
        return command;
    }
    let text = match command.get_after_help() {
        Some(own) => format!("{FOLDED}\n\n{own}"),
        None => FOLDED.to_owned(),
    };
    command.after_help(text).mut_subcommands(note)
}

/// All options of the connection, explained.
pub fn options() -> String {
    let only = ConnectArgs::augment_args(Command::new("nuthatch"))
        .disable_help_flag(true)
        .max_term_width(MAX_WIDTH)
        .help_template("{all-args}");
    format!("{INTRODUCTION}\n\n{}\n", only.clone().render_help().to_string().trim_end())
}
