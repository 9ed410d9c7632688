//! The examples of `docs/embedding.md` are the files that tests run.

use std::path::Path;

#[test]
fn examples_of_the_page_are_files_that_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let page = read("docs/embedding.md");
    let files = [
        ("rust", "crates/nuthatch-embed/examples/embedded.rs"),
        ("go", "bindings/go/example_test.go"),
        ("python", "bindings/python/tests/example.py"),
    ];
    for (language, path) in files {
        let block = format!("```{language}\n{}```\n", read(path));
        assert!(page.contains(&block), "docs/embedding.md does not show {path} as it is");
    }
}
