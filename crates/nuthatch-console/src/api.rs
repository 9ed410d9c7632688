//! The API of the pages: what each address asks the broker for.

mod cluster;
mod consumers;
mod dead;
mod deliveries;
mod kv;
mod messages;
mod objects;
mod overview;
mod publish;
mod pullers;
mod search;
mod server;
mod streams;

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::bounds::BROKER_TIME_MAX;
use crate::broker::Broker;
use crate::failure::Failure;
use crate::host::{Facts, Host};
use crate::watch::Watch;

/// One request of the browser.
pub struct Call<'a> {
    /// The user's connection.
    pub broker: &'a mut Broker,
    /// What is asked.
    pub ask: &'a Ask,
    /// The process.
    pub facts: &'a Facts,
    /// More of it.
    pub host: &'a dyn Host,
    /// What was kept of it.
    pub watch: &'a Watch,
    /// The user's account.
    pub account: &'a str,
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
        match path[..] {
            ["streams", ..] => self.of_streams(method, &path),
            ["kv" | "objects", ..] => self.of_buckets(method, &path),
            _ => self.of_server(method, &path),
        }
    }

    fn of_server(&mut self, method: &str, path: &[&str]) -> Result<Value, Failure> {
        match (method, path) {
            ("GET", ["overview"]) => overview::overview(self),
            ("GET", ["history"]) => overview::history(self),
            ("GET", ["consumers"]) => consumers::list(self, None),
            ("POST", ["publish"]) => publish::publish(self),
            ("POST", ["request"]) => publish::request(self),
            ("GET", ["dead"]) => dead::list(self),
            ("POST", ["dead", what @ ("retry" | "discard" | "forget")]) => dead::act(self, what),
            ("GET", ["events"]) => dead::events(self),
            ("GET", ["connections"]) => server::connections(self),
            ("GET", ["connections", cid]) => server::connection(self, cid),
            ("POST", ["connections", cid, "kick"]) => server::kick(self, cid),
            ("GET", ["accounts"]) => server::accounts(self),
            ("GET", ["users"]) => server::users(self),
            ("GET", ["may"]) => server::may(self),
            ("GET", ["logs"]) => server::logs(self),
            ("GET", ["findings"]) => cluster::findings(self),
            ("GET", ["cluster"]) => cluster::cluster(self),
            ("GET", ["leafs"]) => server::leafs(self),
            ("GET", ["nodes"]) => server::nodes(self),
            ("GET", ["configuration"]) => server::configuration(self),
            _ => Err(unknown(method, path)),
        }
    }

    fn of_buckets(&mut self, method: &str, path: &[&str]) -> Result<Value, Failure> {
        match (method, path) {
            ("GET", ["kv"]) => streams::list(self, kv::STREAM_PREFIX),
            ("GET", ["kv", bucket, "keys"]) => kv::keys(self, bucket),
            ("GET", ["kv", bucket, "entry"]) => kv::entry(self, bucket),
            ("PUT", ["kv", bucket, "entry"]) => kv::put(self, bucket),
            ("DELETE", ["kv", bucket, "entry"]) => kv::delete(self, bucket),
            ("GET", ["objects"]) => streams::list(self, objects::STREAM_PREFIX),
            ("GET", ["objects", bucket, "files"]) => objects::list(self, bucket),
            ("GET", ["objects", bucket, "part"]) => objects::part(self, bucket),
            ("PUT", ["objects", bucket, "file"]) => objects::put(self, bucket),
            ("DELETE", ["objects", bucket, "file"]) => objects::delete(self, bucket),
            _ => Err(unknown(method, path)),
        }
    }

    fn of_streams(&mut self, method: &str, path: &[&str]) -> Result<Value, Failure> {
        match (method, path) {
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
            ("GET", ["streams", stream, "consumers"]) => consumers::list(self, Some(stream)),
            ("GET", ["streams", stream, "consumers", consumer]) => {
                consumers::info(self, stream, consumer)
            }
            ("GET", ["streams", stream, "consumers", consumer, "listeners"]) => {
                pullers::listeners(self, stream, consumer)
            }
            ("POST", ["streams", stream, "consumers", consumer, "pause"]) => {
                consumers::pause(self, stream, consumer)
            }
            ("DELETE", ["streams", stream, "consumers", consumer]) => {
                consumers::delete(self, stream, consumer)
            }
            ("GET", ["streams", stream, "move"]) => streams::moving(self, stream),
            ("POST", ["streams", stream, "move"]) => streams::relocate(self, stream),
            ("POST", ["streams", stream, "consumers", consumer, "reset"]) => {
                consumers::reset(self, stream, consumer)
            }
            ("POST", ["streams", stream, "consumers", consumer, "next"]) => {
                deliveries::next(self, stream, consumer)
            }
            ("POST", ["streams", stream, "consumers", consumer, "ack"]) => {
                deliveries::acknowledge(self, stream, consumer)
            }
            _ => Err(unknown(method, path)),
        }
    }
}

fn unknown(method: &str, path: &[&str]) -> Failure {
    Failure::NotFound(format!("{method} /api/{}", path.join("/")))
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
