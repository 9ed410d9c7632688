//! `docs/configuration.md` shows the tables that the code goes by.

use super::super::configuration_reference;

const MARK: &str =
    "<!-- Below this line: written by `UPDATE_DOCS=1 cargo test -p nuthatch-server doc` -->\n";

#[test]
fn the_document_holds_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (prose, tables) = text.split_once(MARK).expect("the mark is in the document");
    let expect = format!("\n{}", configuration_reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{prose}{MARK}{expect}")).unwrap();
    } else {
        assert_eq!(tables, expect, "run: UPDATE_DOCS=1 cargo test -p nuthatch-server doc");
    }
}
