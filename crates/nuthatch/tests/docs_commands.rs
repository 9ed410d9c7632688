//! Every command that README and docs show runs as written.
//!
//! The rules for writers: a block of commands has the language `sh` (commands only) or `console`
//! (`$ ` before each command, below it its output, whose shape is compared: numbers may differ, `…`
//! stands for anything). `# exits with N` behind a command names an exit code other than 0. A block
//! that cannot run here has `<!-- not run: REASON -->` in the line before it, and a transcript that
//! another test keeps true `<!-- transcript: written by the test NAME -->`. The commands of a
//! file run in order, in one shell, in an empty directory, with a fresh server at `NATS_URL`: the
//! one that the block behind `<!-- the test starts this on a free port -->` starts, or a plain one.

#[path = "docs/blocks.rs"]
mod blocks;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blocks::{Page, Step, has_shape, parse};

const BINARY: &str = env!("CARGO_BIN_EXE_nuthatch");

/// How long a server may take until it accepts connections, and how long all commands of a file.
const START_LIMIT: Duration = Duration::from_secs(120);
const FILE_LIMIT: Duration = Duration::from_secs(900);

/// Stands between the outputs of two commands.
const MARK: &str = "@@end";

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// True if the shell takes the text for a whole command.
fn is_complete(command: &str) -> bool {
    let output = Command::new("bash").args(["-n", "-c", command]).output().unwrap();
    output.status.success() && output.stderr.is_empty() && !command.ends_with('\\')
}

/// A shell in `dir` that finds this build's `nuthatch`, and nothing of the user's settings.
fn shell(dir: &Path, ports: &Ports) -> Command {
    let bin = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NATS_")) {
        command.env_remove(name);
    }
    command
        .current_dir(dir)
        .env("PATH", format!("{bin}:{path}"))
        .env("HOME", dir)
        .env("XDG_CONFIG_HOME", dir.join(".config"))
        .env("NATS_URL", &ports.nats)
        .env("NUTHATCH_MONITOR_URL", &ports.monitoring)
        .stdin(Stdio::null());
    command
}

/// Where a server is to be found.
#[derive(Default)]
struct Ports {
    nats: String,
    monitoring: String,
}

/// What the ports file in a directory says, once it is there.
fn ports_in(dir: &Path) -> Option<Ports> {
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "ports"))?;
    let ports: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let of = |kind: &str| ports[kind][0].as_str().map(str::to_owned);
    Some(Ports { nats: of("nats")?, monitoring: of("monitoring")? })
}

fn start(page: &Page, dir: &Path) -> (Server, Ports) {
    let written = page.server.clone().unwrap_or_else(|| "nuthatch serve -js -sd data".into());
    // The same commands against another server, as `NUTHATCH_TEST_SERVER=nats-server` asks for.
    let written = match std::env::var("NUTHATCH_TEST_SERVER") {
        Ok(other) => written.replace("nuthatch serve", &other),
        Err(_) => written,
    };
    let place = dir.join(".ports");
    fs::create_dir_all(&place).unwrap();
    let line = format!("exec {} -a 127.0.0.1 -p -1 -m -1 --ports_file_dir .ports", written.trim());
    let mut command = shell(dir, &Ports::default());
    command.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let deadline = Instant::now() + START_LIMIT;
    loop {
        if let Some(ports) = ports_in(&place) {
            return (server, ports);
        }
        let runs = server.0.try_wait().unwrap().is_none();
        assert!(runs && Instant::now() < deadline, "the server does not start: {line}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// One script of all commands, which go on after a failure so that all are seen.
fn script(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("{{ {}\n}} 2>&1; echo \"{MARK} $?\"\n", step.command));
    }
    text
}

/// Runs the commands of a page and returns what went wrong.
fn run(page: &Page, dir: &Path) -> Vec<String> {
    let (_server, ports) = start(page, dir);
    let file = dir.join(".commands.out");
    let out = fs::File::create(&file).unwrap();
    let mut command = shell(dir, &ports);
    command.args(["-c", &script(&page.steps)]).stdout(out).stderr(Stdio::null());
    let mut child = Server(command.spawn().unwrap());
    let deadline = Instant::now() + FILE_LIMIT;
    while child.0.try_wait().unwrap().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    drop(child);
    let output = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    judge(&page.steps, &output)
}

fn judge(steps: &[Step], output: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rest = output;
    for step in steps {
        let place = format!("line {}: {}", step.line, step.command);
        let Some((found, after)) = rest.split_once(&format!("{MARK} ")) else {
            faults.push(format!("{place}\ndid not end; so far:\n{rest}"));
            return faults;
        };
        let (code, after) = after.split_once('\n').unwrap_or((after, ""));
        rest = after;
        if code.trim() != step.exit.to_string() {
            faults.push(format!("{place}\nended with {code}, not {}:\n{found}", step.exit));
        } else if step.output.as_ref().is_some_and(|shown| !has_shape(shown, found)) {
            let shown = step.output.clone().unwrap_or_default().join("\n");
            faults.push(format!("{place}\nprinted:\n{found}\nbut this is shown:\n{shown}"));
        }
    }
    faults
}

/// README and docs; `NUTHATCH_DOCS=cli` picks files by a part of their names.
fn pages() -> Vec<PathBuf> {
    let wanted = std::env::var("NUTHATCH_DOCS").unwrap_or_default();
    let mut files = vec![root().join("README.md")];
    for entry in fs::read_dir(root().join("docs")).unwrap().flatten() {
        files.push(entry.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.retain(|path| path.file_name().unwrap().to_string_lossy().contains(&wanted));
    files.sort();
    files
}

#[test]
fn every_command_runs_as_written() {
    let mut faults = Vec::new();
    let mut ran = 0;
    for file in pages() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let page = parse(&fs::read_to_string(&file).unwrap(), &is_complete);
        let dir = std::env::temp_dir().join(format!("nuthatch-docs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let mut found = page.faults.clone();
        if !page.steps.is_empty() || page.server.is_some() {
            found.extend(run(&page, &dir));
        }
        ran += page.steps.len();
        let _ = fs::remove_dir_all(&dir);
        writeln!(std::io::stderr(), "{name}: {} run, {} not", page.steps.len(), page.skipped)
            .unwrap();
        faults.extend(found.into_iter().map(|fault| format!("{name}, {fault}")));
    }
    assert!(faults.is_empty(), "{} faults\n\n{}", faults.len(), faults.join("\n\n"));
    assert!(ran > 0, "no commands were found");
}

/// A longer cell of a table is not read; what it says has room below the table.
const CELL_CHARS_MAX: usize = 330;
/// Pages with longer ones.
const LONG_CELLS: [&str; 1] = ["simulation.md"];

#[test]
fn cells_of_tables_are_short_enough_to_read() {
    let mut too_long = Vec::new();
    let mut pages = vec![root().join("README.md")];
    let mut dirs = vec![root().join("docs")];
    while let Some(dir) = dirs.pop() {
        let (inner, files): (Vec<_>, Vec<_>) =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).partition(|p| p.is_dir());
        dirs.extend(inner);
        pages.extend(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "md")));
    }
    pages.retain(|page| !LONG_CELLS.iter().any(|name| page.ends_with(name)));
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        for (number, line) in fs::read_to_string(&page).unwrap().lines().enumerate() {
            let longest = line.split('|').map(|cell| cell.trim().chars().count()).max();
            if line.starts_with('|') && longest > Some(CELL_CHARS_MAX) {
                too_long.push(format!("{}:{}: {longest:?}", page.display(), number + 1));
            }
        }
    }
    assert!(too_long.is_empty(), "cells with more than {CELL_CHARS_MAX} letters: {too_long:#?}");
}
