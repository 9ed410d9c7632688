//! `docs/operations.md` against the source: limits have the names and values that it says, log lines
//! and metrics exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rows of the table under a heading, as cells.
fn rows(doc: &str, after: &str) -> Vec<Vec<String>> {
    let start = doc.find(after).unwrap_or_else(|| panic!("{after} is in the page"));
    let lines = doc[start..].lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

fn code(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// The expression behind `const NAME: type = ` or `name: ` in a source.
fn value(source: &str, start: &str, end: char) -> Option<String> {
    let from = source.find(start)? + start.len();
    let rest = &source[from..];
    let rest = if end == ';' { rest.split_once('=')?.1 } else { rest };
    let text = &rest[..rest.find(end)?];
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn limits_have_the_values_that_the_page_says() {
    let doc = read("docs/operations.md");
    let limits = rows(&doc, "## Limits");
    assert!(limits.len() > 20);
    for row in limits {
        let [_, _, name, expected, _, file] = &row[..] else { panic!("{row:?}") };
        let source = read(&format!("crates/{}", code(file)));
        let found = value(&source, &format!("const {}:", code(name)), ';');
        assert_eq!(found.as_deref(), Some(code(expected)), "{name} in {file}");
    }
    let options = read("crates/nuthatch-log/src/options.rs");
    let defaults = &options[options.find("impl Default for LogOptions").expect("defaults")..];
    for row in rows(&doc, "Of each log:") {
        let (name, expected) = (code(&row[1]), code(&row[2]));
        let found = value(defaults, &format!("{name}: "), ',');
        assert_eq!(found.as_deref(), Some(expected), "{name}");
    }
}

fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).expect("lists").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("reads"));
        }
    }
}

#[test]
fn log_lines_and_metrics_exist() {
    let doc = read("docs/operations.md");
    let mut text = String::new();
    for name in ["log", "server", "jetstream", "object"] {
        sources(&root().join(format!("crates/nuthatch-{name}/src")), &mut text);
    }
    // String literals that go on in the next line.
    let text = text.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ");
    for row in rows(&doc, "## What it says") {
        for part in code(&row[0]).split('…') {
            let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&part), "nothing says {part:?}");
        }
    }
    let metrics = read("docs/metrics.md");
    for word in doc.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if word.starts_with("nuthatch_") {
            assert!(metrics.contains(word), "there is no metric {word}");
        }
    }
}
