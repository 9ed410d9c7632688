//! Target of an import: batches being sent, and what was stored.

use std::collections::VecDeque;
use std::time::Instant;

use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{STREAM_NOT_FOUND, refusal};
use nuthatch_protocol::headers;
use nuthatch_protocol::import::{self, HEAD_BYTES, IMPORT_AFTER, Imported};
use nuthatch_protocol::js::StreamState;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;

/// Bytes of one batch, unless a message is larger.
const BATCH_BYTES: usize = 256 * 1024;
/// Bytes of the header that says where a batch goes on, at most.
const AFTER_BYTES: usize = 64;
/// Batches that wait for their answers.
const BATCHES_MAX: usize = 16;

/// Answer to `STREAM.IMPORT`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ImportAnswer {
    success: bool,
    /// What was compared with the source already.
    pub verified: u64,
    /// State of the stream here.
    pub state: StreamState,
}

/// This server.
pub struct Target {
    pub session: Session,
    inbox: String,
    stream: String,
    batch: Vec<u8>,
    /// Last sequence in it.
    last: u64,
    /// Last sequence before it.
    after: u64,
    /// When the batches that wait were sent.
    sent: VecDeque<Instant>,
}

impl Target {
    pub fn open(connect: &ConnectArgs) -> Result<Self, CliError> {
        let mut session = Session::open(connect)?;
        let inbox = session.fresh_inbox();
        session.client.subscribe(&inbox, "")?;
        let (stream, batch) = (String::new(), Vec::new());
        Ok(Self { session, inbox, stream, batch, last: 0, after: 0, sent: VecDeque::new() })
    }

    /// Calls `STREAM.IMPORT`.
    pub fn act(&mut self, name: &str, body: &Value) -> Result<ImportAnswer, CliError> {
        let answer = self.session.ask(&format!("STREAM.IMPORT.{name}"), body);
        let told = answer.map_err(CliError::js(format!("could not import stream {name}")))?;
        Ok(told.value)
    }

    /// True if a stream of this name is in service here.
    pub fn is_in_service(&mut self, name: &str) -> Result<bool, CliError> {
        match self.session.api(&format!("STREAM.INFO.{name}"), &Value::Null) {
            Ok(_) => Ok(true),
            Err(error) if error.err_code() == Some(STREAM_NOT_FOUND) => Ok(false),
            Err(error) => Err(CliError::js(format!("stream {name}"))(error)),
        }
    }

    /// Begins to send messages of a stream, from this sequence on.
    pub fn begin_batches(&mut self, name: &str, first: u64) {
        name.clone_into(&mut self.stream);
        import::begin(&mut self.batch);
        (self.last, self.after) = (0, first.saturating_sub(1));
    }

    /// Sends a message, with others.
    pub fn push(&mut self, message: &Imported<'_>) -> Result<(), CliError> {
        let max = self.session.client.info().max_payload.saturating_sub(AFTER_BYTES);
        let size = HEAD_BYTES + message.size();
        if size > max {
            return Err(CliError::Failed(format!(
                "message {} of {} takes {size} bytes, and this server takes {max} at most: set \
                 max_payload higher while it imports",
                message.seq, self.stream
            )));
        }
        if self.batch.len() + message.size() > BATCH_BYTES.min(max) && self.last > 0 {
            self.send(self.last)?;
        }
        import::push(&mut self.batch, message).map_err(|why| CliError::Failed(why.to_string()))?;
        self.last = message.seq;
        Ok(())
    }

    /// Everything up to `last` was sent: waits until all of it is durable.
    pub fn end_batches(&mut self, last: u64) -> Result<(), CliError> {
        self.send(last)?;
        while !self.sent.is_empty() {
            self.take_answer()?;
        }
        Ok(())
    }

    fn send(&mut self, gap_to: u64) -> Result<(), CliError> {
        while self.sent.len() >= BATCHES_MAX {
            self.take_answer()?;
        }
        import::set_gap_to(&mut self.batch, gap_to);
        let subject = format!("{}.STREAM.IMPORT.{}.MSGS", self.session.api_prefix, self.stream);
        let writer = &mut self.session.client.writer;
        let mut headers = Vec::new();
        headers::append(&mut headers, IMPORT_AFTER, self.after.to_string().as_bytes());
        writer.publish(subject.as_bytes(), self.inbox.as_bytes(), &headers, &self.batch)?;
        writer.flush()?;
        self.sent.push_back(Instant::now());
        import::begin(&mut self.batch);
        (self.last, self.after) = (0, gap_to);
        Ok(())
    }

    fn take_answer(&mut self) -> Result<(), CliError> {
        let Some(sent) = self.sent.pop_front() else { return Ok(()) };
        // A batch waits behind those before it.
        let deadline = sent.max(Instant::now()) + self.session.timeout * 4;
        let message = self.session.client.next_message(deadline)?;
        let answer: ImportAnswer = serde_json::from_slice(&message.payload).unwrap_or_default();
        if answer.success {
            return Ok(());
        }
        let why = match (message.view().status(), refusal(&message.payload)) {
            (Some(503), _) => "this server knows no such call: is it nuthatch?".to_owned(),
            (_, Some(error)) => error.description,
            (_, None) => "the answer is not understood".to_owned(),
        };
        let name = &self.stream;
        Err(CliError::Failed(format!("messages of {name} were not stored: {why}")))
    }

    /// A stretch of what was stored, as a batch.
    pub fn read(&mut self, name: &str, from: u64) -> Result<Vec<u8>, CliError> {
        let subject = format!("{}.STREAM.IMPORT.{name}.READ", self.session.api_prefix);
        let body = json!({"from": from}).to_string();
        let timeout = self.session.timeout * 4;
        let reply = self.session.client.request(&subject, b"", body.as_bytes(), timeout)?;
        if reply.payload.first() == Some(&b'{') {
            let why = refusal(&reply.payload).map(|error| error.description).unwrap_or_default();
            return Err(CliError::Failed(format!(
                "could not read what was stored of {name}: {why}"
            )));
        }
        Ok(reply.payload)
    }
}
