//! Tokens between a server and the service that it asks who a client is (auth callout): the server
//! signs a request, an account key signs the response. Fields are those of `AuthorizationRequest` and
//! `AuthorizationResponse` of `github.com/nats-io/jwt/v2`.

use serde::{Deserialize, Serialize};

use super::decode::Body;
use crate::nkey::KeyKind;

/// What a server asks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuthorizationRequest<'a> {
    /// The server.
    pub server_id: ServerIdentity<'a>,
    /// Public nkey that the response must be about. It is made for this one request, so that no
    /// response counts twice.
    pub user_nkey: &'a str,
    /// The connection.
    pub client_info: ClientInformation<'a>,
    /// What the client said in CONNECT.
    pub connect_opts: ConnectOptions<'a>,
    /// Its TLS, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tls: Option<ClientTls<'a>>,
}

/// The server that asks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerIdentity<'a> {
    /// Name.
    pub name: &'a str,
    /// Address that it listens on.
    pub host: &'a str,
    /// Public nkey, which is the audience of the response.
    pub id: &'a str,
    /// Version.
    pub version: &'a str,
    /// Name of its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<&'a str>,
    /// Its tags.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tags: &'a [String],
    /// Public key that the response is to be encrypted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xkey: Option<&'a str>,
}

/// The connection that wants to come in.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientInformation<'a> {
    /// Its address.
    pub host: &'a str,
    /// Its number.
    pub id: u64,
    /// The user, nkey or token that it shows.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user: &'a str,
    /// The name that it gives itself.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    /// Words about it in its token.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tags: &'a [String],
    /// The name in its token.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name_tag: &'a str,
    /// `Client` or `Leafnode`.
    pub kind: &'a str,
    /// `nats` or `websocket`.
    pub r#type: &'a str,
    /// The nonce, if the client signed one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: &'a str,
}

/// CONNECT as far as it is about who the client is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConnectOptions<'a> {
    /// A user's token.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub jwt: &'a str,
    /// Public nkey.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nkey: &'a str,
    /// Signature of the nonce.
    #[serde(rename = "sig", skip_serializing_if = "str::is_empty")]
    pub signed_nonce: &'a str,
    /// Token.
    #[serde(rename = "auth_token", skip_serializing_if = "str::is_empty")]
    pub token: &'a str,
    /// User name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user: &'a str,
    /// Password.
    #[serde(rename = "pass", skip_serializing_if = "str::is_empty")]
    pub password: &'a str,
    /// Name of the client.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    /// Its language.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub lang: &'a str,
    /// Its library's version.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub version: &'a str,
    /// Protocol level.
    pub protocol: i64,
}

/// TLS of the connection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientTls<'a> {
    /// Version, as `1.3`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub version: &'a str,
    /// Name of the cipher suite.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cipher: &'a str,
}

/// What the service answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuthorizationResponse {
    /// The token of the user that the client is to be.
    pub jwt: String,
    /// Why it may not come in.
    pub error: String,
    /// The account, if one of its signing keys signed.
    pub issuer_account: String,
}

impl Body for AuthorizationResponse {
    const KIND: &'static str = "authorization_response";
    const ISSUERS: &'static [KeyKind] = &[KeyKind::Account];
}
