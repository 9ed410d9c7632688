//! `cluster force-recover`: a store for one server, made of what the disks of a cluster have that are left.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use nuthatch_cluster::LogNumber;
use nuthatch_cluster::recover::{Reach, Source, StoppedNode, best, extract, reach};
use nuthatch_protocol::js::Time;
use nuthatch_server::private_files::{OUR_DIRECTORY, keep_private};
use serde_json::{Value, json};

use super::copies::{Found, failed, find, log_name, take_nodes};
use crate::error::CliError;
use crate::session::{confirm, print};

/// The configuration that is written beside the logs.
const CONFIG: &str = "recovered.conf";

/// Options of `cluster force-recover`.
#[derive(Debug, Clone, Args)]
pub struct RecoverArgs {
    /// Store directories of nodes of one cluster, all that are left: they are only read
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Store directory to make: must not be there yet, and needs room for one copy
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Show what would be taken, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// What is taken of a log.
struct Taken<'a> {
    log: LogNumber,
    found: &'a Found,
    best: &'a Source,
    reach: Reach,
}

/// Runs it.
pub fn run(args: &RecoverArgs, as_json: bool) -> Result<(), CliError> {
    keep_private();
    let nodes = stop_others(args)?;
    let found = find(&nodes)?;
    let taken = take(&found)?;
    let (json, text) = (taken.iter().map(Taken::json).collect::<Value>(), told(&taken));
    let into = args.into.display().to_string();
    if args.dry_run {
        return print(as_json, &json!({ "logs": json, "into": into }), || text);
    }
    eprint!("{text}");
    if !args.force {
        confirm("Go on?", false)?;
    }
    let config = make(&taken, &args.into).map_err(|error| {
        CliError::Failed(format!(
            "{into}: {error}. Nothing of the nodes was changed: remove {into} and try again"
        ))
    })?;
    let config = config.display().to_string();
    print(as_json, &json!({ "logs": json, "into": into, "config": config }), || {
        format!("Made. Start it with: nuthatch serve -c {config}\n")
    })
}

/// The nodes' directories, which no server uses, nor begins to while this is there.
fn stop_others(args: &RecoverArgs) -> Result<Vec<StoppedNode>, CliError> {
    if args.into.to_str().is_none() {
        return Err(failed(&args.into, &"its name is no UTF-8: name another directory"));
    }
    if args.into.exists() {
        return Err(failed(
            &args.into,
            &"it is there already: name a directory that is to be made",
        ));
    }
    let above = args.into.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let above = above.canonicalize().map_err(|error| failed(above, &error))?;
    let nodes = take_nodes(&args.dirs)?;
    match nodes.iter().any(|node| above.starts_with(&node.dir)) {
        true => Err(failed(&args.into, &"it would be in a node's directory: name another one")),
        false => Ok(nodes),
    }
}

/// What is taken of each log.
fn take(found: &BTreeMap<LogNumber, Found>) -> Result<Vec<Taken<'_>>, CliError> {
    let mut all = vec![];
    for (log, found) in found {
        let best = best(&found.usable).ok_or_else(|| {
            CliError::Failed(format!(
                "no keeper of log {} can be read:\n  {}",
                log_name(*log),
                found.unusable.join("\n  ")
            ))
        })?;
        let reach = reach(best, &found.usable);
        all.push(Taken { log: *log, found, best, reach });
    }
    Ok(all)
}

impl Taken<'_> {
    fn written(&self) -> String {
        let ns = i64::try_from(self.reach.written.0.saturating_mul(1000)).unwrap_or(i64::MAX);
        if ns == 0 { "at a time that cannot be read".to_owned() } else { Time(ns).to_string() }
    }

    /// Something may be missing that one of these disks had acknowledged.
    fn may_lack(&self) -> bool {
        let was_cut = self.found.usable.iter().any(|source| source.was_cut);
        self.reach.is_short() || was_cut || !self.found.unusable.is_empty()
    }

    fn json(&self) -> Value {
        let disk = |source: &Source| {
            json!({
                "dir": source.dir.display().to_string(),
                "node": source.identity.0.0,
                "disk": format!("{:032x}", source.identity.1.0),
                "epoch": source.end.accepted.0,
                "last": source.end.lsn.0,
                "was_cut": source.was_cut,
            })
        };
        json!({
            "log": log_name(self.log),
            "from": self.best.dir.display().to_string(),
            "last": self.reach.last.0,
            "written": self.written(),
            "may_lack": self.may_lack(),
            "disks": self.found.usable.iter().map(disk).collect::<Vec<_>>(),
            "unusable": self.found.unusable,
        })
    }

    fn told(&self) -> String {
        let mut text = format!(
            "log {}: entries to {}, written {}\n",
            log_name(self.log),
            self.reach.last.0,
            self.written()
        );
        for source in &self.found.usable {
            let taken = if std::ptr::eq(source, self.best) { ", TAKEN" } else { "" };
            let cut = match source.was_cut {
                true => {
                    "; something at its end was cut off or cannot be read, and MAY HAVE BEEN ACKNOWLEDGED"
                }
                false => "",
            };
            text += &format!(
                "  {}: node {}, epoch {}, entries to {}{taken}{cut}\n",
                source.dir.display(),
                source.identity.0.0,
                source.end.accepted.0,
                source.end.lsn.0,
            );
        }
        for why in &self.found.unusable {
            text += &format!("  not taken: {why}; what it had MAY HAVE BEEN ACKNOWLEDGED\n");
        }
        if self.reach.is_short() {
            let (from, to) = (self.reach.last.next().0, self.reach.end.lsn.0);
            text += &format!(
                "  ENTRIES {from} TO {to} ARE LOST: none of these disks can read all of them\n"
            );
        }
        text
    }
}

/// What would be taken and what may be lost, for people.
fn told(taken: &[Taken<'_>]) -> String {
    let logs: String = taken.iter().map(Taken::told).collect();
    let known = match taken.iter().any(Taken::may_lack) {
        true => "WHAT WAS ACKNOWLEDGED MAY BE MISSING, as said above.",
        false => {
            "If these are a majority of the disks that kept each log, nothing that was acknowledged is missing."
        }
    };
    format!(
        "{logs}{known} Of fewer disks than a majority what the others acknowledged without them is missing, and nobody can tell \
         how much. The last messages may be some that nobody was told were stored. What this makes is one server's, of no \
         cluster. Streams keep the number of replicas in their configuration: an update of one has to say 1. Streams in \
         memory and local logs of nodes are not among it. The nodes' directories stay as they are: do not start a node on \
         one of them once clients use what was made.\n"
    )
}

/// Makes the store; gives its configuration.
fn make(taken: &[Taken<'_>], into: &Path) -> io::Result<PathBuf> {
    let ours = into.join(OUR_DIRECTORY);
    nuthatch_log::env::create_dirs(&ours)?;
    for one in taken {
        extract(one.best, &one.found.usable, &ours.join(log_name(one.log)))?;
    }
    let further = taken.iter().filter(|one| one.log != LogNumber::FIRST);
    let named: String = further.map(|one| format!("    {} {{ }}\n", log_name(one.log))).collect();
    let logs = if named.is_empty() { named } else { format!("  logs {{\n{named}  }}\n") };
    let store = std::path::absolute(into)?.display().to_string();
    let text = format!(
        "# What was left of a cluster, as one server. What clients need besides (accounts, addresses), keys of encryption and\n\
         # the tier of each log stood in the nodes' configuration.\n\
         jetstream {{\n  store_dir: {}\n{logs}}}\n",
        quoted(&store)
    );
    let config = into.join(CONFIG);
    let mut file = File::create(&config)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(into)?.sync_all()?;
    Ok(config)
}

/// A text as a string of a configuration file.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_ascii_control() => quoted += &format!("\\x{:02x}", letter as u32),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_strings_of_a_configuration_file() {
        assert_eq!(quoted("/data/Ä\u{301} b"), "\"/data/Ä\u{301} b\"");
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\x0ad""#);
    }
}
