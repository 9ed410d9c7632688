//! What others on the machine may read. Its own process: the umask is one for all threads.

mod support;

use nuthatch_server::options::Options;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::with_jetstream;

/// Everything below a directory that others may read or enter.
fn open_to_others(dir: &Path, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o777;
        count += 1;
        if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.path().display()));
        }
        if meta.is_dir() {
            count += open_to_others(&entry.path(), found);
        }
    }
    count
}

#[test]
fn nobody_else_reads_the_store_whatever_the_umask() {
    // SAFETY: it sets a number of the process and cannot fail.
    unsafe { libc::umask(0) };
    nuthatch_server::private_files::keep_private();
    let server = with_jetstream(Options::default());
    let mut peer = server.client();
    let config = r#"{"name":"S","subjects":["s.>"]}"#;
    assert!(peer.ask("$JS.API.STREAM.CREATE.S", config).contains("did_create"));
    assert!(peer.ask("s.x", "private").contains("\"seq\":1"));
    let store = server.server.options().jetstream.store_dir.clone();
    let mut found = Vec::new();
    assert!(open_to_others(&store, &mut found) >= 3, "the store is elsewhere");
    assert_eq!(found, Vec::<String>::new());
    // A log that a collector reads, as before.
    let log = store.join("server.log");
    let options = nuthatch_server::options::LogOptions {
        file: Some(log.clone()),
        ..nuthatch_server::options::LogOptions::default()
    };
    nuthatch_server::logging::Logger::new(&options).unwrap().info(format_args!("x"));
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o640);
}
