//! Configuration files that are right.

use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use super::{command, options, says};

#[test]
fn an_empty_file_yields_the_defaults() {
    let got = options("# nothing", "");
    let temporary = std::env::temp_dir().join("nats");
    let expect = Options {
        config_file: Some(PathBuf::from("t.conf")),
        warnings: vec!["the configuration file holds no settings".to_owned()],
        jetstream: JetStreamOptions { store_dir: temporary, ..JetStreamOptions::default() },
        ..Options::default()
    };
    assert_eq!(got, expect);
}

#[test]
fn jetstream_depends_on_the_name_of_the_program() {
    let serve = |invocation, line| match command(invocation, "", line).unwrap() {
        Command::Serve(options) => *options,
        other => panic!("{other:?}"),
    };
    let ours = serve(Invocation::Nuthatch, "");
    assert!(ours.jetstream.enabled);
    assert_eq!(ours.jetstream.store_dir, PathBuf::from("nuthatch-data"));
    assert_eq!(ours.jetstream.sync, SyncPolicy::Always);
    assert!(ours.warnings.is_empty());
    assert!(!serve(Invocation::Nuthatch, "-js=false").jetstream.enabled);
    assert!(!serve(Invocation::NatsServer, "").jetstream.enabled);
    let theirs = serve(Invocation::NatsServer, "-js");
    let dir = std::env::temp_dir().join("nats");
    assert_eq!(theirs.jetstream.store_dir, dir);
    assert_eq!(
        theirs.warnings,
        [format!(
            "no store_dir is set: streams are stored in {}, which a reboot may empty",
            dir.display()
        )]
    );
}

#[test]
fn a_node_of_a_cluster_as_nats_server_is_told_of_it() {
    let file = "server_name: n1\njetstream { store_dir: './n1', quorum { catalog: 'file:///c', logs_per_node: 2, replace_after: '30m', lease: '150ms', owner_zones: [a, b-1], standby_memory: 2GB, standby_above: '20ms' } }\n\
                cluster: { name: c1, zone: 'a', port: 6222, routes: [\n\
                'nats-route://0.0.0.0:6222', 'nats://localhost:6223', '10.0.0.3:6224', 'nats://n4.example.org:6222/',\n] }";
    let o = options(file, "");
    let expect = ClusterSettings {
        name: "n1".into(),
        cluster: Some("c1".into()),
        listen: "0.0.0.0:6222".parse().unwrap(),
        routes: ["0.0.0.0:6222", "127.0.0.1:6223", "10.0.0.3:6224", "n4.example.org:6222"]
            .map(|route| route.parse().unwrap())
            .to_vec(),
        catalog: "file:///c".into(),
        logs_per_node: 2,
        replace_after: Some(Duration::from_secs(1800)),
        lease: Duration::from_millis(150),
        key: None,
        may_be_open: true,
        protocol_max: nuthatch_cluster::Protocol::NEWEST,
        zone: Some("a".parse().unwrap()),
        owner_zones: vec!["a".parse().unwrap(), "b-1".parse().unwrap()],
        standby_bytes: Some(2 << 30),
        standby_above: Duration::from_millis(20),
    };
    assert_eq!(o.cluster.as_ref(), Some(&expect));
    let text = "cluster: whoever reaches 0.0.0.0:6222 can be a node and read everything: give all nodes the same \
                'key_file'";
    assert_eq!(o.warnings, [text]);
    let flags = "-cluster_listen 127.0.0.1:1 -routes 127.0.0.1:2 -catalog= -node_name n -cluster_key k -cluster_name= -zone c";
    let expect = ClusterSettings {
        name: "n".into(),
        cluster: None,
        listen: "127.0.0.1:1".parse().unwrap(),
        routes: vec!["127.0.0.1:2".parse().unwrap()],
        catalog: "built-in".into(),
        logs_per_node: 2,
        replace_after: Some(Duration::from_secs(1800)),
        lease: Duration::from_millis(150),
        key: Some("k".into()),
        may_be_open: false,
        protocol_max: nuthatch_cluster::Protocol::NEWEST,
        zone: Some("c".parse().unwrap()),
        owner_zones: vec!["a".parse().unwrap(), "b-1".parse().unwrap()],
        standby_bytes: Some(2 << 30),
        standby_above: Duration::from_millis(20),
    };
    let o = options(file, flags);
    assert_eq!((o.cluster, o.warnings.len()), (Some(expect), 0));
}

#[test]
fn addresses_and_ports() {
    let o = options("listen: 127.0.0.1:-1\nhttp: 8222", "");
    assert_eq!((o.host.as_str(), o.port), ("127.0.0.1", 0));
    assert_eq!((o.monitor.host.as_str(), o.monitor.http_port), ("127.0.0.1", Some(8222)));
    let o = options("net: '::1', port: 0, http: \"127.0.0.1:-1\"", "");
    assert_eq!((o.host.as_str(), o.port), ("::1", DEFAULT_PORT));
    assert_eq!((o.monitor.host.as_str(), o.monitor.http_port), ("127.0.0.1", Some(0)));
    let o = options("listen: '[::1]:4333', monitor_port: 0, http_base_path: 'a//b/../c/'", "");
    assert_eq!((o.host.as_str(), o.port, o.monitor.http_port), ("::1", 4333, None));
    assert_eq!(o.monitor.base_path, "/a/c");
    assert_eq!(options("listen: 4333", "").port, 4333);
    let o = options("client_advertise: 'example.org:4222'", "");
    assert_eq!(o.client_advertise.as_deref(), Some("example.org:4222"));
}

#[test]
fn identity_logging_and_limits() {
    let o = options(
        "server_name: n1, server_tags: [ Region:EU, 'b ', b ], server_metadata { a: x }
         debug: true, trace_verbose: yes, logtime: off, logtime_utc: true, log_format: json
         log_file: '/tmp/l', logfile_size_limit: 1MB, logfile_max_num: 3, max_traced_msg_len: 100
         pid_file: '/tmp/p', ports_file_dir: /tmp
         max_payload: 4MB, max_pending: 128MB, max_connections: 10, max_subscriptions: 5
         max_sub_tokens: 9, max_control_line: 8k, ping_interval: '30s', ping_max: 3
         write_deadline: '2s', no_fast_producer_stall: true, max_closed_clients: 7
         lame_duck_duration: '40s', lame_duck_grace_period: '1s'",
        "",
    );
    assert_eq!(o.server_name.as_deref(), Some("n1"));
    assert_eq!(o.server_tags, ["region:eu", "b"]);
    assert_eq!(o.server_metadata["a"], "x");
    assert_eq!(
        o.log,
        LogOptions {
            debug: true,
            trace: true,
            trace_verbose: true,
            trace_headers: false,
            format: LogFormat::Json,
            logtime: false,
            logtime_utc: true,
            file: Some(PathBuf::from("/tmp/l")),
            file_size_limit_bytes: Some(1 << 20),
            file_max_count: Some(3),
            max_traced_msg_bytes: Some(100),
        }
    );
    assert_eq!((o.pid_file, o.ports_file_dir), (Some("/tmp/p".into()), Some("/tmp".into())));
    assert_eq!(
        o.limits,
        Limits {
            max_payload_bytes: 4 << 20,
            max_pending_bytes: 128 << 20,
            max_control_line_bytes: 8000,
            max_connections: 10,
            max_subscriptions: Some(5),
            max_subscription_tokens: Some(9),
            ping_interval: Duration::from_secs(30),
            ping_max: 3,
            write_deadline: Duration::from_secs(2),
            no_fast_producer_stall: true,
            max_closed_clients: 7,
        }
    );
    assert_eq!(o.lame_duck_duration, Duration::from_secs(40));
    assert_eq!(o.lame_duck_grace_period, Duration::from_secs(1));
}

#[test]
fn zeros_mean_what_they_mean_in_nats_server() {
    let o = options(
        "max_payload 0, max_pending 0, max_control_line 0, ping_max 0, ping_interval '0'
         write_deadline '0s', max_subs 0, max_conn 0, max_closed_clients 0",
        "",
    );
    assert_eq!(o.limits, Limits { max_connections: 0, ..Limits::default() });
}

#[test]
fn jetstream_block() {
    let o = options("jetstream: enabled, store_dir: '/data'", "");
    assert!(o.jetstream.enabled);
    assert_eq!(o.jetstream.store_dir, PathBuf::from("/data"));
    let o = options(
        "jetstream { store_dir: /d, max_mem: 1GB, max_file: '10G', domain: hub, sync: '100ms'
           compression: zstd, ek: 'new', prev_encryption_key: old, cipher: AES, strict: false, unique_tag: 'AZ:', limits { max_ack_pending: 100, max_request_batch: 200
             duplicate_window: '5m', default_max_consumers: -1
             batch { max_inflight_per_stream: 3, max_inflight_total: 4, max_msgs: 5, timeout: 6s } } }",
        "",
    );
    assert_eq!(
        o.jetstream,
        JetStreamOptions {
            enabled: true,
            store_dir: "/d".into(),
            store: None,
            tier: None,
            cache: None,
            logs: Vec::new(),
            max_memory_bytes: Some(1 << 30),
            max_store_bytes: Some(10 << 30),
            domain: Some("hub".to_owned()),
            sync: SyncPolicy::Every(Duration::from_millis(100)),
            compression: Some(Compression::Zstd),
            keys: nuthatch_log::Keys {
                current: nuthatch_log::Key::of_text(b"new"),
                previous: vec![nuthatch_log::Key::of_text(b"old").unwrap()],
                cipher: nuthatch_log::Cipher::Aes256Gcm,
            },
            strict: false,
            unique_tag: Some("az:".to_owned()),
            limits: JetStreamLimits {
                max_ack_pending: Some(100),
                max_request_batch: Some(200),
                duplicate_window: Some(Duration::from_secs(300)),
                default_max_consumers: None,
                batch: BatchOptions {
                    per_stream: Some(3),
                    total: Some(4),
                    messages: Some(5),
                    timeout: Some(Duration::from_secs(6)),
                },
            },
        }
    );
    let sync = |text: &str| {
        options(&format!("jetstream {{ store_dir: /d, sync_interval: {text} }}"), "").jetstream.sync
    };
    assert_eq!(sync("always"), SyncPolicy::Always);
    assert_eq!(sync("Never"), SyncPolicy::Never);
    assert_eq!(sync("'0s'"), SyncPolicy::Always);
    assert_eq!(sync("'2m'"), SyncPolicy::Every(Duration::from_secs(120)));
    assert!(!options("jetstream { enabled: false, max_mem: -1 }", "").jetstream.enabled);
    assert!(!options("jetstream: disabled", "").jetstream.enabled);
}

#[test]
fn credentials() {
    let o = options("authorization { user: u, pass: p, timeout: 1.5 }", "");
    assert_eq!(o.auth.user.as_deref(), Some("u"));
    assert_eq!(o.auth.password.as_ref().map(Secret::expose), Some("p"));
    assert_eq!(o.auth.timeout, Duration::from_millis(1500));
    assert!(!format!("{o:?}").contains("\"p\""), "passwords are not printed");
    let hash = "$2a$11$V1qrpBt8/SLfEBr4NJq4T.2mg8chx8.MTblUiTBOLV3MKDeAy.f7u";
    let o = options(&format!("authorization {{ token: {hash} }}"), "");
    assert!(o.auth.token.is_some_and(|t| t.is_bcrypt() && t.expose() == hash));
    assert!(!Secret::new("$2c$11$x").is_bcrypt());
    assert!(!Secret::new("$2a$1").is_bcrypt());
    let o = options("authorization { PASS: x, users: [ {user: a, pass: $PASS} ] }", "");
    assert_eq!((o.auth.password, o.auth.users.len()), (None, 1));
    assert!(options("authorization { timeout: '3s' }", "").auth.timeout.as_secs() == 3);
}

const NKEY: &str = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR";

#[test]
fn users_and_permissions() {
    let o = options(
        &format!(
            "authorization {{
               ADMIN {{ publish: '>' }}
               default_permissions: {{ publish: [ 'd.>' ], subscribe: {{ deny: x }} }}
               users: [
                 {{ user: a, password: b, permissions: $ADMIN, clients: [standard, MQTT] }}
                 {{ user: c, password: d }}
                 {{ nkey: {NKEY}, permissions: {{ allow_responses: true }} }}
                 {{ user: e, permissions: {{ sub: ['q.> workers', y], pub: {{}}, \
                    allow_responses: {{ max: -1, expires: '-1s' }} }} }}
               ]
             }}
             no_auth_user: c"
        ),
        "",
    );
    let [a, c, e] = o.auth.users.as_slice() else { panic!("{:?}", o.auth.users) };
    let list = |items: &[&str]| Some(items.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
    let only = |items: &[&str]| Some(SubjectPermission { allow: list(items), deny: vec![] });
    let admin = a.permissions.as_ref().unwrap();
    assert_eq!(admin.publish, only(&[">"]));
    assert_eq!(admin.subscribe, None);
    assert_eq!(
        a.allowed_connection_types.iter().collect::<Vec<_>>(),
        [&ConnectionType::Standard, &ConnectionType::Mqtt]
    );
    let defaults = c.permissions.as_ref().unwrap();
    assert_eq!(defaults.publish, only(&["d.>"]));
    assert_eq!(
        defaults.subscribe,
        Some(SubjectPermission { allow: None, deny: vec!["x".to_owned()] })
    );
    let nkey = &o.auth.nkeys[0];
    assert_eq!(nkey.public, NKEY);
    let answers = nkey.permissions.as_ref().unwrap();
    assert_eq!(answers.allow_responses, Some(ResponsePermission::default()));
    assert_eq!(answers.publish, only(&[]), "answering is all that may be published");
    let e = e.permissions.as_ref().unwrap();
    assert_eq!(e.subscribe, only(&["q.> workers", "y"]));
    assert_eq!(e.allow_responses, Some(ResponsePermission { max_msgs: None, expires: None }));
    assert_eq!(o.auth.no_auth_user.as_deref(), Some("c"));
}

#[test]
fn accounts_of_one_set_of_users_and_the_system() {
    let o = options(
        "PERM { publish: a }
         accounts {
           SYS { users: [ {user: admin, password: s} ] }
           APP { users: [ {user: u, password: p, permissions: $PERM} ]
                 jetstream: { max_mem: 1M, max_store: -1, max_streams: 3, max_consumers: 4
                   max_ack_pending: 5, max_bytes: true, disk_max_stream_bytes: 7 } }
         }
         system_account: SYS",
        "",
    );
    assert_eq!(o.system_account, "SYS");
    assert_eq!(o.accounts.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["SYS", "APP"]);
    assert_eq!(o.accounts[0].jetstream, None);
    assert_eq!(
        o.accounts[1].jetstream,
        Some(AccountJetStream {
            max_memory_bytes: Some(1_000_000),
            max_store_bytes: None,
            max_streams: Some(3),
            max_consumers: Some(4),
            max_ack_pending: Some(5),
            memory_max_stream_bytes: None,
            store_max_stream_bytes: Some(7),
            max_bytes_required: true,
            tiers: Vec::new(),
        })
    );
    let o = options("accounts: [ A ]", "");
    assert_eq!(o.accounts[0].name, "A");
}

fn certificate(cert_file: &str, key_file: &str) -> Vec<CertificateFiles> {
    vec![CertificateFiles { cert_file: cert_file.into(), key_file: key_file.into() }]
}

#[test]
fn tls_in_full() {
    let o = options(
        "allow_non_tls: true
         tls { certs: [ { cert_file: a, key_file: b }, { cert_file: c, key_file: d } ]
               ca_file: ca, verify_and_map: true, handshake_first: '300ms', min_version: '1.3'
               pinned_certs: [ABababababababababababababababababababababababababababababababab]
               cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
               curve_preferences: [X25519MLKEM768, CurveP256], connection_rate_limit: 7 }",
        "",
    );
    let tls = o.tls.unwrap();
    assert!(o.allow_non_tls && tls.verify && tls.map_users);
    assert_eq!(tls.certificates.len(), 2);
    assert_eq!(tls.handshake_first, HandshakeFirst::Within(Duration::from_millis(300)));
    assert_eq!((tls.min_version, tls.rate_limit), (TlsVersion::V13, Some(7)));
    assert_eq!(tls.pinned_keys.first().map(|key| &key[..4]), Some("abab"));
    assert_eq!((tls.cipher_suites.len(), tls.curves), (1, vec!["CurveP256".to_owned()]));
    assert!(o.warnings[0].contains("passed over: X25519MLKEM768"), "{:?}", o.warnings);
    for (text, first) in [
        ("true", HandshakeFirst::Yes),
        ("'on'", HandshakeFirst::Yes),
        ("off", HandshakeFirst::No),
        ("auto", HandshakeFirst::Within(Duration::from_millis(50))),
    ] {
        let o = options(&format!("tls {{ cert_file: c, key_file: k, first: {text} }}"), "");
        assert_eq!(o.tls.unwrap().handshake_first, first, "{text}");
    }
}

#[test]
fn websocket_block() {
    let o = options(
        "ws { listen: '127.0.0.1:-1', no_tls: true, same_origin: true, compression: true
              allowed_origins: ['http://a.example', 'https://b.example:8443']
              handshake_timeout: '3s', user_cookie: u, pass_cookie: p, token_cookie: t
              headers { X-One: 1st }, ping_interval: '20s', advertise: 'ws.example:443' }",
        "",
    );
    let ws = o.websocket.unwrap();
    assert_eq!((ws.host.as_str(), ws.port), ("127.0.0.1", 0));
    assert!(ws.same_origin && ws.compression && ws.tls.is_none());
    assert_eq!(ws.allowed_origins[1].to_string(), "https://b.example:8443");
    assert_eq!(ws.handshake_timeout, Duration::from_secs(3));
    assert_eq!((ws.user_cookie.as_deref(), ws.jwt_cookie), (Some("u"), None));
    assert_eq!(ws.headers, [("X-One".to_owned(), "1st".to_owned())]);
    assert_eq!(options("websocket { no_tls: true }", "").websocket, None);
}

#[test]
fn tls_block() {
    let o = options(
        "tls { cert_file: c.pem, key_file: k.pem, ca_file: ca.pem, verify: true, timeout: 0.5
               min_version: '1.2', handshake_first: false, pinned_certs: [] }
         https: '127.0.0.1:0'",
        "",
    );
    assert_eq!(
        o.tls,
        Some(TlsOptions {
            certificates: certificate("c.pem", "k.pem"),
            ca_file: Some("ca.pem".into()),
            verify: true,
            timeout: Duration::from_millis(500),
            ..TlsOptions::default()
        })
    );
    assert_eq!(o.auth.timeout, Duration::from_millis(1500), "TLS time plus a second");
}

#[test]
fn what_has_no_effect_is_said() {
    says("syslog: false, prof_port: 0, gateway {}, mappings {}, ocsp: off", &[]);
    says(
        "gateway { name: A, port: 7222 }",
        &["t.conf:1:1: 'gateway' has no effect: this server is alone: no port for gateways is \
             opened, and none is looked for"],
    );
    says(
        "prof_port: 8221\nconnect_error_reports: 3",
        &[
            "t.conf:1:1: 'prof_port' has no effect: there is no Go profiler; use perf",
            "t.conf:2:1: 'connect_error_reports' has no effect: failures to connect as a leaf \
             node are logged at the 1st, 2nd, 4th, 8th, … attempt",
        ],
    );
    says(
        "cluster { name: C1 }",
        &["t.conf:1:1: 'cluster' has no effect: it names neither an address nor routes"],
    );
    says(
        "ping_interval: 20",
        &["t.conf:1:16: 'ping_interval' is taken as 20 seconds: write \"20s\""],
    );
    says(
        "max_payload: 16MB",
        &["t.conf:1:14: max_payload of 16777216 is large: above 8MB memory use and latency suffer"],
    );
    says("port: 1\nPort: 2", &["t.conf:2:1: 'Port' is given twice: this one counts"]);
    says(
        "authorization { timeout: 61 }",
        &["t.conf:1:26: 'timeout' of 61s is long: keep it under 60 seconds, and put durations \
             in quotes (\"1m\")"],
    );
}

#[test]
fn default_permissions_without_users_are_said_to_do_nothing() {
    let place = "authorization { user: a, password: b, default_permissions: { publish: x } }";
    let warnings = options(place, "").warnings;
    assert!(warnings.iter().any(|w| w.contains("has no effect without 'users'")), "{warnings:?}");
    let users = "authorization { users: [ {user: a} ], default_permissions: { publish: x } }";
    assert!(options(users, "").warnings.is_empty());
}

#[test]
fn logs_and_where_they_are_kept() {
    let text = "jetstream { store_dir: /d, store: 's3://b/p', logs { \
                cold { store: 's3://c/q', compression: none }, \
                fast { dir: /fast, sync_interval: never }, plain {} } }";
    let o = options(text, "").jetstream;
    assert_eq!(o.store.as_deref(), Some("s3://b/p"));
    let log = |name: &str, home, sync| NamedLog {
        name: name.to_owned(),
        home,
        sync,
        compression: (name == "cold").then_some(Compression::None),
        tier: None,
        cache: None,
    };
    assert_eq!(
        o.logs,
        [
            log("cold", LogStore::Bucket("s3://c/q".to_owned()), None),
            log("fast", LogStore::Directory(Some("/fast".into())), Some(SyncPolicy::Never)),
            log("plain", LogStore::Directory(None), None),
        ]
    );
    assert_eq!(options("jetstream { store: /dir }", "").jetstream.store_dir, PathBuf::from("/dir"));
    assert_eq!(options("", "--store gs://b/p").jetstream.store.as_deref(), Some("gs://b/p"));
    let late = options("jetstream { store: 's3://b/p', sync_interval: '2m' }", "").warnings;
    assert!(late.iter().any(|text| text.starts_with("sync_interval does nothing")), "{late:?}");
}

#[test]
fn tiers_and_caches() {
    let text = "jetstream { tier { store: 's3://b/t', after_age: '1h', local_max: 10GB }, logs { \
                warm { tier { store: 'file:///t', local_max: '64M' } }, \
                cold { store: 's3://c/q', cache { dir: /fast, max_bytes: 1GB } } } }";
    let o = options(text, "").jetstream;
    let tier = o.tier.expect("a tier");
    assert_eq!(tier.store, "s3://b/t");
    assert_eq!(tier.after_age, Some(Duration::from_secs(3600)));
    assert_eq!(tier.local_max_bytes, Some(10 << 30));
    let warm = o.logs[0].tier.clone().expect("a tier");
    assert_eq!((warm.after_age, warm.local_max_bytes), (None, Some(64 << 20)));
    let cache = o.logs[1].cache.clone().expect("a cache");
    assert_eq!((cache.dir, cache.max_bytes), (PathBuf::from("/fast"), 1 << 30));
    let text = "jetstream { store: 's3://b/p', cache { dir: /c, max_bytes: 8GB } }";
    assert!(options(text, "").jetstream.cache.is_some());
}
