//! Which top-level module of a crate names which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module and one that it names.
pub type Arrow = (String, String);

/// The arrows between the top-level modules of one crate, each with the first file that has it.
pub struct Arrows {
    found: BTreeMap<Arrow, String>,
}

impl Arrows {
    /// Reads every file below a `src`. The root file is no module: it may name all.
    pub fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        collect(src, "", &mut files);
        let has_root = ["lib.rs", "main.rs"].iter().any(|root| src.join(root).is_file());
        assert!(has_root, "{} has no sources", src.display());
        let texts: Vec<_> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        Self::of(&texts)
    }

    /// The arrows of files, given by their paths below `src` without `.rs`, and their texts.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let modules: BTreeSet<_> = files.iter().map(|(name, _)| top(name)).collect();
        let mut found = BTreeMap::new();
        for (name, text) in files {
            for used in names(&without_tests(&without_comments(text))) {
                if used != top(name) && modules.contains(used.as_str()) {
                    let arrow = (top(name).to_owned(), used);
                    found.entry(arrow).or_insert_with(|| (*name).to_owned());
                }
            }
        }
        Self { found }
    }

    /// Every arrow.
    pub fn all(&self) -> BTreeSet<Arrow> {
        self.found.keys().cloned().collect()
    }

    /// A file that has the arrow.
    pub fn place(&self, from: &str, to: &str) -> &str {
        &self.found[&(from.to_owned(), to.to_owned())]
    }

    /// Groups of modules that reach each other.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let nodes: BTreeSet<&str> = self.found.keys().map(|(from, _)| from.as_str()).collect();
        let reach: BTreeMap<_, _> = nodes.iter().map(|node| (*node, self.reach(node))).collect();
        let mut cycles = BTreeSet::new();
        for node in &nodes {
            let group: Vec<String> = nodes
                .iter()
                .filter(|other| reach[node].contains(**other) && reach[*other].contains(*node))
                .map(|other| (*other).to_owned())
                .collect();
            if !group.is_empty() {
                cycles.insert(group);
            }
        }
        cycles.into_iter().collect()
    }

    /// What can be reached from a module.
    fn reach(&self, node: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut next = vec![node.to_owned()];
        while let Some(from) = next.pop() {
            for (_, to) in self.found.keys().filter(|(of, _)| *of == from) {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    }
}

/// The top-level module of a file below `src`.
fn top(name: &str) -> &str {
    name.split('/').next().expect("a first part")
}

/// Files below a directory, except roots and test modules.
fn collect(dir: &Path, prefix: &str, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if entry.file_type().expect("a type").is_dir() {
            if name != "tests" {
                collect(&entry.path(), &format!("{prefix}{name}/"), files);
            }
        } else if let Some(stem) = name.strip_suffix(".rs") {
            let root = prefix.is_empty() && matches!(stem, "lib" | "main");
            if !root && !stem.ends_with("tests") {
                let text = fs::read_to_string(entry.path()).expect("a source");
                files.push((format!("{prefix}{stem}"), text));
            }
        }
    }
}

/// A text without its line comments.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().expect("a first part"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A text without the modules that are compiled for tests only: each is cut at its closing brace.
fn without_tests(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(at) = rest.find("#[cfg(test)]\nmod ") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let open = rest.find(['{', ';']).expect("a body or an end");
        let end = if rest.as_bytes()[open] == b'{' { closing(rest, open) } else { open };
        rest = rest.get(end + 1..).unwrap_or("");
    }
    kept + rest
}

/// Where the brace that opens at `open` closes; the end of the text if it does not.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The first names behind every `crate::`, braces included.
fn names(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, start) in text.match_indices("crate::") {
        let rest = &text[at + start.len()..];
        if rest.starts_with('{') {
            let inner = &rest[1..closing(rest, 0)];
            found.extend(items(inner).into_iter().map(first_name));
        } else {
            found.insert(first_name(rest));
        }
    }
    found.remove("");
    found
}

/// The parts between the commas of a list that stand in no braces of their own.
fn items(list: &str) -> Vec<&str> {
    let mut depth = 0;
    list.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0 && c == ','
    })
    .collect()
}

/// The identifier at the beginning of a text.
fn first_name(text: &str) -> String {
    let text = text.trim_start();
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}
