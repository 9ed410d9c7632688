//! Requests to the collector.

use std::time::Duration;

use nuthatch_server::options::OtlpOptions;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// A request that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a refusal that are told.
const TOLD_BYTES_MAX: usize = 200;

/// A client of the collector.
#[derive(Debug)]
pub struct Sender {
    client: reqwest::Client,
    endpoint: String,
}

impl Sender {
    /// A client of the collector that the options name.
    ///
    /// # Errors
    /// A sentence: the client cannot be made.
    pub fn new(options: &OtlpOptions) -> Result<Self, String> {
        // Else reqwest finds no cryptography; whoever was first has said the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, value) in &options.headers {
            let bad = || format!("'{name}' in 'headers' of 'otlp' is no header of HTTP");
            let mut text = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
            text.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| bad())?, text);
        }
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("cannot make a client for {}: {error}", options.endpoint))?;
        Ok(Self { client, endpoint: options.endpoint.clone() })
    }

    /// Sends one request. It is not repeated: the next one has newer metrics, and spans are lost.
    ///
    /// # Errors
    /// A sentence: the collector is not there or does not take it.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<(), String> {
        let url = format!("{}{path}", self.endpoint);
        let sent = self.client.post(&url).body(body).send().await;
        let mut answer =
            sent.map_err(|error| format!("{url} cannot be reached: {}", reason(&error)))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        // Of what it says no more is read than is told.
        let mut said = Vec::new();
        while said.len() < TOLD_BYTES_MAX
            && let Ok(Some(part)) = answer.chunk().await
        {
            said.extend_from_slice(&part[..part.len().min(TOLD_BYTES_MAX - said.len())]);
        }
        Err(format!("{url} answered {status}: {}", String::from_utf8_lossy(&said)))
    }
}

/// The innermost reason, which is what an operator can act upon.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
