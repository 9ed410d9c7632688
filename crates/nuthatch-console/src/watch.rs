//! What the console keeps of the process while nobody looks: an hour of history, and what advisories
//! have told. All of it is in memory, and gone with the process.

mod dead;
mod history;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};

use crate::bounds::{ADVISORIES_WAITING_MAX, HISTORY_STEP};
use crate::host::{Advisory, Host};

use dead::Heard;
pub use dead::{Dead, Told, View};
use history::History;

/// What is kept.
pub struct Watch {
    history: Mutex<History>,
    heard: Mutex<Heard>,
    /// Wakes whoever follows events.
    news: Notify,
}

impl Watch {
    /// Begins to keep what happens in a process, within the runtime of the caller.
    pub fn start(host: &Arc<dyn Host>) -> Arc<Self> {
        let watch = Arc::new(Self {
            history: Mutex::default(),
            heard: Mutex::default(),
            news: Notify::new(),
        });
        let (sender, receiver) = mpsc::channel(ADVISORIES_WAITING_MAX);
        host.listen(sender);
        tokio::spawn(watch.clone().hear(receiver));
        tokio::spawn(watch.clone().sample(host.clone()));
        watch
    }

    async fn hear(self: Arc<Self>, mut advisories: mpsc::Receiver<Advisory>) {
        while let Some(advisory) = advisories.recv().await {
            self.heard.lock().add(advisory);
            self.news.notify_waiters();
        }
    }

    async fn sample(self: Arc<Self>, host: Arc<dyn Host>) {
        let mut ticks = tokio::time::interval(HISTORY_STEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = host.clone();
            // One that panics leaves a gap.
            let runtime = tokio::runtime::Handle::current();
            let asked = tokio::task::spawn_blocking(move || runtime.block_on(asked.sample()));
            if let Ok(sample) = asked.await {
                self.history.lock().add(Instant::now(), &sample);
            }
        }
    }

    /// The hour of an account.
    pub fn history_of(&self, account: &str) -> serde_json::Value {
        self.history.lock().of(account, Instant::now())
    }

    /// What will go wrong if things go on as they do, as sentences.
    pub fn forecasts(&self) -> Vec<String> {
        self.history.lock().forecasts()
    }

    /// Ready when an advisory has come since the call.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// What advisories have told of an account.
    pub fn heard<T>(&self, account: &str, look: impl FnOnce(&mut View) -> T) -> T {
        look(self.heard.lock().of(account))
    }
}
