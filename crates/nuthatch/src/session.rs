//! A connection together with the options that every client command has.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{self, Answer, JsError};
use nuthatch_client::{Client, RequestError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CliError;
use crate::suggest;

/// How long the names are waited for that a mistyped one may mean.
const HINT_LIMIT: Duration = Duration::from_millis(500);

/// An open connection and how to use it.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub client: Client,
    /// Limit for each answer.
    pub timeout: Duration,
    /// Whether to print JSON.
    pub json: bool,
    /// Prefix of the subjects of JetStream's API.
    pub api_prefix: String,
    /// Reply subjects given out so far.
    inboxes: u64,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn open(connect: &ConnectArgs) -> Result<Self, CliError> {
        let mut options = connect.options()?;
        if connect.connection_name.is_none() {
            options.name = "nuthatch CLI".into();
        }
        let api_prefix = connect.api_prefix()?;
        let client = Client::connect(&options)?;
        Ok(Self { client, timeout: connect.timeout, json: connect.json, api_prefix, inboxes: 0 })
    }

    /// Asks JetStream's API.
    ///
    /// # Errors
    /// Like [`js::api_at`].
    pub fn api(&mut self, what: &str, body: &Value) -> Result<Value, JsError> {
        let answer = js::api_at(&mut self.client, &self.api_prefix, what, body, self.timeout);
        answer.map_err(|err| self.with_question(what, err))
    }

    /// Asks JetStream's API, and decodes the answer.
    ///
    /// # Errors
    /// Like [`js::api_at`], or the answer is not understood.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        what: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, JsError> {
        let bad = |error: serde_json::Error| JsError::BadReply {
            subject: what.to_owned(),
            reason: error.to_string(),
        };
        let body = serde_json::to_value(body).map_err(bad)?;
        Answer::read(what, self.api(what, &body)?)
    }

    /// Adds "did you mean …?" to the error about a stream or a consumer that does not exist.
    fn with_question(&mut self, what: &str, err: JsError) -> JsError {
        let JsError::Api(mut error) = err else { return err };
        let tokens: Vec<&str> = what.split('.').collect();
        let nearest = match (error.err_code, &tokens[..]) {
            (js::STREAM_NOT_FOUND, ["STREAM", "MSG", _, name] | ["STREAM", _, name]) => {
                self.similar("STREAM.NAMES", "", name)
            }
            (js::STREAM_NOT_FOUND, ["CONSUMER", _, name, ..]) => {
                self.similar("STREAM.NAMES", "", name)
            }
            (js::CONSUMER_NOT_FOUND, ["CONSUMER", _, stream, name]) => {
                self.similar(&format!("CONSUMER.NAMES.{stream}"), "", name)
            }
            _ => None,
        };
        error.description.push_str(&suggest::question(nearest.as_deref()));
        JsError::Api(error)
    }

    /// The name in one page of a list that is nearest to `name`, which does not exist; names begin
    /// with `prefix`, which is taken off. Nothing when the list cannot be had.
    fn similar(&mut self, list: &str, prefix: &str, name: &str) -> Option<String> {
        let field = if list.starts_with("CONSUMER") { "consumers" } else { "streams" };
        let timeout = self.timeout.min(HINT_LIMIT);
        let page =
            js::api_at(&mut self.client, &self.api_prefix, list, &Value::Null, timeout).ok()?;
        let names = page[field].as_array()?.iter().filter_map(Value::as_str);
        let names = names.filter_map(|name| name.strip_prefix(prefix));
        suggest::nearest(name, names).map(str::to_owned)
    }

    /// Says of a failure that its bucket does not exist, when that is what it means: the streams
    /// behind buckets, whose names begin with `prefix`, are none of the user's business.
    pub fn about_bucket(&mut self, prefix: &str, bucket: &str, err: CliError) -> CliError {
        let is_missing = match &err {
            CliError::Js { source, .. } => source.err_code() == Some(js::STREAM_NOT_FOUND),
            CliError::NotStored(_) | CliError::Request(RequestError::NoResponders(_)) => true,
            _ => false,
        };
        if !is_missing {
            return err;
        }
        if let Err(error @ (JsError::NotEnabled | JsError::Unheard(_))) =
            self.api("INFO", &Value::Null)
        {
            return CliError::js(format!("bucket {bucket}"))(error);
        }
        let nearest = self.similar("STREAM.NAMES", prefix, bucket);
        let question = suggest::question(nearest.as_deref());
        CliError::NotFound(format!("there is no bucket {bucket}{question}"))
    }

    /// All pages of a list of JetStream's API.
    ///
    /// # Errors
    /// Like [`js::list_at`].
    pub fn list(&mut self, what: &str, field: &str, filter: &Value) -> Result<Vec<Value>, JsError> {
        js::list_at(&mut self.client, &self.api_prefix, what, field, filter, self.timeout)
    }

    /// [`Session::list`], decoded.
    ///
    /// # Errors
    /// Like [`js::list_at`], or an answer is not understood.
    pub fn list_of<T: DeserializeOwned>(
        &mut self,
        what: &str,
        field: &str,
        filter: &Value,
    ) -> Result<Vec<Answer<T>>, JsError> {
        let all = self.list(what, field, filter)?;
        all.into_iter().map(|one| Answer::read(what, one)).collect()
    }

    /// A fresh reply subject.
    pub fn fresh_inbox(&mut self) -> String {
        self.inboxes += 1;
        format!("{}.n{}", self.client.inbox(), self.inboxes)
    }

    /// Publishes and returns the ack of the stream that has stored the message.
    ///
    /// # Errors
    /// When no stream stores the subject, the stream refuses, or the connection fails.
    pub fn publish_stored(
        &mut self,
        subject: &str,
        headers: &[u8],
        body: &[u8],
    ) -> Result<Value, CliError> {
        let reply = match self.client.request(subject, headers, body, self.timeout) {
            Ok(reply) => reply,
            Err(RequestError::NoResponders(subject)) => {
                let owner = match self.client.info().cluster {
                    Some(_) => ", or no node serves its log now: see `nuthatch cluster status`",
                    None => "",
                };
                return Err(CliError::NotStored(format!("no stream stores {subject:?}{owner}")));
            }
            Err(err) => return Err(err.into()),
        };
        check_ack(&reply.payload)
    }

    /// Prints JSON when asked for, else the text.
    ///
    /// # Errors
    /// When the output is gone.
    pub fn print(&self, json: &Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        print(self.json, json, text)
    }
}

/// Prints JSON when asked for, else the text.
///
/// # Errors
/// When the output is gone.
pub fn print(as_json: bool, json: &Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
    let text = if as_json { format!("{json:#}\n") } else { text() };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Reads the answer to a publish.
///
/// # Errors
/// When it is no ack, or says that the message was not stored.
pub fn check_ack(body: &[u8]) -> Result<Value, CliError> {
    let ack: Value = serde_json::from_slice(body)
        .map_err(|_| CliError::NotStored("the reply is no ack of a stream".into()))?;
    js::refusal(body).map_or(Ok(ack), |error| Err(CliError::Refused(error)))
}

/// Asks before something is destroyed. Without a terminal to ask on, `force` is needed.
///
/// # Errors
/// When the answer is no, or nobody can be asked.
pub fn confirm(question: &str, force: bool) -> Result<(), CliError> {
    if force {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let text = "there is no terminal to ask for confirmation on; pass --force".to_owned();
        return Err(CliError::Usage(text));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::Declined),
    }
}
