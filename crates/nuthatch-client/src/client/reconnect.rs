//! Coming back after a connection has ended.

use std::thread;
use std::time::{Duration, Instant};

use super::{Client, ConnectError, ConnectOptions};
use crate::url::ServerUrl;

/// The first wait between two rounds through all addresses; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Addresses that servers told, at most.
const TOLD_MAX: usize = 64;

/// What is needed to connect once more.
#[derive(Debug, Clone)]
pub(super) struct Known {
    options: ConnectOptions,
    /// Subject, queue and id of each subscription.
    subscriptions: Vec<(String, String, u64)>,
}

impl Known {
    pub(super) fn new(options: &ConnectOptions) -> Self {
        Self { options: options.clone(), subscriptions: Vec::new() }
    }

    pub(super) fn subscribed(&mut self, subject: &str, queue: &str, sid: u64) {
        self.subscriptions.push((subject.to_owned(), queue.to_owned(), sid));
    }

    pub(super) fn unsubscribed(&mut self, sid: u64) {
        self.subscriptions.retain(|known| known.2 != sid);
    }
}

impl Client {
    /// Connects again, with the same options, to the first server that answers: those of the options, then those that
    /// the last server told of. Subscriptions are made again under their ids, [`Client::unsubscribe`]d ones are not.
    /// What was sent and not answered may have been taken or not; what was published meanwhile to subscriptions that
    /// no stream stores is gone.
    ///
    /// # Errors
    /// The last server's error once `limit` is over. The client stays as it was, and can try again. One that came
    /// [`Client::over`] a stream has no address to go back to.
    pub fn reconnect(&mut self, limit: Duration) -> Result<(), ConnectError> {
        let deadline = Instant::now() + limit;
        let mut options = self.known.options.clone();
        if options.servers.iter().all(ServerUrl::is_in_process) {
            let server = self.server.to_string();
            return Err(ConnectError::Refused { server });
        }
        for told in self.info.connect_urls.iter().take(TOLD_MAX) {
            let Ok(mut url) = ServerUrl::parse(told) else { continue };
            url.tls = self.server.tls;
            url.credentials = self.server.credentials.clone();
            if !options.servers.iter().any(|known| known.is_at(&url)) {
                options.servers.push(url);
            }
        }
        let mut wait = FIRST_WAIT;
        loop {
            match Self::connect(&options).and_then(|fresh| self.take_over(fresh)) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() + wait >= deadline => return Err(error),
                Err(_) => thread::sleep(wait),
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Takes the place of the old connection, with its subscriptions and ids.
    fn take_over(&mut self, fresh: Self) -> Result<(), ConnectError> {
        let name = fresh.server.to_string();
        let failed = |source| ConnectError::Handshake { server: name.clone(), source };
        let mut fresh = Self {
            inbox: self.inbox.clone(),
            next_sid: self.next_sid,
            requests: self.requests,
            request_sid: self.request_sid,
            known: self.known.clone(),
            ..fresh
        };
        for (subject, queue, sid) in &self.known.subscriptions {
            fresh.writer.subscribe(subject, queue, *sid).map_err(failed)?;
        }
        // Logging in has been answered; what waits for a subscription may come from here on, and is kept.
        fresh.writer.flush().map_err(failed)?;
        *self = fresh;
        Ok(())
    }
}
