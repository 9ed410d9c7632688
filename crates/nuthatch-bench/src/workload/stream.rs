//! Preparation of the stream that the JetStream workloads use.

use serde_json::{Value, json};

use crate::harness::{BenchError, Target};
use nuthatch_client::Client;
use nuthatch_client::js;

/// Subject prefix of replies to publishes, below a connection's inbox.
pub const ACK_INBOX: &str = "p";

/// The stream of a workload.
#[derive(Debug, Clone)]
pub struct StreamPlan {
    /// Its name.
    pub name: String,
    /// The subject published to, the only one it listens on.
    pub subject: String,
    /// `file` or `memory`.
    pub storage: String,
    /// Create it when it does not exist.
    pub create: bool,
    /// Remove all messages before each run.
    pub purge: bool,
    /// A created stream takes atomic and fast batches.
    pub batches: bool,
}

impl StreamPlan {
    /// Creates and purges as planned. Returns the stream's last sequence.
    ///
    /// # Errors
    /// When JetStream refuses.
    pub fn prepare(&self, control: &mut Client, target: &Target) -> Result<u64, BenchError> {
        if self.create {
            let mut config = json!({
                "name": self.name, "subjects": [self.subject], "storage": self.storage,
                "retention": "limits", "discard": "old", "num_replicas": 1,
                "allow_direct": true,
            });
            if self.batches {
                config["allow_atomic"] = true.into();
                config["allow_batched"] = true.into();
            }
            let what = format!("STREAM.CREATE.{}", self.name);
            js::api(control, &what, &config, target.timeout)?;
        }
        if self.purge {
            let what = format!("STREAM.PURGE.{}", self.name);
            js::api(control, &what, &Value::Null, target.timeout)?;
        }
        Ok(self.state(control, target)?.last_seq)
    }

    /// Where the stream stands.
    ///
    /// # Errors
    /// When JetStream refuses, for example because there is no such stream.
    pub fn state(&self, control: &mut Client, target: &Target) -> Result<StreamState, BenchError> {
        let what = format!("STREAM.INFO.{}", self.name);
        let info = js::api(control, &what, &Value::Null, target.timeout)?;
        let number = |key: &str| info["state"][key].as_u64().unwrap_or(0);
        Ok(StreamState {
            messages: number("messages"),
            first_seq: number("first_seq"),
            last_seq: number("last_seq"),
        })
    }
}

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// Messages stored.
    pub messages: u64,
    /// Sequence of the oldest.
    pub first_seq: u64,
    /// Sequence of the newest.
    pub last_seq: u64,
}
