//! Accounts that come when they are needed: who needs one says so, and waits.

use super::Operator;
use nuthatch_protocol::nkey::{KeyKind, decode_as};
use std::sync::OnceLock;
use tokio::sync::{mpsc, oneshot};

/// Clients that wait for an account at a time.
pub(crate) const WANTS_MAX: usize = 1024;

/// An account that somebody needs.
pub(crate) struct Want {
    /// Its public nkey.
    pub(crate) key: String,
    /// Told once it was asked for. It is dropped if that was not done.
    pub(crate) done: oneshot::Sender<()>,
}

/// The way to whoever asks for accounts; nobody does where all of them are here.
#[derive(Default)]
pub(crate) struct Wants(OnceLock<mpsc::Sender<Want>>);

impl Wants {
    /// What is wanted from now on. Once.
    pub(crate) fn open(&self) -> mpsc::Receiver<Want> {
        let (sender, receiver) = mpsc::channel(WANTS_MAX);
        self.0.set(sender).expect("accounts are asked for in one place");
        receiver
    }
}

impl Operator {
    /// Waits until an account was asked for anew: `true` means that it is worth looking again.
    pub(crate) async fn want(&self, key: &str) -> bool {
        let Some(wants) = self.wants.0.get() else { return false };
        if decode_as(KeyKind::Account, key).is_none() {
            return false;
        }
        let (done, asked) = oneshot::channel();
        let want = Want { key: key.to_owned(), done };
        wants.try_send(want).is_ok() && asked.await.is_ok()
    }
}
