//! Responses of services, honest ones and others.

use super::*;
use crate::credentials::KeyPair;
use crate::options::GLOBAL_ACCOUNT;
use nuthatch_protocol::jwt::{NewToken, encode};
use nuthatch_protocol::nkey::{KeyKind, decode_as};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

const NOW: u64 = 1_800_000_000;
const SERVER: &str = "NSERVER";

/// A service with its key, and what it is asked about.
struct Service {
    issuer: KeyPair,
    user: String,
    callout: AuthCallout,
    /// Its key and the server's, for encryption.
    curves: [CurveKey; 2],
}

impl Service {
    fn new() -> Self {
        let issuer = KeyPair::random(KeyKind::Account);
        let callout = AuthCallout {
            issuer: issuer.public(),
            account: "AUTH".to_owned(),
            auth_users: BTreeSet::new(),
            allowed_accounts: BTreeSet::new(),
            xkey: None,
        };
        let curves = [CurveKey::random(), CurveKey::random()];
        Self { issuer, user: KeyPair::random(KeyKind::User).public(), callout, curves }
    }

    fn token(&self, by: &KeyPair, claims: &Value, nats: &Value) -> String {
        let text = |name: &str| claims[name].as_str().unwrap_or_default();
        let issuer = by.public();
        let token = NewToken {
            kind: text("kind"),
            id: "id",
            audience: text("aud"),
            subject: text("sub"),
            issuer: &issuer,
            issued_at: NOW,
            expires: claims["exp"].as_u64().unwrap_or_default(),
        };
        encode(&token, nats, &|message| by.sign_bytes(message))
    }

    fn user_token(&self, nats: &Value) -> String {
        let claims = json!({ "kind": "user", "aud": "APP", "sub": self.user });
        self.token(&self.issuer, &claims, nats)
    }

    fn response(&self, nats: &Value) -> String {
        let claims = json!({ "kind": "authorization_response", "aud": SERVER, "sub": self.user });
        self.token(&self.issuer, &claims, nats)
    }

    fn judge(&self, response: &str) -> Result<Identity, CalloutError> {
        self.judge_bytes(response.as_bytes())
    }

    fn judge_bytes(&self, response: &[u8]) -> Result<Identity, CalloutError> {
        let origin = Origin::default();
        let service = crate::auth::Service::Configured(Arc::new(self.callout.clone()));
        let expected = Expected {
            service: &service,
            xkey: &self.curves[1],
            server: SERVER,
            user: &self.user,
            shown: "shown",
            origin: &origin,
        };
        expected.identity(response, UNIX_EPOCH + Duration::from_secs(NOW))
    }

    fn judge_user(&self, nats: &Value) -> Result<Identity, CalloutError> {
        self.judge(&self.response(&json!({ "jwt": self.user_token(nats) })))
    }
}

#[test]
fn a_response_makes_an_identity() {
    let service = Service::new();
    let nats = json!({ "pub": { "allow": ["a.>"] }, "subs": 3, "payload": -1 });
    let found = service.judge_user(&nats).expect("it is good");
    assert_eq!((found.user.as_str(), found.account.as_str()), ("shown", "APP"));
    let allowed = found.rights.expect("rights").source.publish.clone().expect("publish");
    assert_eq!(allowed.allow, Some(vec!["a.>".to_owned()]));
    assert!(allowed.deny.is_empty());
    let grant = found.grant.expect("a grant");
    assert_eq!((grant.max_subscriptions, grant.max_payload_bytes), (Some(3), None));
    assert_eq!((grant.expires, grant.account_name.as_str()), (None, "APP"));
}

/// Limits that a token leaves out are none: it is not a user of an account with limits of its own.
#[test]
fn a_token_that_says_nothing_allows_everything() {
    let found = Service::new().judge_user(&json!({})).expect("it is good");
    assert!(found.rights.is_none());
    assert_eq!(found.grant.expect("a grant").max_subscriptions, None);
}

#[test]
fn users_in_the_account_of_the_service_cannot_ask_it() {
    let mut service = Service::new();
    service.callout.account = "APP".to_owned();
    let found = service.judge_user(&json!({})).expect("it is good");
    let publish = found.rights.expect("rights").source.publish.clone().expect("publish");
    assert_eq!((publish.allow, publish.deny), (None, vec!["$SYS.REQ.USER.AUTH".to_owned()]));
}

#[test]
fn lies_are_told_apart() {
    let service = Service::new();
    let good = service.user_token(&json!({}));
    let about = |kind: &str, aud: &str, sub: &str| json!({ "kind": kind, "aud": aud, "sub": sub });
    let kind = "authorization_response";
    let own = about(kind, SERVER, &service.user);
    let other = KeyPair::random(KeyKind::Account);
    let someone = KeyPair::random(KeyKind::User).public();
    let with =
        |claims: &Value, jwt: &str| service.token(&service.issuer, claims, &json!({ "jwt": jwt }));
    let inner = |claims: Value| with(&own, &service.token(&service.issuer, &claims, &json!({})));
    let expired = |mut claims: Value| {
        claims["exp"] = json!(NOW - 1);
        claims
    };
    let cases = [
        ("no token".to_owned(), "response not valid"),
        (with(&about("user", SERVER, &service.user), &good), "not authorization_response claim"),
        (with(&about(kind, SERVER, &someone), &good), "response is not for the expected user"),
        (with(&about(kind, "NOTHER", &service.user), &good), "not for this server"),
        (with(&expired(own.clone()), &good), "response not valid: claim is expired"),
        (service.token(&other, &own, &json!({ "jwt": good })), "response is signed by"),
        (service.response(&json!({ "error": "no such user" })), "returned an error: no such user"),
        (service.response(&json!({})), "user's token not valid"),
        (inner(about("user", "APP", &someone)), "user's token is not for the expected user"),
        (inner(expired(about("user", "APP", &service.user))), "user's token not valid: claim is"),
        (
            with(&own, &service.token(&other, &about("user", "APP", &service.user), &json!({}))),
            "user's token is signed by",
        ),
    ];
    for (response, why) in cases {
        let error = service.judge(&response).err().expect(why).to_string();
        assert!(error.contains(why), "{error:?}, not {why:?}");
    }
}

/// A service with a key may seal its responses, or not; then who signed them counts.
#[test]
fn a_response_may_be_sealed() {
    let mut service = Service::new();
    let of = |curve: &CurveKey| decode_as(KeyKind::Curve, curve.public()).expect("a key");
    let good = service.response(&json!({ "jwt": service.user_token(&json!({})) }));
    let [own, server] = &service.curves;
    let sealed = own.seal(good.as_bytes(), &of(server));
    let error = service.judge_bytes(&sealed).err().expect("nobody has asked for that");
    assert!(error.to_string().contains("response not valid"), "{error}");
    service.callout.xkey = Some(of(own));
    let [own, server] = &service.curves;
    let someone = CurveKey::random();
    assert!(service.judge(&good).is_ok() && service.judge_bytes(&sealed).is_ok());
    for (response, why) in [
        (someone.seal(good.as_bytes(), &of(server)), "cannot be decrypted on account \"AUTH\""),
        (own.seal(good.as_bytes(), &of(&someone)), "cannot be decrypted"),
        (sealed[..sealed.len() - 1].to_vec(), "cannot be decrypted"),
        (own.seal(b"", &of(server)), "response not valid"),
        (own.seal(b"no token", &of(server)), "response not valid"),
    ] {
        let error = service.judge_bytes(&response).err().expect(why).to_string();
        assert!(error.contains(why), "{error:?}, not {why:?}");
    }
    // The seal says whom a response is from; whom its token is from is another question.
    let other = KeyPair::random(KeyKind::Account);
    let claims = json!({ "kind": "authorization_response", "aud": SERVER, "sub": service.user });
    let jwt = json!({ "jwt": service.user_token(&json!({})) });
    let by_other = service.token(&other, &claims, &jwt);
    assert!(service.judge(&by_other).is_err());
    assert!(service.judge_bytes(&own.seal(by_other.as_bytes(), &of(server))).is_ok());
    let user = json!({ "kind": "user", "aud": "APP", "sub": service.user });
    let jwt = json!({ "jwt": service.token(&other, &user, &json!({})) });
    let lie = service.response(&jwt);
    let error = service.judge_bytes(&own.seal(lie.as_bytes(), &of(server))).err();
    assert!(error.expect("a lie").to_string().contains("user's token is signed by"));
}

#[test]
fn what_the_token_does_not_allow() {
    let service = Service::new();
    let account = KeyPair::random(KeyKind::Account).public();
    for (nats, why) in [
        (json!({ "allowed_connection_types": ["WEBSOCKET"] }), "may not connect like this"),
        (json!({ "proxy_required": true }), "trusted proxy"),
        (json!({ "issuer_account": account }), "issuer_account"),
        (
            json!({ "times": [{ "start": "01:00:00", "end": "01:00:01" }], "times_location": "UTC" }),
            "outside of its connect times",
        ),
    ] {
        let error = service.judge_user(&nats).err().expect(why).to_string();
        assert!(error.contains(why), "{error:?}, not {why:?}");
    }
    assert_ne!(service.callout.account, GLOBAL_ACCOUNT);
}
