//! `server mapping`: what a subject mapping makes of subjects, without any server.

use std::io::{self, BufRead, IsTerminal, Write as _};

use clap::Args;
use nuthatch_protocol::transform::Transform;

use crate::error::CliError;
use crate::input::check_subject;
use crate::template::random;

/// Try a subject mapping: nothing is changed, no server is asked
///
/// Without subjects they are read from the standard input, one on each line, until an empty one.
#[derive(Debug, Clone, Args)]
pub struct MappingArgs {
    /// Pattern of the subjects that are mapped, such as "events.*"
    source: Option<String>,
    /// What they become, such as "events.{{wildcard(1)}}.{{partition(5,1)}}"
    dest: Option<String>,
    /// Subjects to try
    subjects: Vec<String>,
}

/// Runs `server mapping`.
pub fn run(args: &MappingArgs) -> Result<(), CliError> {
    let asked = |given: &Option<String>, question: &str| match given {
        Some(text) => Ok(text.clone()),
        None => ask(question)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| CliError::Usage("a mapping needs a source and a destination".into())),
    };
    let source = asked(&args.source, "Source subject pattern")?;
    let dest = asked(&args.dest, "Destination subject pattern")?;
    let transform = Transform::new(&source, &dest)
        .map_err(|err| CliError::Usage(format!("{source:?} to {dest:?}: {err}")))?;
    if args.subjects.is_empty() {
        return interactive(&transform);
    }
    for subject in &args.subjects {
        writeln!(io::stdout(), "{}", mapped(&transform, subject)?)?;
    }
    Ok(())
}

fn mapped(transform: &Transform, subject: &str) -> Result<String, CliError> {
    check_subject(subject, false)?;
    let mut out = Vec::new();
    if !transform.apply(subject.as_bytes(), entropy()?, &mut out) {
        let source = String::from_utf8_lossy(transform.source()).into_owned();
        return Err(CliError::Failed(format!("{subject:?} does not match {source:?}")));
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A fresh number for `random`; other functions do not look at it.
fn entropy() -> Result<u32, CliError> {
    let letters = random(6).map_err(CliError::Failed)?;
    Ok(letters.bytes().fold(0, |sum, byte| sum.wrapping_mul(67).wrapping_add(byte.into())))
}

fn interactive(transform: &Transform) -> Result<(), CliError> {
    if io::stdin().is_terminal() {
        eprintln!("Enter subjects to try; an empty one ends. Nothing is changed on any server.\n");
    }
    while let Some(subject) = ask("Subject")?.filter(|subject| !subject.is_empty()) {
        match mapped(transform, &subject) {
            Ok(text) => writeln!(io::stdout(), "{text}")?,
            Err(err) => eprintln!("nuthatch: {err}"),
        }
    }
    Ok(())
}

/// A line of the standard input; the question is shown to people only. Nothing at its end.
fn ask(question: &str) -> Result<Option<String>, CliError> {
    if io::stdin().is_terminal() {
        eprint!("{question}: ");
    }
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line)?;
    Ok((count > 0).then(|| line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the document on partitions (`nats server mapping`).
    #[test]
    fn partitions() {
        let to = "events.{{wildcard(1)}}.{{partition(5,1)}}";
        let transform = Transform::new("events.*", to).unwrap();
        assert_eq!(mapped(&transform, "events.1").unwrap(), "events.1.4");
        assert!(mapped(&transform, "other.1").is_err());
        assert!(mapped(&transform, "events.*").is_err());
    }
}
