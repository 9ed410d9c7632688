//! The tables of every key and flag, as `docs/configuration.md` holds them.

use std::fmt::Write as _;

use super::flags::{Flag, SECTIONS};
use super::keys::{Block, Key, Status};
use super::tables::DOCUMENTED;

/// Every key and flag as Markdown tables: names, what happens with it, default, meaning.
pub fn configuration_reference() -> String {
    let mut text = String::from("## Keys\n");
    for (title, block) in DOCUMENTED {
        let _ = write!(text, "\n### {title}\n\n");
        keys(&mut text, block);
    }
    text.push_str("\n## Flags\n");
    for (title, section) in SECTIONS {
        let _ = write!(text, "\n### {title}\n\n");
        flags(&mut text, section);
    }
    text
}

fn keys(text: &mut String, block: &Block) {
    text.push_str("| key | | default | meaning |\n|---|---|---|---|\n");
    for key in block.keys {
        let Key { names, status, default, meaning } = key;
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let (status, reason) = describe(*status);
        let names = names.join(", ");
        let _ = writeln!(text, "| {names} | {status} | {default} | {meaning}{reason} |");
    }
}

fn flags(text: &mut String, section: &[Flag]) {
    text.push_str("| flag | | meaning |\n|---|---|---|\n");
    for flag in section {
        let names: Vec<String> = flag.names.iter().map(|name| format!("`-{name}`")).collect();
        let value =
            if flag.value.is_empty() { String::new() } else { format!(" `{}`", flag.value) };
        let (status, reason) = describe(flag.status);
        let names = names.join(", ");
        let _ = writeln!(text, "| {names}{value} | {status} | {}{reason} |", flag.meaning);
    }
}

fn describe(status: Status) -> (&'static str, String) {
    match status {
        Status::Honoured => ("honoured", String::new()),
        Status::Said(reason) => ("accepted and said", format!(". {}", sentence(reason))),
        Status::Refused(reason) => ("refused", format!(". {}", sentence(reason))),
        Status::Depends(how) => ("depends", format!(". {}", sentence(how))),
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}
