//! Checks the error table: against itself always, against nats-server's list where it is at hand.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::JsError;

const MODULE_ERRORS: &str = "github.com/nats-io/nats-server/v2@v2.15.2/server/errors.json";

#[test]
fn rows_are_unique_and_sorted() {
    let mut names = HashSet::new();
    let mut last = 0;
    for row in JsError::TABLE {
        assert!(names.insert(row.name), "{} twice", row.name);
        assert!(row.error.err_code > last, "{} out of order", row.name);
        assert!(row.go_constant.starts_with("JS"), "{}", row.go_constant);
        assert!((400..=599).contains(&row.error.code), "{}", row.name);
        last = row.error.err_code;
    }
    assert_eq!(JsError::TABLE.len(), 227);
}

#[test]
fn wire_shape_is_exact() {
    let json = serde_json::to_string(&JsError::STREAM_NOT_FOUND).unwrap();
    assert_eq!(json, r#"{"code":404,"err_code":10059,"description":"stream not found"}"#);
    let back: JsError = serde_json::from_str(&json).unwrap();
    assert_eq!(back, JsError::STREAM_NOT_FOUND);
    let old: JsError = serde_json::from_str(r#"{"code":503}"#).unwrap();
    assert_eq!((old.code, old.err_code, &*old.description), (503, 0, ""));
}

#[test]
fn placeholders_are_filled() {
    let e = JsError::STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS;
    assert!(e.is_template());
    let e = e.with("{prefix}", "p.q").with("subject", "s");
    assert_eq!(e.description, "stream external delivery prefix p.q overlaps with stream subject s");
    assert!(!e.is_template());
    assert_eq!(JsError::BAD_REQUEST.with_err("x"), JsError::BAD_REQUEST);
    assert_eq!(JsError::STREAM_CREATE.with_err("no disk").to_string(), "no disk (10049)");
    assert_eq!(JsError::from_err_code(10071), Some(JsError::STREAM_WRONG_LAST_SEQUENCE));
    assert_eq!(JsError::from_err_code(1), None);
}

/// `errors.json` in the Go module cache, if there is one on this machine.
fn module_errors() -> Option<String> {
    let cache = std::env::var_os("GOMODCACHE").map(PathBuf::from);
    let path = std::env::var_os("GOPATH").map(|p| PathBuf::from(p).join("pkg/mod"));
    let home = std::env::var_os("HOME").map(|p| PathBuf::from(p).join("go/pkg/mod"));
    [cache, path, home]
        .into_iter()
        .flatten()
        .find_map(|dir| std::fs::read_to_string(dir.join(MODULE_ERRORS)).ok())
}

#[test]
fn table_equals_errors_json_of_the_incumbent() {
    #[derive(Deserialize)]
    struct Entry {
        constant: String,
        code: u16,
        error_code: u16,
        description: String,
    }
    let Some(text) = module_errors() else {
        eprintln!("no {MODULE_ERRORS} on this machine: only the committed table was checked");
        return;
    };
    let theirs: Vec<Entry> = serde_json::from_str(&text).unwrap();
    let theirs: BTreeMap<_, _> =
        theirs.into_iter().map(|e| (e.constant, (e.code, e.error_code, e.description))).collect();
    let ours: BTreeMap<_, _> = JsError::TABLE
        .iter()
        .map(|row| {
            let e = row.error.clone();
            (row.go_constant.to_owned(), (e.code, e.err_code, e.description.into_owned()))
        })
        .collect();
    assert_eq!(ours, theirs);
}
