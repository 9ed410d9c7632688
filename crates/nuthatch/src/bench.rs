//! `nuthatch bench`: the load generator, and the way to the workbench, which is a program of its own.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nuthatch_bench::cli::{BenchArgs, WORKBENCH};
use nuthatch_bench::report::Watched;
use nuthatch_client::connect::ConnectArgs;

use crate::error::CliError;
use crate::progress::{Progress, Unit};

/// The workbench's program.
const PROGRAM: &str = "nuthatch-bench";
/// How often one looks how far the load generator is.
const LOOKED_EVERY: Duration = Duration::from_millis(200);
/// Tells it which Nuthatch is to be measured.
const OWN_VARIABLE: &str = "NUTHATCH";

/// Runs a command of the load generator.
pub fn run(args: &BenchArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let watched = Arc::new(Watched::default());
    let text = thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let shown = &watched;
        scope.spawn(move || show(shown, &end));
        let text = nuthatch_bench::cli::run(args, connect, Some(&watched));
        drop(ended);
        text
    })?;
    writeln!(io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

/// Shows how far the runs are, until the other end of the channel is gone.
fn show(watched: &Watched, end: &mpsc::Receiver<()>) {
    let mut progress = None;
    while end.recv_timeout(LOOKED_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        let (done, total) = (watched.done(), watched.total());
        if total == 0 {
            continue;
        }
        let progress = progress.get_or_insert_with(|| Progress::new("Bench", Unit::Messages));
        progress.set_end(total.max(done));
        progress.set(done);
    }
}

/// Becomes the workbench, with the command line of this process; returns only when that is impossible.
/// `words` are the command's name and what follows it.
pub fn start_workbench(words: &[OsString]) -> CliError {
    let name = words.first().map_or_else(String::new, |word| word.display().to_string());
    if !WORKBENCH.contains(&name.as_str()) {
        return CliError::Usage(format!(
            "there is no command `bench {name}`; the load generator has js, pub, sub and request, the \
             workbench {}",
            WORKBENCH.join(", ")
        ));
    }
    let own = std::env::current_exe().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = own.as_deref().and_then(Path::parent);
    let Some(program) = find(beside, &path) else { return missing(&name, beside) };
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1));
    if let (Some(own), None) = (own, std::env::var_os(OWN_VARIABLE)) {
        command.env(OWN_VARIABLE, own);
    }
    let error = command.exec();
    CliError::Failed(format!("{} cannot be started: {error}", program.display()))
}

/// Beside this program first, then in `PATH`.
fn find(beside: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let directories = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    directories.map(|directory| directory.join(PROGRAM)).find(|file| file.is_file())
}

fn missing(name: &str, beside: Option<&Path>) -> CliError {
    let place = beside.map_or_else(String::new, |dir| format!("in {} or ", dir.display()));
    CliError::Failed(format!(
        "`bench {name}` is a command of the workbench, a program of its own, and there is no {PROGRAM} \
         {place}in PATH; `cargo build --release -p nuthatch-bench` builds it beside this one (with \
         `--features peers` for the drivers of other systems)"
    ))
}
