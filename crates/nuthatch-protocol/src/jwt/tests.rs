//! Tokens that are read, and those that are not; templates; what blocks an account.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

const ISSUER: &str = "ACNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR";

fn token_with(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode("signature"))
}

fn token(claims: &Value) -> String {
    token_with(&json!({ "typ": "JWT", "alg": "ed25519-nkey" }), claims)
}

/// An nkey of this kind, made by hand: the checksum is right.
fn key(prefix: u8, fill: u8) -> String {
    let mut raw = vec![prefix];
    raw.extend([fill; 32]);
    let crc = raw.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    raw.extend(crc.to_le_bytes());
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits = |at: usize| (raw[at / 8] >> (7 - at % 8)) & 1;
    (0..56)
        .map(|c| (0..5).fold(0, |v, b| (v << 1) | bits(c * 5 + b)))
        .map(|v| char::from(ALPHABET[usize::from(v)]))
        .collect()
}

const ACCOUNT: u8 = 0;
const OPERATOR: u8 = 14 << 3;

fn user_claims(version: i64) -> Value {
    json!({ "iss": key(ACCOUNT, 1), "sub": "U", "nats": { "type": "user", "version": version } })
}

#[test]
fn what_is_signed_and_by_whom() {
    let claims = user_claims(2);
    let text = token(&claims);
    let signed = |message: &[u8], signature: &[u8]| {
        message == text.rsplit_once('.').unwrap().0.as_bytes() && signature == b"signature"
    };
    let read: Result<UserClaims, _> =
        decode(&text, &|key, message, signature| *key == [1; 32] && signed(message, signature));
    assert_eq!(read.unwrap().data.issuer, key(ACCOUNT, 1));
    let refused = decode::<User>(&text, &|_, _, _| false).unwrap_err();
    assert_eq!(refused, JwtError::Signature { version: 2 });
    let wrong_kind = decode::<Account>(&text, &|_, _, _| true).unwrap_err();
    assert_eq!(wrong_kind.to_string(), "not account claim");
    let by_operator = json!({ "iss": key(OPERATOR, 1), "nats": { "type": "user" } });
    let refused = decode::<User>(&token(&by_operator), &|_, _, _| true).unwrap_err();
    assert!(matches!(refused, JwtError::Issuer { .. }), "{refused}");
    let newer = decode::<User>(&token(&user_claims(3)), &|_, _, _| true).unwrap_err();
    assert_eq!(newer, JwtError::NewerVersion);
    // Not an nkey at all.
    let stranger = json!({ "iss": ISSUER, "nats": { "type": "user", "version": 2 } });
    assert!(decode::<User>(&token(&stranger), &|_, _, _| true).is_err());
}

#[test]
fn texts_that_are_no_tokens() {
    let fails = |text: &str| decode::<User>(text, &|_, _, _| true).unwrap_err();
    assert_eq!(fails("a.b"), JwtError::Chunks);
    assert_eq!(fails("a.b.c.d"), JwtError::Chunks);
    assert_eq!(fails("!.b.c"), JwtError::Base64 { part: "header" });
    assert!(matches!(fails("e30.b.c"), JwtError::Type { .. }));
    let header = json!({ "typ": "JWT", "alg": "none" });
    assert!(matches!(fails(&token_with(&header, &json!({}))), JwtError::Algorithm { .. }));
    assert!(matches!(fails(&"a".repeat(MAX_TOKEN_BYTES + 1)), JwtError::TooLarge { .. }));
    let list = token(&json!([1]));
    assert!(matches!(fails(&list), JwtError::Json { part: "claims", .. }));
}

#[test]
fn version_one_has_its_kind_outside_and_signs_the_claims_alone() {
    let claims = json!({
        "type": "user", "tags": ["a"], "iss": key(ACCOUNT, 1), "issuer_account": "A",
        "nats": { "src": "10.0.0.0/8, 127.0.0.1/32" },
    });
    let text = token_with(&json!({ "typ": "jwt", "alg": "ed25519" }), &claims);
    let payload = text.split('.').nth(1).unwrap();
    let read: UserClaims = decode(&text, &|_, message, _| message == payload.as_bytes()).unwrap();
    assert_eq!(read.nats.rights.subs, Some(-1));
    assert_eq!(read.nats.rights.src, ["10.0.0.0/8", "127.0.0.1/32"]);
    assert_eq!((read.nats.tags.len(), read.nats.issuer_account.as_str()), (1, "A"));
}

#[test]
fn an_account_with_everything() {
    let corpus = include_bytes!("../../../../fuzz/corpus/jwt/0");
    let (version, read) = read_claims::<Account>(corpus).unwrap();
    let account = &read.nats;
    assert_eq!((version, account.imports.len(), account.exports.len()), (2, 2, 1));
    let [service, stream] = account.imports.as_slice() else { panic!() };
    assert_eq!((service.there(), service.here().as_str()), ("orders.*", "buy.$1"));
    assert_eq!((stream.there(), stream.here().as_str()), ("news.>", "x.news.>"));
    assert_eq!(account.exports[0].service_latency.as_ref().unwrap().sampling, 0);
    let SigningKey::Scoped(scope) = &account.signing_keys["AD"] else { panic!() };
    assert_eq!((scope.template.subs, scope.template.src.len()), (None, 1));
    assert!(account.revocations.covers("UA", 3) && !account.revocations.covers("UA", 4));
    assert!(account.exports[0].revocations.covers("anybody", 5));
    let issues = account_issues(&read);
    assert!(issues.iter().any(|issue| issue.contains("signing key")), "{issues:?}");
}

#[test]
fn nulls_are_absent() {
    let claims =
        json!({ "name": null, "nats": { "type": "account", "tags": null, "limits": null } });
    let (_, read) = read_claims::<Account>(claims.to_string().as_bytes()).unwrap();
    assert_eq!(read.nats.limits, Limits::default());
    let bad = json!({ "nats": { "type": "account", "exports": [null] } });
    assert!(read_claims::<Account>(bad.to_string().as_bytes()).is_err());
}

#[test]
fn what_blocks_an_account() {
    let issues = |nats: Value| {
        let mut nats = nats;
        nats["type"] = json!("account");
        let claims = json!({ "nats": nats }).to_string();
        account_issues(&read_claims::<Account>(claims.as_bytes()).unwrap().1)
    };
    let unlimited = json!({ "imports": -1, "exports": -1 });
    assert_eq!(issues(json!({ "limits": unlimited })), Vec::<String>::new());
    let export = |subject: &str| json!({ "subject": subject, "type": "stream" });
    let many = json!({ "limits": { "imports": -1, "exports": 1, "wildcards": false },
        "exports": [export("a.*"), export("a.b")] });
    let found = issues(many).join("; ");
    for part in ["already exports", "more exports", "wildcard exports"] {
        assert!(found.contains(part), "{found}");
    }
    let import = json!({ "subject": "a.*", "local_subject": "b", "type": "stream" });
    let found = issues(json!({ "limits": unlimited, "imports": [import] })).join("; ");
    for part in ["account to import from", "does not contain enough"] {
        assert!(found.contains(part), "{found}");
    }
    let found = issues(json!({ "limits": unlimited,
        "mappings": { "a": [{ "subject": "b", "weight": 60 }, { "subject": "c", "weight": 60 }] },
        "default_permissions": { "pub": { "allow": ["a q"] } } }));
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn times_and_versions() {
    let data = ClaimsData { expires: 10, not_before: 5, ..ClaimsData::default() };
    assert_eq!(time_issue(&data, 10), None);
    assert_eq!(time_issue(&data, 11), Some("claim is expired"));
    assert_eq!(time_issue(&data, 4), Some("claim is not yet valid"));
    assert_eq!(server_version("2.11.0"), Ok([2, 11, 0]));
    assert!(server_version("2.11").is_err() && server_version("a.b.c").is_err());
    assert_eq!(time_of_day("09:05:59"), Some([9, 5, 59]));
    for bad in ["24:00:00", "9:00", "9:00:00:00", "-1:00:00", "", "::"] {
        assert_eq!(time_of_day(bad), None, "{bad}");
    }
}

fn whom(tags: &[String]) -> Subject<'_> {
    Subject {
        name: "ada",
        subject: "UADA",
        tags,
        account_name: "birds",
        account_subject: "ABIRDS",
        account_tags: tags,
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn templates_become_subjects() {
    let tags = texts(&["team:red", "team:blue", "zone:eu"]);
    let expand = |list: &[&str]| super::expand(&texts(list), false, &whom(&tags)).unwrap();
    assert_eq!(expand(&["a.*", "b q"]), ["a.*", "b q"]);
    assert_eq!(
        expand(&["{{name()}}.{{ SUBJECT() }}.{{account-name()}}.{{account-subject()}}"]),
        ["ada.UADA.birds.ABIRDS"]
    );
    assert_eq!(expand(&["{{tag(team)}}.{{tag(zone)}}.>"]), ["red.eu.>", "blue.eu.>"]);
    assert_eq!(expand(&["x.{{account-tag(zone)}}", "{{tag(none)}}.y"]), ["x.eu"]);
    // What holds a template somewhere is checked as a whole.
    assert_eq!(expand(&["{{name()}}", "bad subject"]), ["ada"]);
    assert_eq!(expand(&["{{}}", "{{a", "{{b}"]), ["{{}}", "{{a", "{{b}"]);
}

#[test]
fn templates_that_make_no_subjects() {
    let tags: Vec<String> = (0..100).map(|n| format!("n:{n}")).collect();
    let expand = |text: &str, strict| super::expand(&texts(&[text]), strict, &whom(&tags));
    assert!(matches!(expand("{{host()}}", false), Err(TemplateError::Unknown { .. })));
    assert!(matches!(expand("{{tag(x)}}", true), Err(TemplateError::NoTag { .. })));
    assert_eq!(expand("{{name()}} x", true), Err(TemplateError::Invalid));
    assert_eq!(expand("{{tag(n)}}.{{tag(n)}}", false), Err(TemplateError::TooMany));
    assert_eq!(expand("{{tag(n)}}", false).unwrap().len(), 100);
}

#[test]
fn decorated_files() {
    let file = "-----BEGIN NATS OPERATOR JWT-----\neyJ.a.b\n------END NATS OPERATOR JWT------\n";
    assert_eq!(undecorate(file), "eyJ.a.b");
    assert_eq!(undecorate(" eyJ.a.b\n"), "eyJ.a.b");
    assert_eq!(undecorate(""), "");
}

#[test]
fn what_a_token_says_of_traces() {
    let read = |nats: serde_json::Value| {
        let mut nats = nats;
        nats["type"] = json!("account");
        nats["limits"] = json!({ "imports": -1, "exports": -1, "wildcards": true });
        let claims = json!({ "nats": nats }).to_string();
        read_claims::<Account>(claims.as_bytes()).unwrap().1
    };
    let said = read(json!({
        "trace": { "dest": "t", "sampling": 5 },
        "exports": [{ "subject": "s", "type": "service", "allow_trace": true }],
    }));
    assert_eq!(said.nats.trace, Some(MsgTrace { dest: "t".to_owned(), sampling: 5 }));
    assert!(said.nats.exports[0].allow_trace);
    assert_eq!(account_issues(&said), Vec::<String>::new());
    let wrong = read(json!({
        "trace": { "dest": "t.*", "sampling": 101 },
        "exports": [{ "subject": "s", "type": "stream", "allow_trace": true }],
        "imports": [{ "subject": "s", "type": "service", "account": "A", "allow_trace": true }],
    }));
    let found = account_issues(&wrong).join("; ");
    for part in ["not a valid publish subject", "[1..100]", "service export", "stream import"] {
        assert!(found.contains(part), "{part}: {found}");
    }
}
