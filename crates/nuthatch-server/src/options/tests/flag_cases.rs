//! Command lines.

use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use super::{command, options};

#[track_caller]
fn wrong(line: &str, expect: &str) {
    let error = command(Invocation::NatsServer, "", line).unwrap_err();
    assert_eq!(error.to_string(), expect, "line: {line:?}");
}

#[test]
fn flags_override_the_file_by_the_rules_of_go() {
    let conf = "port: 1, debug: true, logtime: true, jetstream: enabled, server_name: file
                authorization { user: a, password: b }, http: 1, store_dir: /file";
    let o = options(
        conf,
        "-p -1 --name=flag -D=false -T=false -js=false -sd=/flag -m 0 --user u -pass=p=q \
         --pid /p -a 127.0.0.1 -l /log --ports_file_dir=/d -DV -client_advertise h:1 \
         --log_size_limit=0x10 -max_traced_msg_len 5 --logtime-utc --log-format json",
    );
    assert_eq!((o.port, o.host.as_str(), o.server_name.as_deref()), (0, "127.0.0.1", Some("flag")));
    assert!(o.log.debug && o.log.trace && !o.log.logtime && o.log.logtime_utc);
    assert_eq!(o.log.file, Some(PathBuf::from("/log")));
    assert_eq!(o.log.format, LogFormat::Json);
    assert_eq!((o.log.file_size_limit_bytes, o.log.max_traced_msg_bytes), (Some(16), Some(5)));
    assert!(!o.jetstream.enabled);
    assert_eq!(o.jetstream.store_dir, PathBuf::from("/flag"));
    assert_eq!(o.monitor.http_port, None);
    assert_eq!(o.auth.user.as_deref(), Some("u"));
    assert_eq!(o.auth.password.as_ref().map(Secret::expose), Some("p=q"));
    assert_eq!((o.pid_file, o.ports_file_dir), (Some("/p".into()), Some("/d".into())));
    assert_eq!(o.client_advertise.as_deref(), Some("h:1"));
    let o = options("", "-p 1 -port=2 --port 3");
    assert_eq!(o.port, 3, "the last one wins");
    let o = options("", "-DVV -VV=false");
    assert!(o.log.debug && !o.log.trace && !o.log.trace_verbose);
    assert_eq!(
        options("", "--auth secret").auth.token.as_ref().map(Secret::expose),
        Some("secret")
    );
}

#[test]
fn our_own_flags() {
    let o = options(
        "",
        "--sync_interval never --max_payload 8MB --max_mem 1G --max_file=-1 -js -sd /d",
    );
    assert_eq!(o.jetstream.sync, SyncPolicy::Never);
    assert_eq!(o.limits.max_payload_bytes, 8 << 20);
    assert_eq!((o.jetstream.max_memory_bytes, o.jetstream.max_store_bytes), (Some(1 << 30), None));
    let every = options("", "-sync_interval=100ms").jetstream.sync;
    assert_eq!(every, SyncPolicy::Every(Duration::from_millis(100)));
    assert_eq!(options("", "--sync-interval always").jetstream.sync, SyncPolicy::Always);
}

#[test]
fn tls_flags_replace_the_block() {
    let conf = "tls { cert_file: c, key_file: k, timeout: 5 }";
    let o = options(conf, "--tlscert=C --tlskey K --tlsverify --tlscacert A");
    assert_eq!(
        o.tls,
        Some(TlsOptions {
            certificates: vec![CertificateFiles { cert_file: "C".into(), key_file: "K".into() }],
            ca_file: Some("A".into()),
            verify: true,
            timeout: Duration::from_secs(5),
            ..TlsOptions::default()
        })
    );
    assert_eq!(options(conf, "-tls=false").tls, None);
    wrong("--tls", "TLS needs both --tlscert <file> and --tlskey <file>");
    wrong(
        "--tlscert a --tlskey b --tlsverify",
        "flag '-tlscacert' needs a value: write -tlscacert <file>",
    );
}

#[test]
fn commands() {
    let run = |line: &str| command(Invocation::NatsServer, "port: 1, prof_port: 3", line).unwrap();
    assert_eq!(run("-v"), Command::Version);
    assert_eq!(run("--version --help"), Command::Version);
    assert_eq!(run("-p 1 version"), Command::Version);
    for line in ["-h", "--help", "help", "-help_tls", "-- help"] {
        let Command::Help(text) = run(line) else { panic!("{line}") };
        assert!(text.starts_with("Usage: nats-server [flags]\n"), "{text}");
        assert!(text.contains("-sd, --store_dir <dir>"), "{text}");
    }
    let Command::TestConfig { file, options } = run("-c t.conf -t") else { panic!("-t") };
    assert_eq!(file.to_str(), Some("t.conf"));
    assert_eq!(
        options.warnings,
        ["t.conf:1:10: 'prof_port' has no effect: there is no Go profiler; use perf"]
    );
    let signal = |signal, target| Command::Signal { signal, target };
    assert_eq!(run("-sl reload=12"), signal(SignalCommand::Reload, SignalTarget::Pid(12)));
    assert_eq!(run("--signal=quit"), signal(SignalCommand::Quit, SignalTarget::OnlyServer));
    for (word, expect) in [
        ("stop", SignalCommand::Stop),
        ("term", SignalCommand::Term),
        ("reopen", SignalCommand::Reopen),
        ("ldm", SignalCommand::LameDuck),
        ("clock", SignalCommand::Clock),
    ] {
        assert_eq!(run(&format!("-sl={word}")), signal(expect, SignalTarget::OnlyServer));
    }
}

#[test]
fn pid_files() {
    let dir = std::env::temp_dir().join(format!("nuthatch-options-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("pid");
    std::fs::write(&file, "77").unwrap();
    let line = format!("-sl ldm={}", file.display());
    assert_eq!(
        command(Invocation::NatsServer, "", &line),
        Ok(Command::Signal { signal: SignalCommand::LameDuck, target: SignalTarget::Pid(77) })
    );
    std::fs::write(&file, "seven").unwrap();
    let error = command(Invocation::NatsServer, "", &line).unwrap_err().to_string();
    let shown = file.display();
    assert_eq!(
        error,
        format!("'{shown}' is neither a process id nor a file that holds one: it holds 'seven'")
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn mistakes() {
    wrong("-prot 1", "flag provided but not defined: -prot: did you mean '-port'? (see --help)");
    wrong("--zzzzzz", "flag provided but not defined: -zzzzzz (see --help)");
    wrong("-p", "flag '-p' needs a value: write -p <port>");
    wrong("-p abc", "invalid value \"abc\" for flag -p: must be a number");
    wrong("-p --5", "invalid value \"--5\" for flag -p: must be a number");
    wrong("-p 70000", "invalid value \"70000\" for flag -p: must be a port from -1 to 65535");
    wrong("-js=perhaps", "invalid value \"perhaps\" for flag -js: must be true or false");
    wrong("-js true", "unknown argument 'true': flags begin with '-' (see --help)");
    wrong("serve", "unknown argument 'serve': flags begin with '-' (see --help)");
    wrong("-", "unknown argument '-': flags begin with '-' (see --help)");
    wrong("---p", "bad flag syntax: '---p'");
    wrong("-=1", "bad flag syntax: '-=1'");
    wrong("-t", "-t needs a configuration file to test: add -c <file>");
    wrong(
        "-sl restart",
        "unknown signal 'restart': use stop, quit, term, reopen, reload, ldm or clock",
    );
    wrong("-sl quit=0", "'0' is neither a process id nor a file that holds one");
    wrong("-sl quit=nix", "'nix' is neither a process id nor a file that holds one");
    wrong(
        "-routes a,b",
        "invalid value \"a\" for flag -routes: must be addresses such as 127.0.0.1:6222, or names such as \
         n1.example.org:6222",
    );
    wrong(
        "-cluster_listen n1:6222",
        "invalid value \"n1:6222\" for flag -cluster_listen: must be a numeric address and a port, such as \
         10.0.0.1:6222 or 0.0.0.0:6222",
    );
    let incomplete = "a node of a cluster needs a node port (cluster { port }, -cluster_listen), routes (cluster { \
                      routes }, -routes) and a name (server_name, -node_name)";
    wrong("-cluster nats://127.0.0.1:6222", incomplete);
    wrong("-catalog file:///c", incomplete);
    let node =
        "-js -sd d -catalog file:///c -cluster_listen 127.0.0.1:1 -routes 127.0.0.1:2 -node_name n";
    let in_bucket = options("", &format!("{node} --store file:///s"));
    assert_eq!(in_bucket.jetstream.store.as_deref(), Some("file:///s"));
    wrong(
        "-js -sd d -cluster_listen 127.0.0.1:1 -routes 127.0.0.1:2 -node_name n --store file:///s",
        &error::Conflict::StoreOfBuiltIn.to_string(),
    );
    wrong(
        "--max_payload 1TB",
        "invalid value \"1TB\" for flag -max_payload: must be a size of at most 64MB",
    );
    wrong(
        "--sync_interval soon",
        "invalid value \"soon\" for flag -sync_interval: must be always, never or a duration such as 100ms",
    );
    wrong(
        "--client_advertise a:b:c",
        "invalid value \"a:b:c\" for flag -client_advertise: must be host or host:port",
    );
    wrong("--user a --auth b", "a user and a token cannot both be required: keep one of them");
    wrong("-ms 8443", "https monitoring needs a 'tls' block (or --tls, --tlscert and --tlskey)");
}

#[test]
fn flags_without_effect_are_said() {
    let node =
        "-js -sd d -catalog file:///c -cluster_listen 127.0.0.1:1 -routes 127.0.0.1:2 -node_name n";
    let o = options("port: 1", &format!("{node} --sync_interval never"));
    let text = "sync_interval does nothing for the quorum log: what is acknowledged is durable on a majority";
    assert_eq!(o.warnings, [text]);
    let o = options("port: 1", "-s --profile 5 --routes= --cluster_name C -no_advertise=false");
    assert_eq!(
        o.warnings,
        [
            "flag '-s' has no effect: log lines go to the log file or to standard error",
            "flag '-profile' has no effect: there is no Go profiler; use perf",
            "flag '-cluster_name' has no effect: this server is alone",
        ]
    );
}
