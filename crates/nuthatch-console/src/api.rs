//! The API of the pages: what each address asks the broker for.

mod consumers;
mod kv;
mod messages;
mod overview;
mod publish;
mod streams;

use serde_json::{Value, json};

use crate::Facts;
use crate::ask::Ask;
use crate::bounds::BROKER_TIME_MAX;
use crate::broker::Broker;
use crate::failure::Failure;

/// One request of the browser.
pub struct Call<'a> {
    /// The user's connection.
    pub broker: &'a mut Broker,
    /// What is asked.
    pub ask: &'a Ask,
    /// The process.
    pub facts: &'a Facts,
    /// What is being changed, for the log; `None`: nothing yet.
    pub change: Option<String>,
}

impl Call<'_> {
    /// Answers it.
    ///
    /// # Errors
    /// Why not.
    pub fn run(&mut self, method: &str) -> Result<Value, Failure> {
        let ask = self.ask;
        let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
        match (method, &path[..]) {
            ("GET", ["overview"]) => overview::overview(self),
            ("GET", ["streams"]) => streams::list(self, ""),
            ("POST", ["streams"]) => streams::save(self, "CREATE"),
            ("PUT", ["streams"]) => streams::save(self, "UPDATE"),
            ("GET", ["streams", stream]) => streams::info(self, stream),
            ("DELETE", ["streams", stream]) => streams::delete(self, stream),
            ("POST", ["streams", stream, "purge"]) => streams::purge(self, stream),
            ("GET", ["streams", stream, "messages"]) => messages::page(self, stream),
            ("GET", ["streams", stream, "messages", sequence]) => {
                messages::one(self, stream, sequence)
            }
            ("DELETE", ["streams", stream, "messages", sequence]) => {
                messages::delete(self, stream, sequence)
            }
            ("GET", ["consumers"]) => consumers::list(self, None),
            ("GET", ["streams", stream, "consumers"]) => consumers::list(self, Some(stream)),
            ("GET", ["streams", stream, "consumers", consumer]) => {
                consumers::info(self, stream, consumer)
            }
            ("POST", ["streams", stream, "consumers", consumer, "pause"]) => {
                consumers::pause(self, stream, consumer)
            }
            ("DELETE", ["streams", stream, "consumers", consumer]) => {
                consumers::delete(self, stream, consumer)
            }
            ("POST", ["publish"]) => publish::publish(self),
            ("POST", ["request"]) => publish::request(self),
            ("GET", ["kv"]) => streams::list(self, kv::STREAM_PREFIX),
            ("GET", ["kv", bucket, "keys"]) => kv::keys(self, bucket),
            ("GET", ["kv", bucket, "entry"]) => kv::entry(self, bucket),
            ("PUT", ["kv", bucket, "entry"]) => kv::put(self, bucket),
            ("DELETE", ["kv", bucket, "entry"]) => kv::delete(self, bucket),
            _ => Err(Failure::NotFound(format!("{method} /api/{}", path.join("/")))),
        }
    }
}

/// Name and account of the user, as the broker tells them.
pub fn identity(broker: &mut Broker) -> (Option<String>, String) {
    let asked = broker.request("$SYS.REQ.USER.INFO", b"", b"", BROKER_TIME_MAX);
    let told = asked.ok().and_then(|m| serde_json::from_slice::<Value>(&m.payload).ok());
    let told = told.unwrap_or(json!({}));
    let text = |name: &str| told["data"][name].as_str().unwrap_or_default().to_owned();
    let user = Some(text("user")).filter(|user| !user.is_empty());
    (user, text("account"))
}
