//! From claims to a token's text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Value, json};

/// Signs a message with the issuer's key.
pub type Sign<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// What a token says, beside what those of its kind say. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// An id of its own.
    pub id: &'a str,
    /// Whom it is for.
    pub audience: &'a str,
    /// Whom it is about.
    pub subject: &'a str,
    /// Public nkey of who signs.
    pub issuer: &'a str,
    /// When it is signed.
    pub issued_at: u64,
    /// When it ends.
    pub expires: u64,
}

/// The text of a token with this own part.
///
/// # Panics
/// `nats` is no JSON object.
#[must_use]
pub fn encode(token: &NewToken<'_>, nats: &impl Serialize, sign: Sign<'_>) -> String {
    let mut nats = serde_json::to_value(nats).expect("claims can be written");
    let own = nats.as_object_mut().expect("claims are an object");
    own.insert("type".to_owned(), Value::from(token.kind));
    own.insert("version".to_owned(), Value::from(super::decode::VERSION));
    let claims = json!({
        "jti": token.id,
        "aud": token.audience,
        "sub": token.subject,
        "iss": token.issuer,
        "iat": token.issued_at,
        "exp": token.expires,
        "nats": nats,
    });
    let header = json!({ "typ": "JWT", "alg": super::decode::ALGORITHM_V2 });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}
