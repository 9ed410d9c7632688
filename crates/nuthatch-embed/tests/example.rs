//! The example of the pages runs.

mod support;

use support::Dir;

#[test]
fn the_example_runs() {
    let program = std::env::current_exe().expect("this program");
    let examples = program.parent().and_then(|deps| deps.parent()).expect("a directory");
    let dir = Dir::new("example");
    let done = std::process::Command::new(examples.join("examples/embedded"))
        .arg(dir.path())
        .output()
        .expect("the example was built beside the tests");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(said, "Stored(1)\nstored: hello\n");
}
