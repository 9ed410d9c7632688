//! Files that somebody else wrote, given to commands: configurations that include one another, and
//! store directories to import.

use crate::rig::Rig;
use crate::support::TempDir;
use crate::{Attack, Outcome};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Seconds that a command may take before it counts as stuck.
const TIMEOUT_S: &str = "60";
/// KiB of address space that a command may have.
const MEMORY_KIB: u64 = 2 << 20;

pub const ATTACKS: &[Attack] = &[
    Attack::new("config-includes", includes).ours_only(),
    Attack::new("import-hostile-directory", imports).ours_only(),
];

/// Runs a command with bounds on its time and memory.
fn bounded(dir: &Path, args: &[&str]) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec timeout {TIMEOUT_S} \"$@\"");
    let program = env!("CARGO_BIN_EXE_nuthatch");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", program]).args(args);
    command.current_dir(dir).stdin(Stdio::null()).output().expect("sh runs")
}

/// It must fail in words: neither by the clock, nor a signal, nor a panic.
fn fails_in_words(what: &str, output: &Output) -> Result<(), String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown: String = text.chars().take(300).collect();
    match output.status.code() {
        Some(1 | 2) if !text.contains("panicked") && !text.is_empty() => Ok(()),
        code => Err(format!("{what}: {code:?} {shown}")),
    }
}

fn includes(rig: &Rig) -> Outcome {
    rig.check_log()?;
    let dir = TempDir::new("hostile-includes");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
    write("self.conf", "include 'self.conf'\n");
    write("a.conf", "x { include 'b.conf' }\n");
    write("b.conf", "y { include 'a.conf' }\n");
    for n in 0..2000 {
        write(&format!("chain{n}.conf"), &format!("include 'chain{}.conf'\n", n + 1));
    }
    // 10 files, each of which includes the next ten times: ten thousand million lines.
    for n in 0..10 {
        let next = format!("k{{N}} {{ include 'wide{}.conf' }}\n", n + 1);
        let text: String = (0..10).map(|k| next.replace("{N}", &k.to_string())).collect();
        write(&format!("wide{n}.conf"), &text);
    }
    write("wide10.conf", "not_a_setting: 1\n");
    write("device.conf", "include '/dev/zero'\n");
    write("directory.conf", "include '.'\n");
    write("nested.conf", &"a {".repeat(100_000));
    write("arrays.conf", &format!("a: {}", "[".repeat(100_000)));
    write("huge.conf", &"a: 1\n".repeat(4 << 20));
    write("variables.conf", "a = $a\nb = $c\nc = $b\n");
    let names = [
        "self",
        "a",
        "chain0",
        "wide0",
        "device",
        "directory",
        "nested",
        "arrays",
        "huge",
        "variables",
    ];
    for name in names {
        let file = format!("{name}.conf");
        let output = bounded(dir.path(), &["serve", "-t", "-c", &file]);
        fails_in_words(&file, &output)?;
    }
    Ok(format!("{} files refused", names.len()))
}

/// One store directory, spoilt in a way.
type Spoil = (&'static str, fn(&Path));

fn stream_dir(store: &Path) -> std::path::PathBuf {
    let dir = store.join("jetstream/$G/streams/S");
    std::fs::create_dir_all(dir.join("msgs")).expect("creates");
    std::fs::create_dir_all(dir.join("obs/C")).expect("creates");
    std::fs::write(dir.join("meta.inf"), br#"{"name":"S","subjects":["s.>"],"storage":"file"}"#)
        .expect("writes");
    std::fs::write(dir.join("meta.sum"), b"0000000000000000").expect("writes");
    dir
}

fn imports(rig: &Rig) -> Outcome {
    let spoilt: [Spoil; 8] = [
        ("wrong sums", |store| drop(stream_dir(store))),
        ("a loop of links", |store| {
            let dir = stream_dir(store);
            std::os::unix::fs::symlink(&dir, dir.join("msgs/1.blk")).expect("links");
            std::os::unix::fs::symlink(store, store.join("jetstream/loop")).expect("links");
        }),
        ("a pipe", |store| {
            let dir = stream_dir(store);
            std::fs::remove_file(dir.join("meta.sum")).expect("removes");
            let made = Command::new("mkfifo").arg(dir.join("meta.sum")).status().expect("runs");
            assert!(made.success());
        }),
        ("a device", |store| {
            let dir = stream_dir(store);
            std::fs::remove_file(dir.join("meta.inf")).expect("removes");
            std::os::unix::fs::symlink("/dev/zero", dir.join("meta.inf")).expect("links");
        }),
        ("a sparse file", |store| {
            let file = std::fs::File::create(stream_dir(store).join("meta.inf")).expect("creates");
            file.set_len(1 << 40).expect("sets");
        }),
        ("nesting", |store| {
            let text = "[".repeat(1 << 20);
            std::fs::write(stream_dir(store).join("meta.inf"), text).expect("writes");
        }),
        ("names of other places", |store| {
            let text = br#"{"name":"../../../etc/passwd","subjects":["s.>"]}"#;
            std::fs::write(stream_dir(store).join("meta.inf"), text).expect("writes");
        }),
        ("nothing", |store| std::fs::create_dir_all(store.join("jetstream")).expect("creates")),
    ];
    for (what, spoil) in &spoilt {
        let dir = TempDir::new("hostile-import");
        spoil(dir.path());
        let url = &rig.server().url;
        let path = dir.path().to_str().expect("a plain path");
        let login = ["--no-context", "-s", url, "--user", "attacker", "--password", "attacker"];
        let args = [&login[..], &["stream", "import", "--from-dir", path]].concat();
        fails_in_words(what, &bounded(dir.path(), &args))?;
    }
    Ok(format!("{} directories refused", spoilt.len()))
}
