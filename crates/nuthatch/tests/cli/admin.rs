//! What only users of the system account may see, and what everyone may.

use std::fs;

use super::Server;

const CONFIG: &str = "accounts {
  SYS: { users: [{user: sys, password: s}] }
  APP: { jetstream: enabled, users: [{user: app, password: a}] }
}
system_account: SYS
";

#[test]
fn servers_through_the_system_account() {
    let path = std::env::temp_dir().join(format!("nuthatch-cli-sys-{}.conf", std::process::id()));
    fs::write(&path, CONFIG).unwrap();
    let server = Server::start(&["-c", &path.display().to_string()]);
    fs::remove_file(&path).unwrap();
    let sys = |args: &[&str]| server.json(&[args, &["--user", "sys", "--password", "s"]].concat());
    let app = ["--user", "app", "--password", "a"];
    server.ok(&[&["stream", "add", "S", "--defaults"], &app[..]].concat());

    let pinged = sys(&["server", "ping", "1"]);
    let id = pinged[0]["id"].as_str().unwrap().to_owned();
    assert!(pinged[0]["rtt_ms"].as_f64().unwrap() > 0.0, "{pinged}");
    assert_eq!(sys(&["server", "info", &id])["server_id"], id.as_str());
    let connections = sys(&["server", "report", "connections"]);
    assert_eq!(connections[0]["account"], "SYS", "{connections}");
    assert_eq!(sys(&["server", "report", "jetstream"])[0]["data"]["streams"], 1);
    assert_eq!(sys(&["server", "report", "health"])[0]["data"]["status"], "ok");

    let logs = sys(&["log", "report"])[0]["logs"].clone();
    let default = logs.as_array().unwrap().iter().find(|log| log["name"] == "default").unwrap();
    assert_eq!((&default["mode"], &default["failed"]), (&"local".into(), &false.into()), "{logs}");

    let (code, text) = server.fails(&[&["server", "report", "cpu"], &app[..]].concat());
    assert_eq!((code, text.contains("--monitor")), (1, true), "{text}");
    let (code, text) = server.fails(&["server", "ping", "2", "--user", "sys", "--password", "s"]);
    assert_eq!((code, text.contains("1 of 2 servers")), (1, true), "{text}");
    let seen = server.json(&[&["top", "--once", "-d", "50ms"], &app[..]].concat());
    assert_eq!(seen["streams"][0]["facts"]["config"]["name"], "S", "{seen}");
}

#[test]
fn probes_end_like_probes() {
    let server = Server::start(&[]);
    server.ok(&["stream", "add", "S", "--defaults"]);
    let code = |args: &[&str]| {
        let output = server.run(&[&["server", "check"], args].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text.split(' ').next().unwrap().to_owned())
    };
    assert_eq!(code(&["connection"]), (0, "OK".into()));
    assert_eq!(code(&["stream", "--stream", "S"]), (0, "OK".into()));
    let few = ["stream", "--stream", "S", "--msgs-warn", "1"];
    assert_eq!(code(&few), (1, "WARNING".into()));
    assert_eq!(code(&["stream", "--stream", "NO"]), (2, "CRITICAL".into()));
    assert_eq!(code(&["stream", "--stream", "a.b"]), (3, "UNKNOWN".into()));
    assert_eq!(code(&["kv", "--bucket", "NO"]), (2, "CRITICAL".into()));
}
