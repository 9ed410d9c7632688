//! Sending an archive to `STREAM.RESTORE`, chunk by chunk.

use std::io::{self, Write};
use std::time::Duration;

use nuthatch_client::RequestError;
use nuthatch_client::js::{Answer, JsError, refusal};
use nuthatch_protocol::js::StreamInfo;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;
use crate::show;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 128 * 1024;
/// The server stores a chunk before it asks for the next one.
const CHUNK_LIMIT: Duration = Duration::from_secs(60);
/// The last answer comes when everything is stored.
const END_LIMIT: Duration = Duration::from_secs(3600);

/// The answer to the request: where chunks go.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RestoreAnswer {
    deliver_subject: String,
}

/// A writer that sends to the server.
pub struct Upload<'a> {
    session: &'a mut Session,
    subject: String,
    buffer: Vec<u8>,
    chunk_bytes: usize,
    /// Why it ended; [`io::Error`] has no room for it.
    failure: Option<CliError>,
}

/// Restores a stream of this configuration from what `fill` writes; returns its information.
///
/// # Errors
/// When the server refuses, the connection fails, or `fill` does.
pub fn upload(
    session: &mut Session,
    config: &Value,
    state: &Value,
    fill: impl FnOnce(&mut Upload<'_>) -> Result<(), CliError>,
) -> Result<Answer<StreamInfo>, CliError> {
    let name = show::text(&config["name"]);
    let what = format!("restore of stream {name}");
    let request = json!({ "config": config, "state": state });
    let reply: Answer<RestoreAnswer> = session
        .ask(&format!("STREAM.RESTORE.{name}"), &request)
        .map_err(CliError::js(what.clone()))?;
    let chunk_bytes = CHUNK_BYTES.min(session.client.info().max_payload.max(1));
    let subject = reply.value.deliver_subject;
    let mut upload = Upload { session, subject, buffer: Vec::new(), chunk_bytes, failure: None };
    let filled = fill(&mut upload);
    if let Some(failure) = upload.failure.take() {
        return Err(failure);
    }
    filled?;
    upload.end(&what)
}

impl Upload<'_> {
    /// Sends one chunk and waits until it has been used.
    fn send(&mut self, len: usize) -> Result<(), CliError> {
        let client = &mut self.session.client;
        let reply = client.request(&self.subject, b"", &self.buffer[..len], CHUNK_LIMIT)?;
        self.buffer.drain(..len);
        if reply.payload.is_empty() {
            return Ok(());
        }
        Err(refused("restore", &reply.payload))
    }

    fn end(mut self, what: &str) -> Result<Answer<StreamInfo>, CliError> {
        if !self.buffer.is_empty() {
            self.send(self.buffer.len())?;
        }
        let client = &mut self.session.client;
        let reply =
            client.request(&self.subject, b"", b"", END_LIMIT).map_err(|err| match err {
                RequestError::NoResponders(_) => {
                    CliError::Failed(format!("{what}: the server has given it up"))
                }
                other => other.into(),
            })?;
        let mut answer: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
        if refusal(&reply.payload).is_some() || answer["state"].is_null() {
            return Err(refused(what, &reply.payload));
        }
        answer.as_object_mut().map(|fields| fields.remove("type"));
        Answer::read(what, answer).map_err(CliError::js(what.to_owned()))
    }
}

fn refused(what: &str, answer: &[u8]) -> CliError {
    match refusal(answer) {
        Some(error) => CliError::Js { what: what.to_owned(), source: JsError::Api(error) },
        None => CliError::Failed(format!("{what}: the server's answer is not understood")),
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= self.chunk_bytes {
            if let Err(failure) = self.send(self.chunk_bytes) {
                let text = failure.to_string();
                self.failure = Some(failure);
                return Err(io::Error::other(text));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
