//! Files that include others, on the disk.

use super::super::{FileLoader, MAX_CONFIG_FILE_BYTES};
use nuthatch_protocol::config::parse;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-includes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("sub")).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Reads a file as the server does: its keys, or the mistake without the directory.
    fn read(&self, name: &str) -> Result<Vec<String>, String> {
        let path = self.0.join(name);
        let text = fs::read_to_string(&path).unwrap();
        let parsed = parse(path.to_str().unwrap(), &text, &mut FileLoader);
        let plain = |text: String| text.replace(self.0.to_str().unwrap(), "DIR");
        let map = parsed.map_err(|error| plain(error.to_string()))?;
        Ok(map.entries().iter().map(|entry| entry.key.clone()).collect())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn includes_on_the_disk() {
    let dir = Dir::new();
    // Relative to the file that includes, not to where the server was started.
    dir.write("a.conf", "one: 1\ninclude sub/b.conf\ninclude 'sub/c.conf'");
    dir.write("sub/b.conf", "two: 2\ninclude ../d.conf");
    dir.write("sub/c.conf", "three: 3");
    dir.write("d.conf", "four: 4");
    assert!(!Path::new("d.conf").exists());
    assert_eq!(dir.read("a.conf").unwrap(), ["one", "two", "four", "three"]);

    let fails = |text: &str, why: &str| {
        dir.write("t.conf", text);
        let said = dir.read("t.conf").expect_err(why);
        assert!(said.contains(why), "{said}");
    };
    fails("port: 1\ninclude nix.conf", "t.conf:2:9: cannot include 'nix.conf': no such file");
    fails("include sub", "cannot include 'sub': it is a directory");
    // A file that includes itself, by itself, over another one, and under other names.
    fails("include t.conf", "includes itself");
    dir.write("back.conf", "include t.conf");
    fails("include back.conf", "includes itself");
    fails("include sub/../t.conf", "files include one another");
    File::create(dir.0.join("huge.conf")).unwrap().set_len(MAX_CONFIG_FILE_BYTES + 1).unwrap();
    fails("include huge.conf", "it is larger than 16777216 bytes");
    fs::write(dir.0.join("bytes.conf"), [0xff, 0xfe]).unwrap();
    fails("include bytes.conf", "it is not UTF-8 text");
    // Files that include the one below them twice: each inclusion counts, none is a loop.
    for level in 0..8 {
        let below = format!("include l{}.conf\n", level + 1).repeat(2);
        dir.write(&format!("l{level}.conf"), &below);
    }
    dir.write("l8.conf", "last: 1");
    assert_eq!(dir.read("l0.conf").unwrap(), vec!["last"; 1 << 8]);
}
