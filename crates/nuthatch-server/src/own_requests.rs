//! Requests of the server itself in an account.

use crate::account::Account;
use crate::egress::{DeliveryContext, Outgoing};
use crate::random::random_token;
use crate::server::Server;
use crate::subscription::{Receiver, Subscription};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Characters of a reply subject that nobody can guess.
const REPLY_CHARS: usize = 22;

/// The subscription to answers, as long as they are awaited.
pub(crate) struct Answers {
    account: Arc<Account>,
    sub: Arc<Subscription>,
    received: mpsc::Receiver<Bytes>,
}

impl Answers {
    /// Takes so many answers of at most so many bytes; those that come while as many wait go nowhere.
    pub(crate) fn subscribe(
        server: &Server,
        account: Arc<Account>,
        (count_max, bytes_max): (usize, usize),
    ) -> Self {
        // Of the prefix whose subjects lead back through other servers.
        let subject = format!("_R_.{}", random_token(REPLY_CHARS));
        let (sender, received) = mpsc::channel(count_max);
        let receiver = Arc::new(Answer { sender, bytes_max });
        let outlet = server.own_peer().outlet.clone();
        let sub = Arc::new(Subscription::of_server(outlet, subject.as_bytes(), receiver));
        account.interest.insert(sub.clone());
        Self { account, sub, received }
    }

    /// The account.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Their subject.
    pub(crate) fn subject(&self) -> &[u8] {
        &self.sub.subject
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.received.recv().await
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.account.interest.remove(&self.sub);
    }
}

/// Takes answers.
struct Answer {
    sender: mpsc::Sender<Bytes>,
    bytes_max: usize,
}

impl Receiver for Answer {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
        message.body.len() <= self.bytes_max
            && self.sender.capacity() > 0
            && self.sender.try_send(Bytes::copy_from_slice(message.body)).is_ok()
    }
}
