//! The layers of the source, crate by crate and module by module: what stands lower never uses
//! what stands higher, and no modules form a cycle.
//!
//! An arrow `a -> b` says that a file below the top-level module `a` names `crate::b`.
//! Test modules are left out. There are no exceptions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "layers/arrows.rs"]
mod arrows;
#[path = "layers/tables.rs"]
mod tables;

use arrows::{Arrow, Arrows};
use tables::{JETSTREAM_LAYERS, SERVER_LAYERS};

/// The crates from the bottom up: each may use only those before it (ARCHITECTURE, the map).
const CRATES: [&str; 20] = [
    "nuthatch-protocol",
    "nuthatch-client",
    "nuthatch-console",
    "nuthatch-archive",
    "nuthatch-quorum",
    "nuthatch-log",
    "nuthatch-catalog-group",
    "nuthatch-object",
    "nuthatch-etcd",
    "nuthatch-cluster",
    "nuthatch-streams",
    "nuthatch-server",
    "nuthatch-jetstream",
    "nuthatch-embed",
    "nuthatch-otlp",
    "nuthatch-c",
    "nuthatch-ports",
    "nuthatch-bench",
    "nuthatch",
    // Last, so that nothing of the product may use it.
    "nuthatch-sim",
];

fn crates_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/").to_path_buf()
}

/// The crates of the workspace that the `[dependencies]` of a manifest name.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.ends_with("dependencies]") && !section.contains("dev-");
        } else if inside && line.starts_with("nuthatch") {
            let end = line.find(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
            found.insert(line[..end.unwrap_or(line.len())].to_owned());
        }
    }
    found
}

/// What a crate of [`CRATES`] uses although it does not stand below it.
fn upward_crates(name: &str, manifest: &str) -> Vec<String> {
    let rank = |name: &str| CRATES.iter().position(|known| *known == name);
    let own = rank(name).expect("a crate of the list");
    let uses = dependencies(manifest).into_iter();
    uses.filter(|used| rank(used).is_none_or(|used| used >= own)).collect()
}

/// Arrows between modules of one layered crate that lead from a lower layer to a higher one.
fn upward_modules(arrows: &Arrows, layers: &[&[&str]]) -> BTreeSet<Arrow> {
    let layer = |module: &str| {
        let found = layers.iter().position(|layer| layer.contains(&module));
        found.unwrap_or_else(|| panic!("the module {module} stands in no layer"))
    };
    let all = arrows.all();
    all.into_iter().filter(|(from, to)| layer(from) < layer(to)).collect()
}

/// The layers of a crate that has them.
fn layers_of(name: &str) -> Option<&'static [&'static [&'static str]]> {
    match name {
        "nuthatch-server" => Some(SERVER_LAYERS),
        "nuthatch-jetstream" => Some(JETSTREAM_LAYERS),
        _ => None,
    }
}

/// What is wrong with the modules of a crate, in words; empty if nothing is.
fn judge(name: &str, arrows: &Arrows, layers: Option<&[&[&str]]>) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(layers) = layers {
        for (from, to) in upward_modules(arrows, layers) {
            wrong.push(format!(
                "{name}: {from} -> {to} leads upwards ({})",
                arrows.place(&from, &to)
            ));
        }
    }
    for cycle in arrows.cycles() {
        wrong.push(format!("{name}: a cycle of {}", cycle.join(", ")));
    }
    wrong
}

#[test]
fn crates_use_only_what_stands_below_them() {
    for name in CRATES {
        let path = crates_dir().join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).expect("a manifest");
        let upward = upward_crates(name, &manifest);
        assert!(upward.is_empty(), "{name} uses {upward:?}, which do not stand below it");
    }
}

#[test]
fn modules_form_layers_and_no_cycles() {
    let mut wrong = Vec::new();
    for name in CRATES {
        let arrows = Arrows::read(&crates_dir().join(name).join("src"));
        wrong.extend(judge(name, &arrows, layers_of(name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The back-ticked words of a page that look like a file or directory of the source.
fn paths_of(page: &str) -> BTreeSet<&str> {
    let ticked = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |word: &&str| {
        (word.contains('/') || word.ends_with(".rs"))
            && !word.starts_with('/')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
    };
    ticked.filter(is_path).collect()
}

/// Every file and directory below the crates and the repository's own, as paths from there.
fn tree(dir: &Path, depth: usize, found: &mut BTreeSet<String>) {
    let root = crates_dir().parent().expect("the repository").to_path_buf();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if depth == 0 && (name == "target" || name == ".git") {
            continue;
        }
        found.insert(format!("/{}", path.strip_prefix(&root).expect("below").display()));
        if path.is_dir() {
            tree(&path, depth + 1, found);
        }
    }
}

/// Paths of `page` that lead to no file, directory or module.
fn stale_paths<'a>(page: &'a str, tree: &BTreeSet<String>) -> Vec<&'a str> {
    let leads = |path: &&str| {
        let ends =
            ["", ".rs", "/mod.rs"].map(|end| format!("/{}{end}", path.trim_end_matches('/')));
        // The crate's name is followed by `src`, which the page may leave out.
        tree.iter().any(|file| {
            let without_src = file.replacen("/src/", "/", 1);
            ends.iter().any(|end| file.ends_with(end) || without_src.ends_with(end))
        })
    };
    paths_of(page).into_iter().filter(|path| !leads(path)).collect()
}

#[test]
fn the_paths_of_the_map_lead_somewhere() {
    let root = crates_dir().parent().expect("the repository").to_path_buf();
    let mut files = BTreeSet::new();
    tree(&root, 0, &mut files);
    assert_eq!(stale_paths("see `conn/nowhere.rs` and `leaf/`", &files), ["conn/nowhere.rs"]);
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root.join(page)).expect("the page");
        let stale = stale_paths(&text, &files);
        assert!(stale.is_empty(), "{page} names {stale:?}, which are not there");
    }
}

#[test]
fn a_planted_upward_arrow_is_found() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nnuthatch-server.workspace = true\n";
    assert_eq!(upward_crates("nuthatch-log", manifest), ["nuthatch-server"]);
    let arrows = Arrows::of(&[("low", "use crate::high::Thing;"), ("high", "")]);
    let found = judge("planted", &arrows, Some(&[&["low"], &["high"]]));
    assert_eq!(found, ["planted: low -> high leads upwards (low)"]);
}

#[test]
fn a_planted_cycle_is_found() {
    let texts = [
        ("one", "use crate::{\n    two::{self, Thing},\n    three,\n};"),
        ("two", "fn f() { crate::three::g(); }"),
        (
            "three",
            "// crate::two\n#[cfg(test)]\nmod tests { use crate::two; }\npub use crate::one::h;",
        ),
    ];
    let found = judge("planted", &Arrows::of(&texts), None);
    assert_eq!(found, ["planted: a cycle of one, three, two"]);
}
