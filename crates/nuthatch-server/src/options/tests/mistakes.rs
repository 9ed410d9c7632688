//! Ways to be wrong, each with its exact words.

use super::{Invocation, command, fails, fails_somewhere};

#[test]
fn unknown_keys_name_the_nearest_one() {
    fails(
        "prot: 4222",
        "t.conf:1:1: unknown field \"prot\" at the top level: did you mean 'port'?",
    );
    fails(
        "port: 1\n  max_paylaod = 8MB",
        "t.conf:2:3: unknown field \"max_paylaod\" at the top level: did you mean 'max_payload'?",
    );
    fails("database: x", "t.conf:1:1: unknown field \"database\" at the top level");
    fails(
        "authorization {\n  usr: a }",
        "t.conf:2:3: unknown field \"usr\" in 'authorization': did you mean 'user'?",
    );
    fails(
        "authorization { users: [ {user: a, pasword: b} ] }",
        "t.conf:1:36: unknown field \"pasword\" in a user: did you mean 'password'?",
    );
    fails(
        "jetstream { storedirs: x }",
        "t.conf:1:13: unknown field \"storedirs\" in 'jetstream': did you mean 'storedir'?",
    );
    fails(
        "jetstream { store_dir: x, limits { max_ack_pendin: 1 } }",
        "t.conf:1:36: unknown field \"max_ack_pendin\" in 'limits' of 'jetstream': \
         did you mean 'max_ack_pending'?",
    );
    fails(
        "tls { certfile: x, cert_file: c, key_file: k }",
        "t.conf:1:7: unknown field \"certfile\" in 'tls': did you mean 'cert_file'?",
    );
    fails(
        "accounts { A { user: [] } }",
        "t.conf:1:16: unknown field \"user\" in an account: did you mean 'users'?",
    );
    fails(
        "authorization { users: [ {user: a, permissions: {publish: {alow: x}}} ] }",
        "t.conf:1:60: unknown field \"alow\" in subject permissions: did you mean 'allow'?",
    );
}

#[test]
fn wrong_types_and_values() {
    fails("port: abc", "t.conf:1:7: 'port' must be an integer, found a string");
    fails("port: 70000", "t.conf:1:7: 'port' must be from -1 to 65535, found 70000");
    fails("debug: 1", "t.conf:1:8: 'debug' must be true or false, found an integer");
    fails(
        "server_name: 12",
        "t.conf:1:14: 'server_name' must be a string, found an integer: put it in quotes, \"12\"",
    );
    fails(
        "authorization { user: a, pass: 0123 }",
        "t.conf:1:32: 'password' must be a string, found an integer: put it in quotes, \"0123\"",
    );
    fails("server_name: 'a b'", "t.conf:1:14: 'server_name' cannot hold spaces");
    fails(
        "listen: localhost",
        "t.conf:1:9: 'listen': cannot use 'localhost' as an address: write host:port",
    );
    fails(
        "listen: '::1:4222'",
        "t.conf:1:9: 'listen': cannot use '::1:4222' as an address: put an IPv6 address in \
         brackets: \"[::1]:4222\"",
    );
    fails(
        "http: 'h:x'",
        "t.conf:1:7: 'http': cannot use 'h:x' as an address: the port must be a number from -1 \
         to 65535",
    );
    fails("listen: true", "t.conf:1:9: 'listen' must be a port or host:port, found a boolean");
    fails(
        "ping_interval: 2m",
        "t.conf:1:16: 'ping_interval' is 2m, which without quotes is the number 2000000: \
         write \"2m\" for a duration",
    );
    fails(
        "ping_interval: '2'",
        "t.conf:1:16: 'ping_interval': '2' lacks a unit: write such as \"2s\" (ns, us, ms, s, m, h)",
    );
    fails("write_deadline: '-1s'", "t.conf:1:17: 'write_deadline' cannot be negative");
    fails(
        "lame_duck_duration: '5s'",
        "t.conf:1:21: 'lame_duck_duration' must be at least 30s, found 5s",
    );
    fails(
        "max_payload: 65MB",
        "t.conf:1:14: 'max_payload' must be from 0 to 67108864, found 68157440",
    );
    fails("max_payload: -1", "t.conf:1:14: 'max_payload' must be from 0 to 67108864, found -1");
    fails(
        "max_payload: '5 apples'",
        "t.conf:1:14: 'max_payload': '5 apples' is not a size: write such as 10GB, or \"10G\" for 10 GiB",
    );
    fails("max_sub_tokens: 0", "t.conf:1:17: 'max_sub_tokens' must be from 1 to 255, found 0");
    fails(
        "server_tags: [a, 1]",
        "t.conf:1:18: 'server_tags' must be a string, found an integer: put it in quotes, \"1\"",
    );
    fails("authorization: x", "t.conf:1:16: 'authorization' must be a map: { … }, found a string");
}

#[test]
fn jetstream_mistakes() {
    fails(
        "jetstream: enabld",
        "t.conf:1:12: 'jetstream' must be 'enabled' or 'disabled', found 'enabld': \
         did you mean 'enabled'?",
    );
    fails(
        "jetstream: 1",
        "t.conf:1:12: 'jetstream' must be true, false, 'enabled', 'disabled' or a map, found an integer",
    );
    fails(
        "store_dir: a\njetstream { store_dir: b }",
        "t.conf:2:24: 'store_dir' is given twice: keep one, at the top level or in 'jetstream'",
    );
    fails(
        "jetstream { sync_interval: sometimes }",
        "t.conf:1:28: 'sync_interval': 'sometimes' is not a duration: write such as \"10s\", \
         \"1h30m\" or \"250ms\"",
    );
    fails(
        "jetstream { domain: 'a.b' }",
        "t.conf:1:21: 'domain' cannot hold '.', '*', '>' or spaces",
    );
    fails(
        "jetstream { tpm { keys_file: k } }",
        "t.conf:1:13: 'tpm' in 'jetstream' is not supported: keys are not taken from a TPM; use \
         'key'",
    );
    fails("jetstream { key: '' }", "t.conf:1:18: 'key' cannot be empty");
    fails(
        "jetstream { prev_key: old, cipher: aes }",
        "t.conf:1:36: 'cipher' is given without 'key', so nothing would be encrypted with it",
    );
    fails(
        "jetstream { key: secret, cipher: rot13 }",
        "t.conf:1:34: 'cipher' must be 'chacha', 'chachapoly', 'aes' or 'aesgcm', found 'rot13'",
    );
}

#[test]
fn mistakes_about_users() {
    fails(
        "authorization { users: {} }",
        "t.conf:1:24: 'users' must be an array of users: [ {user: a, password: b}, … ], found a map",
    );
    fails("authorization { users: [ {} ] }", "t.conf:1:26: 'users' entry needs 'user' or 'nkey'");
    fails(
        "authorization { users: [ {nkey: UABC} ] }",
        "t.conf:1:33: 'nkey' must be the public key of a user: 56 characters that begin with U",
    );
    fails(
        "authorization { users: [ {user: a, nkey: UABC} ] }",
        "t.conf:1:42: 'nkey' users take no name: remove 'user' or 'nkey'",
    );
    fails(
        "authorization { users: [ {user: a, clients: [standrad]} ] }",
        "t.conf:1:46: 'clients' must be one of STANDARD, WEBSOCKET, LEAFNODE, LEAFNODE_WS, MQTT, \
         MQTT_WS, IN_PROCESS, found 'standrad': did you mean 'STANDARD'?",
    );
    fails(
        "authorization { users: [ {user: a, permissions: {publish: 'a..b'}} ] }",
        "t.conf:1:59: 'publish': 'a..b' is not a valid subject",
    );
    fails(
        "authorization { users: [ {user: a, permissions: {publish: 'a q'}} ] }",
        "t.conf:1:59: 'publish': 'a q' is not a valid subject",
    );
    fails(
        "authorization { users: [ {user: a, permissions: {subscribe: 'a q..r'}} ] }",
        "t.conf:1:61: 'subscribe': 'q..r' is not a valid queue name",
    );
    fails(
        "authorization { users: [ {user: a, permissions: {allow_responses: 3}} ] }",
        "t.conf:1:67: 'allow_responses' must be true, false or a map: { max: 1, expires: \"2m\" }, \
         found an integer",
    );
    fails(
        "authorization { user: a, token: b }",
        "a user and a token cannot both be required: keep one of them",
    );
    fails("authorization { pass: b }", "a password is given without a user: add 'user' (--user)");
    fails(
        "authorization { user: a, users: [{user: b}] }",
        "'user' cannot be combined with a list of users: add it to the list instead",
    );
    fails(
        "authorization { users: [{user: b}, {user: b}] }",
        "user 'b' is defined twice: names must be unique across all accounts",
    );
    fails(
        "no_auth_user: x",
        "no_auth_user 'x' is not among the users: define it in 'authorization' or 'accounts'",
    );
}

#[test]
fn mistakes_about_accounts() {
    fails(
        "accounts { $G { } }",
        "t.conf:1:15: '$G' is the account of 'authorization': configure it there",
    );
    fails("accounts: [A, A]", "t.conf:1:15: 'A' is defined twice: merge the two accounts");
    for (exports, expect) in [
        ("1", "'exports' must be an array of exports: [ {stream: \"a.>\"}, … ], found an integer"),
        ("[{}]", "'exports' entry needs either 'stream' or 'service'"),
        ("[{stream: a, service: b}]", "'exports' entry needs either 'stream' or 'service'"),
        (
            "[{stream: a, response: stream}]",
            "'stream' takes no 'response', 'threshold' or 'latency': they belong to a 'service'",
        ),
        (
            "[{service: a, response: many}]",
            "'response' must be one of single, stream, chunked, found 'many'",
        ),
        (
            "[{service: a, latency: {subject: x, sampling: 0}}]",
            "'sampling' is a bad sampling percentage, should be 1-100",
        ),
    ] {
        fails_somewhere(&format!("accounts {{ A {{ exports: {exports} }} }}"), expect);
    }
    for (imports, expect) in [
        (
            "[{stream: {account: B}}]",
            "'stream' needs an account name and a subject: { account: A, subject: \"a.>\" }",
        ),
        ("[{}]", "'imports' entry needs either 'stream' or 'service'"),
        (
            "[{stream: {account: B, subject: a}, to: b, prefix: c}]",
            "'prefix' cannot be combined with 'to': a stream has one subject here",
        ),
        (
            "[{stream: {account: B, subject: a}, prefix: '*'}]",
            "'prefix' is wrong: stream import prefix can not contain wildcard tokens",
        ),
    ] {
        fails_somewhere(&format!("accounts {{ A {{ imports: {imports} }} }}"), expect);
    }
    fails("accounts { A: 1 }", "t.conf:1:15: 'A' must be a map: { … }, found an integer");
    fails(
        "system_account: S",
        "system_account 'S' is not among the accounts: define it in 'accounts'",
    );
    fails(
        "system_account: S, accounts { S { jetstream: true } }",
        "jetstream can not be enabled on the system account ('S')",
    );
}

#[test]
fn leaf_nodes_that_cannot_be() {
    let remote = |text: &str| format!("leafnodes {{ remotes: [ {{ {text} }} ] }}");
    fails(&remote("account: A"), "t.conf:1:24: 'remotes' entry needs 'url' or 'urls'");
    let text = "cannot find local account \"A\" specified in leafnode remote";
    fails(&remote("url: 'nats://hub', account: A"), text);
    let text = "duplicate remote hub:7422 for account '$G' in 'leafnodes'";
    fails("leafnodes { remotes: [ {url: 'nats://hub'}, {url: 'leaf://hub'} ] }", text);
    let text = "t.conf:1:24: 'urls' cannot have a mix of websocket and non-websocket addresses";
    fails(&remote("urls: ['wss://hub', 'nats://hub']"), text);
    let text = "t.conf:1:50: 'proxy' has 'tls', which needs a 'url' with https://";
    fails(&remote("url: 'nats://h', proxy: { url: 'http://p', tls {} }"), text);
    let text = "t.conf:1:49: 'nkey' must be the seed of a user's nkey: it begins with SU";
    fails(&remote("url: 'nats://h', nkey: 'SUsecret'"), text);
    let text = "t.conf:1:30: 'compression' must be 'off', 'accept', 's2_auto', 's2_fast', 's2_better' or \
                's2_best', found 'gzip'";
    fails("leaf { port: 1, compression: gzip }", text);
    fails(
        "leaf { port: 1, compression { mode: s2_auto, rtt_thresholds: ['20ms', '10ms'] } }",
        "t.conf:1:62: 'rtt_thresholds' must hold rising durations",
    );
    let text = "t.conf:1:30: 'min_version' should be at least 2.8.0";
    fails("leaf { port: 1, min_version: '2.7.9' }", text);
    let text =
        "in 'authorization' of 'leafnodes' a single user or nkey cannot be combined with users";
    fails("leaf { authorization { user: a, users: [ {user: b} ] } }", text);
    let text = "duplicate user \"b\" detected in leafnode authorization";
    fails("leaf { authorization { users: [ {user: b}, {user: b} ] } }", text);
    let text = "cannot find local account \"X\" specified in leafnode authorization";
    fails("leaf { authorization { users: [ {user: b, account: X} ] } }", text);
}

#[test]
fn unsupported_blocks_say_so() {
    fails(
        "cluster { port: 6222, tls { verify: true } }",
        "t.conf:1:23: 'tls' in 'cluster' is not supported: nodes know each other by the key they share: write \
         'key_file'",
    );
    fails(
        "cluster { port: 6222, routes: [ \"nats-route://u:p@10.0.0.1:6222\" ] }",
        "t.conf:1:33: 'routes' \"nats-route://u:p@10.0.0.1:6222\": nodes know each other by the key they share \
         ('key_file'), not by users",
    );
    fails(
        "mqtt { port: 1883 }",
        "t.conf:1:1: 'mqtt' at the top level is not supported: this version does not speak MQTT; \
         remove the block",
    );
    fails(
        "websocket { port: -1 }",
        "t.conf:1:11: 'websocket' needs 'tls', or 'no_tls: true' to do without",
    );
    fails(
        "websocket { port: -1, no_tls: true, origins: ['ftp://x'], headers { Upgrade: x } }",
        "t.conf:1:46: 'allowed_origins' holds \"ftp://x\", which must be a URL with http or https\n\
         t.conf:1:69: 'headers' \"upgrade\" belongs to the handshake",
    );
    fails(
        "tls { cert_file: c, key_file: k, handshake_first: soon }",
        "t.conf:1:51: 'handshake_first' must be true, false, \"auto\" or a duration",
    );
    fails(
        "tls { cert_file: c, key_file: k, pinned_certs: [xy], cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }",
        "t.conf:1:48: 'pinned_certs' holds \"xy\", which is not a SHA-256 in hexadecimal\n\
         t.conf:1:69: 'cipher_suites' holds \"TLS_RSA_WITH_RC4_128_SHA\", which is unknown, or weak \
         and never offered",
    );
    fails(
        "tls { cert_file: c, key_file: k, verify_cert_and_check_known_urls: true }",
        "t.conf:1:68: 'verify_cert_and_check_known_urls' is for routes and gateways: clients have no \
         known URLs",
    );
    fails("operator: x.jwt", "t.conf:1:11: 'operator' cannot be read from 'x.jwt': no such file");
    fails(
        "proxies { trusted: [ { key: XABC } ] }",
        "t.conf:1:29: 'key' is no public nkey: \"XABC\"",
    );
}

#[test]
fn all_mistakes_are_shown_at_once() {
    fails(
        "prot: 1\ndebug: 2\ntls { cert_file: c, verify: true }",
        "t.conf:1:1: unknown field \"prot\" at the top level: did you mean 'port'?\n\
         t.conf:2:8: 'debug' must be true or false, found an integer\n\
         t.conf:3:5: 'tls' needs 'key_file'\n\
         t.conf:3:5: 'tls' needs 'ca_file'",
    );
    let many = (0..60).map(|i| format!("zzz{i}: 1\n")).collect::<String>();
    let error = super::command(super::Invocation::NatsServer, &many, "-c t.conf").unwrap_err();
    assert!(error.to_string().ends_with("\n… and 10 more"));
}

#[test]
fn settings_that_do_not_go_together() {
    fails(
        "lame_duck_duration: '30s', lame_duck_grace_period: '30s'",
        "lame_duck_grace_period (30s) must be shorter than lame_duck_duration (30s)",
    );
    fails(
        "max_payload: 2MB, max_pending: 1MB",
        "max_payload (2097152) cannot be higher than max_pending (1048576)",
    );
    fails("https: 8443", "https monitoring needs a 'tls' block (or --tls, --tlscert and --tlskey)");
    fails("http: 1, https: 2", "http and https monitoring cannot both be on: keep one of them");
}

#[test]
fn mistakes_of_syntax_and_includes_come_through() {
    fails(
        "port: 1\ninclude nix.conf",
        "error parsing include file 'nix.conf', t.conf:2:9: cannot include 'nix.conf': no such file",
    );
    fails(
        "port: 1 2",
        "Parse error on line 1: t.conf:1:9: expected the end of the value of 'port' (a new line, ',' or ';'), found '2': a value with spaces or separators needs quotes",
    );
    let error = super::command(super::Invocation::NatsServer, "", "-c nix.conf").unwrap_err();
    assert_eq!(error.to_string(), "cannot read configuration file 'nix.conf': no such file");
}

#[test]
fn mistakes_about_mappings() {
    for (mappings, expect) in [
        ("{ a: 1 }", "'a' must be a map: { … }, found an integer"),
        ("{ a: {dest: b} }", "'a' needs 'destination' and 'weight' in every entry"),
        ("{ a: {dest: b, weight: 101} }", "'weight' must be from 0 to 100, found 101"),
        ("{ a: {dest: b, weight: 'x%'} }", "'weight' must be a percentage such as 25 or \"25%\""),
        (
            "{ a: [{dest: b, weight: 60}, {dest: c, weight: 50}] }",
            "'a' cannot be mapped: total weight needs to be <= 100",
        ),
        (
            "{ 'a.*': 'b.$2' }",
            "'a.*' cannot be mapped: invalid mapping destination: wildcard index out of range in $2: [2]",
        ),
    ] {
        fails_somewhere(&format!("mappings: {mappings}"), expect);
    }
}

#[test]
fn logs_that_make_no_sense() {
    let log = |text: &str| format!("jetstream {{ store_dir: x, logs {{ {text} }} }}");
    let many = |count: u32| (0..count).map(|n| format!("log{n} {{}}\n")).collect::<String>();
    assert!(command(Invocation::NatsServer, &log(&many(30)), "-c t.conf").is_ok());
    for (text, says) in [
        ("a { mode: object }", "'a' of mode 'object' needs 'store', the address of its bucket"),
        ("a { mode: local, store: 's3://b' }", "'a' of mode 'local' has no 'store'"),
        ("a { store: 's3://b', dir: /x }", "'a' of mode 'object' has no 'dir'"),
        ("a { store: 's3://b', sync: never }", "'a' of mode 'object' has no 'sync_interval'"),
        ("memory {}", "'memory' is the name of one of the server's own logs"),
        ("'a b' {}", "is a name: up to 64 letters, digits, '-' and '_'"),
        ("a { mode: fast }", "'mode' must be 'local' or 'object'"),
        ("a { compression: s2 }", "'compression' must be 'none' or 'zstd'"),
        ("a { plce: x }", "unknown field \"plce\" in a log of 'jetstream'"),
        // A connection keeps one bit for each log, and the server has two of its own.
        (&many(257), "'logs' cannot be more than 256"),
    ] {
        let error = command(Invocation::NatsServer, &log(text), "-c t.conf").err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn texts_that_cannot_be_read_begin_as_those_of_nats_server() {
    fails("port: 1\nfoo {", "Parse error on line 2: t.conf:2:5: '{' is never closed: add '}'");
    fails_beginning("port: 1\nx = = 3", "Parse error on line 2: t.conf:2:");
    fails_beginning("a: $XYZNOT", "variable reference for 'XYZNOT' on line 1 can not be found: t.");
}

#[track_caller]
fn fails_beginning(conf: &str, words: &str) {
    let error = command(Invocation::NatsServer, conf, "-c t.conf").expect_err("a mistake");
    assert!(error.to_string().starts_with(words), "{error}");
}
