//! The header says what the library has: numbers, flags, functions. What the compiler of C makes of it, and how the
//! functions behave, is in `tests/embed`.

use nuthatch::Code;
use std::collections::BTreeSet;

const HEADER: &str = include_str!("../include/nuthatch.h");
const SOURCE: &str = include_str!("../src/lib.rs");

/// The number behind a name of the header.
fn number(name: &str) -> u32 {
    let starts = [format!("{name} = "), format!("#define {name} ")];
    let rest = |line: &'static str| {
        starts.iter().find_map(|start| line.trim_start().strip_prefix(start.as_str()))
    };
    let rest = HEADER.lines().find_map(rest).unwrap_or_else(|| panic!("no {name}"));
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("{name}: {rest}"))
}

#[test]
fn the_numbers_of_the_header_are_those_of_the_library() {
    let codes = [
        ("NUTHATCH_OK", Code::Ok),
        ("NUTHATCH_NULL", Code::Null),
        ("NUTHATCH_UTF8", Code::Utf8),
        ("NUTHATCH_CONFIG", Code::Config),
        ("NUTHATCH_OPEN", Code::Open),
        ("NUTHATCH_NOT_READY", Code::NotReady),
        ("NUTHATCH_HANDLE", Code::Handle),
        ("NUTHATCH_CLOSED", Code::Closed),
        ("NUTHATCH_DEAD", Code::Dead),
        ("NUTHATCH_FORKED", Code::Forked),
        ("NUTHATCH_SYSTEM", Code::System),
        ("NUTHATCH_NO_LISTENER", Code::NoListener),
        ("NUTHATCH_ROOM", Code::Room),
        ("NUTHATCH_NOT_CLEAN", Code::NotClean),
        ("NUTHATCH_FLAGS", Code::Flags),
        ("NUTHATCH_PANIC", Code::Panic),
    ];
    for (name, code) in codes {
        assert_eq!(number(name), code as u32, "{name}");
    }
    let inside =
        HEADER.split_once("enum nuthatch_code {").and_then(|(_, rest)| rest.split_once("};"));
    let listed = inside.expect("the codes").0.matches(" = ").count();
    assert_eq!(listed, codes.len(), "codes of the header that the library does not know");
    assert_eq!(number("NUTHATCH_ABI_VERSION"), nuthatch::ABI_VERSION);
    assert_eq!(number("NUTHATCH_OPEN_NO_LISTENER"), nuthatch::NO_LISTENER);
    assert_eq!(number("NUTHATCH_OPEN_LOG_STDERR"), nuthatch::LOG_STDERR);
}

/// Names of functions that stand before a bracket in lines that `is_declaration` likes.
fn functions(text: &str, is_declaration: fn(&str) -> bool) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| is_declaration(line));
    lines
        .filter_map(|line| {
            let start = line.find("nuthatch_")?;
            let names = line[start..].split('(').next()?;
            // The type of what comes back may have the same beginning.
            names.split([' ', '*']).next_back()
        })
        .collect()
}

#[test]
fn the_functions_of_the_header_are_those_of_the_library() {
    let declared = functions(HEADER, |line| line.contains('(') && line.ends_with(");"));
    let exported = functions(SOURCE, |line| line.contains("extern \"C\" fn nuthatch_"));
    assert_eq!(declared, exported);
    assert!(exported.len() > 8, "{exported:?}");
    let attributes = SOURCE.matches("#[unsafe(no_mangle)]").count();
    assert_eq!(attributes, exported.len());
}
