//! `stream import --from`: brings streams of a running server here, with their sequences, times, headers,
//! gaps and consumers.
//!
//! The state of an import is in the target: whatever stops it, the same command goes on behind the
//! last sequence there. Both sides are read and compared before a stream is put in service.

mod finish;
mod source;
mod target;
mod verify;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::StreamInfo;
use nuthatch_streams::control::import::{Action, Happened, Importer};
use serde_json::{Value, json};

use super::make::is_of_server;
use crate::error::CliError;
use crate::input::check_name;
use crate::progress::{Progress, Unit};
use source::Source;
use target::Target;

/// Between two looks at a source that has nothing new.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Between two lines about how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Options of `stream import` for streams of a running server.
#[derive(Debug, Clone, Args)]
pub struct LiveImportArgs {
    /// A running server to bring streams from: nats://[user:pass@]host:port
    #[arg(long, value_name = "URL", conflicts_with = "from_dir")]
    from: Option<String>,
    /// Credentials file for that server
    #[arg(long, value_name = "FILE", requires = "from")]
    from_creds: Option<PathBuf>,
    /// JetStream domain there
    #[arg(long, value_name = "DOMAIN", requires = "from")]
    from_domain: Option<String>,
    /// Log to put them in, as this server's configuration names it
    #[arg(long, value_name = "NAME", requires = "from")]
    log: Option<String>,
    /// Go on with what is published meanwhile, until interrupted
    #[arg(long, requires = "from", conflicts_with_all = ["finish", "cancel"])]
    follow: bool,
    /// Nobody publishes or consumes there any more: bring the rest, compare, put the streams in
    /// service here
    #[arg(long, requires = "from", conflicts_with = "cancel")]
    finish: bool,
    /// Give the import up: what was brought from a running server is deleted here
    #[arg(long)]
    cancel: bool,
}

/// One import: where from, where to, how far.
struct Import {
    name: String,
    /// Configuration that the stream is to have here.
    config: Value,
    /// Decides what is brought and compared.
    machine: Importer,
    /// What it has asked for.
    action: Action,
}

impl Import {
    fn step(&mut self, happened: Happened) {
        self.action = self.machine.step(happened);
    }
}

/// Runs `stream import`.
pub fn run(names: &[String], args: &LiveImportArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    names.iter().try_for_each(|name| check_name("stream", name))?;
    let mut target = Target::open(connect)?;
    if args.cancel {
        return cancel(names, &mut target);
    }
    let mut source = Source::open(args, connect)?;
    let mut imports = Vec::new();
    for info in source.streams(names)? {
        imports.extend(begin(names, args, &info, &mut target)?);
    }
    for import in &mut imports {
        copy(import, &mut source, &mut target)?;
        verify::compare(import, &mut source, &mut target)?;
        let (name, stored) = (&import.name, import.machine.stored());
        eprintln!("{name}: here up to sequence {stored}, compared");
    }
    if args.follow {
        return follow(&mut imports, &mut source, &mut target);
    }
    if !args.finish {
        return tell(&imports, &target);
    }
    let mut reports = Vec::new();
    for import in &mut imports {
        reports.push(finish::finish(import, &mut source, &mut target)?);
    }
    let text = || reports.iter().map(finish::describe).collect::<String>();
    target.session.print(&json!(reports), text)
}

/// Keeps up, until interrupted or something fails.
fn follow(
    imports: &mut [Import],
    source: &mut Source,
    target: &mut Target,
) -> Result<(), CliError> {
    loop {
        let mut is_idle = true;
        for import in &mut *imports {
            is_idle &= copy(import, source, target)? == 0;
            verify::compare(import, source, target)?;
        }
        if is_idle {
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn tell(imports: &[Import], target: &Target) -> Result<(), CliError> {
    let list: Vec<Value> = imports
        .iter()
        .map(|import| {
            let (stored, verified) = (import.machine.stored(), import.machine.verified());
            json!({"stream": import.name, "last_seq": stored, "verified": verified})
        })
        .collect();
    target.session.print(&json!(list), || {
        let mut text = String::new();
        for import in imports {
            let (name, stored) = (&import.name, import.machine.stored());
            text += &format!("Stream {name} is here up to sequence {stored}, not yet in service\n");
        }
        text + "Stop publishers and consumers, then put the streams in service with --finish\n"
    })
}

fn cancel(names: &[String], target: &mut Target) -> Result<(), CliError> {
    if names.is_empty() {
        return Err(CliError::Usage("name the streams whose import is to be given up".into()));
    }
    for name in names {
        target.act(name, &json!({"action": "cancel"}))?;
        eprintln!("{name}: what was brought here is deleted");
    }
    Ok(())
}

/// Begins the import of a stream, or finds where it is. `None`: it is in service already.
fn begin(
    names: &[String],
    args: &LiveImportArgs,
    info: &Answer<StreamInfo>,
    target: &mut Target,
) -> Result<Option<Import>, CliError> {
    let name = info.config.name.clone();
    // As it came: what is not known here passes through.
    let config = wanted(args, &info.json["config"], &name);
    if names.is_empty() && target.is_in_service(&name)? {
        eprintln!("{name}: is in service here, passed over");
        return Ok(None);
    }
    let told = target.act(&name, &json!({"action": "begin", "config": config}))?;
    let (stored, verified) = (told.state.last_seq, told.verified);
    let mut machine = Importer::default();
    let action = machine.step(Happened::Began);
    let mut import = Import { name, config, machine, action };
    import.step(Happened::Told { stored, verified });
    Ok(Some(import))
}

/// The configuration for here: one replica, no placement of another cluster, no facts about the
/// other server, no sources (how far they were is not known here).
fn wanted(args: &LiveImportArgs, config: &Value, name: &str) -> Value {
    let mut config = config.clone();
    config["num_replicas"] = 1.into();
    if let Some(fields) = config.as_object_mut() {
        fields.remove("placement");
        if fields.remove("sources").is_some() {
            eprintln!(
                "{name}: its sources are left out, as nobody here knows how far it had come with \
                 them; add them with a start sequence when it is in service"
            );
        }
    }
    if let Some(facts) = config["metadata"].as_object_mut() {
        facts.retain(|key, _| !is_of_server(key));
    }
    if let Some(log) = &args.log {
        config["placement"] = json!({"tags": [format!("log:{log}")]});
    }
    config
}

/// Brings what the source has and the target has not; returns how many messages that were.
fn copy(import: &mut Import, source: &mut Source, target: &mut Target) -> Result<u64, CliError> {
    let mut count = 0;
    if import.action == Action::Done {
        import.step(Happened::LookAgain);
    }
    loop {
        match import.action {
            Action::AskLast => import.step(Happened::Last(source.last_seq(&import.name)?)),
            Action::Bring { first, last } => {
                count += bring(import, first, last, source, target)?;
                import.step(Happened::Brought);
            }
            _ => return Ok(count),
        }
    }
}

/// Brings a stretch, and waits until all of it is durable; returns how many messages it has.
fn bring(
    import: &Import,
    first: u64,
    last: u64,
    source: &mut Source,
    target: &mut Target,
) -> Result<u64, CliError> {
    let (mut count, mut told) = (0, Instant::now());
    let progress = Progress::new(format!("Import of {}", import.name), Unit::Messages);
    progress.set_end(last.saturating_sub(first) + 1);
    // Programs that read along get lines.
    let tells_lines = !io::stderr().is_terminal();
    let mut reader = source.read(&import.name, first, last)?;
    target.begin_batches(&import.name, first);
    while let Some(message) = reader.next(source)? {
        target.push(&message.as_imported())?;
        count += 1;
        progress.set(message.seq.saturating_sub(first) + 1);
        if tells_lines && told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{}: {} of {last}", import.name, message.seq);
        }
    }
    reader.close(source);
    target.end_batches(last)?;
    Ok(count)
}
