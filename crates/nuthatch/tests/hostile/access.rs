//! Getting at what belongs to somebody else.

use crate::rig::{CANARY_NAME, Rig, Who, call, verdict};
use crate::support::{Server, TIMEOUT, TempDir};
use crate::tokens::{Key, Kind};
use crate::wire::Raw;
use crate::{Attack, Outcome};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a copy gets to bring what it must not.
const COPY_TIME: Duration = Duration::from_secs(2);
/// What a forged line begins with.
const FORGED: &str = "[1] 1999/12/31 23:59:59.999999 [INF] forged";
/// What no log may quote.
const SECRET: &str = "9182736450";

pub const ATTACKS: &[Attack] = &[
    Attack::new("mirror-of-a-stranger", mirror_of_a_stranger),
    Attack::new("deny-by-domain", denies_by_domain),
    Attack::new("connz-of-strangers", connz_of_strangers),
    Attack::new("forged-log-lines", forged_log_lines),
    Attack::new("forged-log-lines-jwt", forged_log_lines_of_a_token).ours_only(),
    Attack::new("store-modes", store_modes).ours_only(),
];

/// An import of `$JS.API.INFO` alone is no right to copy.
fn mirror_of_a_stranger(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let external = json!({"api": "their.api"});
    let configs = [
        json!({"name": "COPY", "mirror": {"name": "PRIVATE", "external": external}}),
        json!({"name": "COPY", "sources": [{"name": "PRIVATE", "external": external}]}),
    ];
    let mut told = Vec::new();
    for config in configs {
        let answer = call(&mut client, "$JS.API.STREAM.CREATE.COPY", &config)?;
        told.push(verdict(&answer));
        let deadline = Instant::now() + COPY_TIME;
        let mut copied = 0;
        while answer["error"].is_null() && copied == 0 && Instant::now() < deadline {
            let info = call(&mut client, "$JS.API.STREAM.INFO.COPY", &Value::Null)?;
            copied = info["state"]["messages"].as_u64().unwrap_or(0);
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = call(&mut client, "$JS.API.STREAM.DELETE.COPY", &Value::Null);
        if copied > 0 {
            return Err(format!("{copied} messages of another account were copied"));
        }
    }
    Ok(told.join("; "))
}

/// What may not be published may not be published by another name either.
fn denies_by_domain(rig: &Rig) -> Outcome {
    let mut owner = rig.client("attacker");
    call(&mut owner, "$JS.API.STREAM.CREATE.KEPT", &json!({"name": "KEPT", "subjects": ["k.>"]}))?;
    let bucket = json!({"name": "KV_priv", "subjects": ["$KV.priv.>"], "max_msgs_per_subject": 1});
    call(&mut owner, "$JS.API.STREAM.CREATE.KV_priv", &bucket)?;
    let mut raw = Raw::client(&rig.address(), "limited");
    let subjects =
        ["$JS.hub.API.STREAM.DELETE.KEPT", "$JS.hub.API.$KV.priv.k", "$JS.API.STREAM.DELETE.KEPT"];
    let mut told = String::new();
    for subject in subjects {
        let publish = format!("PUB {subject} _INBOX.x 0\r\n\r\nPING\r\n");
        let answer = raw.exchange(publish.as_bytes(), b"PONG\r\n", TIMEOUT);
        told = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    }
    std::thread::sleep(Duration::from_millis(300));
    let kept = call(&mut owner, "$JS.API.STREAM.INFO.KEPT", &Value::Null)?;
    let bucket = call(&mut owner, "$JS.API.STREAM.INFO.KV_priv", &Value::Null)?;
    for name in ["KEPT", "KV_priv"] {
        let _ = call(&mut owner, &format!("$JS.API.STREAM.DELETE.{name}"), &Value::Null);
    }
    if !kept["error"].is_null() {
        return Err("a stream was deleted that may not be deleted".to_owned());
    }
    match bucket["state"]["messages"].as_u64() {
        Some(0) => Ok(told),
        other => Err(format!("{other:?} values were put that may not be put")),
    }
}

fn connz_of_strangers(rig: &Rig) -> Outcome {
    let mut client = rig.client("attacker");
    let subjects = ["CONNZ", "SUBSZ", "ACCOUNTZ", "JSZ", "INFO", "STATZ", "LEAFZ"];
    let mut bodies = vec![b"{}".to_vec(), Vec::new()];
    let keys = ["account", "account_name", "acc", "Account", "filter_account"];
    for key in keys {
        bodies.push(format!("{{\"{key}\":\"CANARY\",\"auth\":true}}").into_bytes());
        for other in keys {
            let both = format!(
                "{{\"{key}\":\"ATTACKER\",\"{other}\":\"CANARY\",\"auth\":true,\"subscriptions\":true}}"
            );
            bodies.push(both.into_bytes());
        }
    }
    let mut answered = 0;
    for (subject, body) in subjects.iter().flat_map(|s| bodies.iter().map(move |body| (s, body))) {
        for subject in [
            format!("$SYS.REQ.ACCOUNT.PING.{subject}"),
            format!("$SYS.REQ.ACCOUNT.CANARY.{subject}"),
        ] {
            let Ok(reply) = client.request(
                &subject,
                b"",
                body,
                Duration::from_millis(if subject.contains("PING") { 1000 } else { 50 }),
            ) else {
                continue;
            };
            answered += 1;
            let text = String::from_utf8_lossy(&reply.payload);
            if text.contains(CANARY_NAME) || text.contains("\"account\":\"CANARY\"") {
                return Err(format!("{subject} {}: another account's", body.escape_ascii()));
            }
        }
    }
    Ok(format!("{answered} answers"))
}

/// Lines that are not the server's own, or say what is secret.
fn check_lines(text: &str) -> Result<(), String> {
    if let Some(line) = text.lines().find(|line| line.starts_with("[1] 1999")) {
        return Err(format!("forged: {line}"));
    }
    let control = |c: char| c.is_control() && c != '\t';
    let odd = text.lines().find(|line| line.contains(control) || line.contains(SECRET));
    odd.map_or(Ok(()), |line| Err(format!("in the log: {}", line.escape_debug())))
}

fn forged_log_lines(rig: &Rig) -> Outcome {
    let forged = format!("x\\n{FORGED}\\r\\n{FORGED}\\u001b[2J");
    let fields = ["user", "pass", "auth_token", "jwt", "sig", "nkey", "name", "lang", "version"];
    let mut lines: Vec<String> =
        fields.iter().map(|field| format!("CONNECT {{\"{field}\":\"{forged}\"}}\r\n")).collect();
    lines.extend(fields.iter().map(|field| format!("CONNECT {{\"{field}\":{SECRET}}}\r\n")));
    lines.extend(fields.iter().map(|field| format!("CONNECT {{\"{field}\":[\"{SECRET}\"]}}\r\n")));
    lines.push(format!("CONNECT {{\"user\":\"attacker\",\"pass\":\"{SECRET}\"}}\r\n"));
    lines.push(format!("CONNECT {{\"user\":\"attacker\",\"pass\":\"{SECRET}\r\n"));
    lines.push(format!(
        "CONNECT {{\"user\":\"attacker\",\"pass\":\"attacker\",\"name\":\"{forged}\"}}\r\nSUB x\r\n"
    ));
    lines.push(format!("{FORGED}\r\n"));
    lines.push(format!("CONNECT \x1b[2J{FORGED}\r\n"));
    for line in &lines {
        let mut raw = Raw::open(&rig.address());
        raw.exchange(&[line.as_bytes(), b"PING\r\n"].concat(), b"PONG\r\n", Duration::from_secs(3));
    }
    check_lines(&rig.server().log_text())?;
    Ok(format!("{} tries", lines.len()))
}

/// A token that anybody has signed, with permissions that hold lines of a log.
fn forged_log_lines_of_a_token(rig: &Rig) -> Outcome {
    assert_eq!(rig.who(), Who::Ours);
    let [operator, system, app] = [(Kind::Operator, 1), (Kind::Account, 2), (Kind::Account, 3)]
        .map(|(kind, number)| Key::new(kind, number));
    let user = Key::new(Kind::User, 4);
    let limits = json!({"limits": {"subs": -1, "data": -1, "payload": -1, "imports": -1,
        "exports": -1, "wildcards": true, "conn": -1, "leaf": -1}});
    let trust = json!({"system_account": system.public});
    let configuration = format!(
        "operator: {}\nresolver: MEMORY\nresolver_preload {{\n{}: {}\n{}: {}\n}}\n",
        operator.sign(&operator.public, "operator", trust, json!({})),
        system.public,
        operator.sign(&system.public, "account", limits.clone(), json!({})),
        app.public,
        operator.sign(&app.public, "account", limits, json!({})),
    );
    let dir = TempDir::new("hostile-operator");
    let file = dir.path().join("server.conf");
    std::fs::write(&file, configuration).expect("writes");
    let server = Server::start(&dir.path().join("data"), &["-c", file.to_str().expect("plain")]);
    let forged = format!("a b c\n{FORGED}\r\n{FORGED}");
    let lists = json!({"allow": [forged], "deny": [forged]});
    let bodies = [
        json!({"pub": lists, "sub": lists, "subs": -1, "data": -1, "payload": -1}),
        json!({"pub": {}, "sub": {}, "src": [forged], "subs": -1, "data": -1, "payload": -1}),
        json!({"pub": {}, "sub": {}, "times": [{"start": forged, "end": forged}], "times_location": forged}),
        json!({"pub": {}, "sub": {}, "allowed_connection_types": [forged]}),
    ];
    for body in &bodies {
        for more in
            [json!({}), json!({"name": forged}), json!({"sub": forged}), json!({"aud": forged})]
        {
            let token = app.sign(&user.public, "user", body.clone(), more);
            let address = server.url.trim_start_matches("nats://");
            let mut raw = Raw::open(address);
            let connect = format!("CONNECT {{\"jwt\":\"{token}\",\"sig\":\"AAAA\"}}\r\nPING\r\n");
            raw.exchange(connect.as_bytes(), b"PONG\r\n", Duration::from_secs(3));
        }
    }
    check_lines(&server.log_text())?;
    server.stop();
    Ok("escaped".to_owned())
}

/// Nobody else on the machine reads the store, whatever the umask of who starts the server.
fn store_modes(rig: &Rig) -> Outcome {
    let open = too_open(&rig.store().join("nuthatch"));
    match open.first() {
        Some(path) => Err(format!("{} paths are open to others: {path}", open.len())),
        None => Ok("0700 and 0600".to_owned()),
    }
}

fn too_open(dir: &std::path::Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777)
    };
    let mut open = Vec::new();
    if mode(dir) & 0o077 != 0 {
        open.push(format!("{} {:o}", dir.display(), mode(dir)));
    }
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            open.extend(too_open(&path));
        } else if mode(&path) & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), mode(&path)));
        }
    }
    open
}
