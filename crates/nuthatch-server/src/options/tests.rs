//! Options from texts and command lines: what is honoured, what is said, what is refused and how.

use std::collections::HashMap;

use nuthatch_protocol::config::{Loader, Source};

use super::*;

mod consoles;
mod corpus;
mod doc;
mod exports_of_telemetry;
mod files;
mod flag_cases;
mod includes;
mod mistakes;
mod operator;
mod random;
mod reloads;
mod traces;

/// A configuration file `t.conf` and others in memory, and an environment.
#[derive(Default)]
struct Fake {
    files: HashMap<String, String>,
    env: HashMap<String, String>,
}

impl Loader for Fake {
    fn load(&mut self, path: &str, _from: &str) -> Result<Source, String> {
        let text = self.files.get(path).ok_or("no such file")?;
        Ok(Source { name: path.to_owned(), text: text.clone() })
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }
}

/// Runs a command line of words that are separated by blanks, with `t.conf` holding `conf`.
fn command(invocation: Invocation, conf: &str, line: &str) -> Result<Command, OptionsError> {
    let mut fake = Fake::default();
    fake.files.insert("t.conf".to_owned(), conf.to_owned());
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    load_with(invocation, &args, &mut fake)
}

#[track_caller]
fn options(conf: &str, line: &str) -> Options {
    match command(Invocation::NatsServer, conf, &format!("-c t.conf {line}")) {
        Ok(Command::Serve(options)) => *options,
        other => panic!("{conf:?} {line:?}: {other:?}"),
    }
}

#[track_caller]
fn fails(conf: &str, expect: &str) {
    match command(Invocation::NatsServer, conf, "-c t.conf") {
        Err(e) => assert_eq!(e.to_string(), expect, "configuration: {conf:?}"),
        Ok(done) => panic!("accepted {conf:?}: {done:?}"),
    }
}

/// [`fails`], wherever in the file.
#[track_caller]
fn fails_somewhere(conf: &str, expect: &str) {
    match command(Invocation::NatsServer, conf, "-c t.conf") {
        Err(e) => {
            let text = e.to_string();
            let place = text.find("t.conf:").unwrap_or_default();
            let what = text[place..].splitn(4, ':').nth(3).unwrap_or_default();
            assert_eq!(what.trim_start(), expect, "configuration: {conf:?}");
        }
        Ok(done) => panic!("accepted {conf:?}: {done:?}"),
    }
}

#[track_caller]
fn says(conf: &str, expect: &[&str]) {
    assert_eq!(options(conf, "").warnings, expect, "configuration: {conf:?}");
}
