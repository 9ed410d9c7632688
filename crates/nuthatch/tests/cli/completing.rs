//! What a shell is told when it asks how a line goes on, the help, and the man pages.

use std::fs;

use super::Server;

/// What is offered for the last of the words, as the script for bash asks.
fn offered(server: &Server, words: &[&str]) -> Vec<String> {
    let mut command = server.command(&[]);
    command.env("NUTHATCH_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
    command.args(["--", "nuthatch"]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn names_are_completed() {
    let server = Server::start(&[]);
    for stream in ["ORDERS", "RETURNS"] {
        server.ok(&["stream", "add", stream, "--defaults"]);
    }
    server.ok(&["consumer", "add", "ORDERS", "billing", "--pull"]);
    server.ok(&["kv", "add", "CONFIG"]);
    server.ok(&["object", "add", "FILES"]);
    let has = |words: &[&str], name: &str| {
        let found = offered(&server, words);
        assert!(found.contains(&name.to_owned()), "{words:?}: {found:?}");
    };
    let lacks = |words: &[&str], name: &str| {
        let found = offered(&server, words);
        assert!(!found.contains(&name.to_owned()), "{words:?}: {found:?}");
    };
    has(&["stream", "info", ""], "RETURNS");
    assert_eq!(offered(&server, &["stream", "info", "OR"]), ["ORDERS"]);
    lacks(&["stream", "add", ""], "ORDERS");
    has(&["consumer", "next", "ORDERS", ""], "billing");
    lacks(&["consumer", "next", "RETURNS", ""], "billing");
    has(&["kv", "get", ""], "CONFIG");
    has(&["object", "ls", ""], "FILES");
    lacks(&["object", "ls", ""], "CONFIG");
    has(&["stream", "in"], "info");
    has(&["stream", "info", "--"], "--state");
    has(&["serve", "-s"], "-sd");
    // Nobody is there to ask: no names, and no error.
    let nowhere = ["--server", "127.0.0.1:1", "stream", "info", "OR"];
    assert_eq!(offered(&server, &nowhere), [""; 0]);
}

#[test]
fn the_server_has_a_man_page() {
    let server = Server::start(&[]);
    let dir = server.dir.join("man1");
    server.ok(&["man", dir.to_str().unwrap()]);
    let page = fs::read_to_string(dir.join("nuthatch-serve.1")).unwrap();
    assert!(page.contains("store_dir") && page.contains("SIGUSR2"), "{page}");
    assert!(fs::read_to_string(dir.join("nuthatch-stream-find.1")).unwrap().contains("idle"));
}

#[test]
fn the_options_of_the_connection_have_a_page_of_their_own() {
    let server = Server::start(&[]);
    let topic = server.ok(&["help", "connection"]);
    assert!(topic.contains("--tlscert") && topic.contains("NATS_CREDS"), "{topic}");
    assert_eq!(server.ok(&["connection"]), topic);
    let help = server.ok(&["stream", "ls", "--help"]);
    assert!(help.contains("nuthatch help connection"), "{help}");
    assert!(help.contains("--names") && !help.contains("--tlscert"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let mut narrow = server.command(&["stream", "backup", "--help"]);
    narrow.env("COLUMNS", "60");
    let text = String::from_utf8(narrow.output().unwrap().stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
}
