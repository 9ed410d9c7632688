//! Does what [`nuthatch_streams::control::restore`] says, and tells it what became of it. Nothing here
//! decides about a step.

use super::{Restores, checked_consumers};
use crate::pending_changes::{Changing, claim};
use crate::registry::Entry;
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::{LogId, Requester};
use nuthatch_streams::Op;
use nuthatch_streams::control::restore::{Action, Happened, Parts, Restore};
use nuthatch_streams::op::OpResult;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How a restore has ended.
pub(super) type Ended = Result<Box<StreamInfo>, JsError>;

/// Where a restore puts its stream, and as what.
pub(super) struct Place {
    pub(super) service: Arc<Restores>,
    pub(super) from: Requester,
    /// Checked, but not against what may come until the end.
    pub(super) config: StreamConfig,
    pub(super) engine: LogId,
}

/// One restore under way.
pub(super) struct Driver<'a> {
    place: &'a Place,
    machine: Restore,
    /// The right to change the account's streams, as long as the machine holds the name.
    changing: Option<Changing>,
    handle: &'a Handle,
    /// What the machine's time is counted from.
    origin: Instant,
}

impl<'a> Driver<'a> {
    pub(super) fn new(place: &'a Place, handle: &'a Handle) -> Self {
        let machine = Restore::new(place.config.clone(), Parts::default());
        Self { place, machine, changing: None, handle, origin: Instant::now() }
    }

    /// Goes on until more of the archive is wanted (`None`), or the restore has ended.
    pub(super) fn drive(&mut self, mut happened: Happened) -> Option<Ended> {
        loop {
            let action = self.machine.step(happened, self.origin.elapsed());
            if !self.machine.holds_name() {
                self.changing = None;
            }
            happened = match action {
                Action::Feed => return None,
                Action::End(ended) => return Some(ended),
                action => self.handle.block_on(self.perform(action)),
            };
        }
    }

    async fn perform(&mut self, action: Action) -> Happened {
        let Place { service, from, config, .. } = self.place;
        match action {
            Action::Lock => match service.rights.lock(from.account, &config.name).await {
                Ok(changing) => {
                    self.changing = Some(changing);
                    Happened::Locked
                }
                Err(why) => Happened::Failed(why),
            },
            Action::Create(config) => self.create(config).await,
            Action::Run(op) => Happened::Outcome(self.run(op).await),
            Action::Check(consumers) => match self.check(consumers).await {
                Ok((config, consumers)) => Happened::Checked(Box::new(config), consumers),
                Err(why) => Happened::Failed(why),
            },
            Action::Show(info) => {
                self.show(&info).await;
                Happened::Shown
            }
            Action::Rest { until } => {
                sleep(until.saturating_sub(self.origin.elapsed())).await;
                Happened::Rested
            }
            Action::Feed | Action::End(_) => panic!("that is for the reader of the archive"),
        }
    }

    async fn create(&mut self, config: Box<StreamConfig>) -> Happened {
        let Place { service, from, engine, .. } = self.place;
        let account = from.account;
        let (id, work) =
            service.calls.begin_new(*engine, |id| Op::CreateStream { id, account, config });
        let config = &self.place.config;
        let outcome = self.settle(config, work).await;
        Happened::Created(id, outcome)
    }

    async fn run(&mut self, op: Op) -> OpResult {
        let Place { service, engine, .. } = self.place;
        match op {
            Op::FinishRestore { ref config, .. } => {
                let config = (**config).clone();
                self.settle(&config, service.calls.run(*engine, op)).await
            }
            // The next start deletes it.
            Op::DeleteStream { .. } if *service.transfers.stopping().borrow() => {
                Err(JsError::CLUSTER_NOT_AVAIL)
            }
            op => service.calls.run(*engine, op).await,
        }
    }

    /// Waits for work on the stream whose name is held.
    async fn settle(
        &mut self,
        config: &StreamConfig,
        work: impl Future<Output = OpResult>,
    ) -> OpResult {
        let Place { engine, .. } = self.place;
        let changing = self.changing.take().expect("the name is held");
        let pending = claim(*engine, config.clone());
        let (outcome, changing) = changing.settle(pending, work).await;
        self.changing = Some(changing);
        outcome
    }

    async fn check(
        &self,
        consumers: Vec<ConsumerSnapshot>,
    ) -> Result<(StreamConfig, Vec<ConsumerSnapshot>), JsError> {
        let Place { service, from, config, .. } = self.place;
        let config = service.check(from, config.clone()).await?;
        let limits = service.accounts.consumer_limits(from.account);
        let consumers = checked_consumers(consumers, &config, &limits)?;
        Ok((config, consumers))
    }

    async fn show(&self, info: &StreamInfo) {
        let Place { service, from, engine, .. } = self.place;
        let id = self.machine.stream().expect("the stream was begun");
        let (config, created) = (info.config.clone(), info.created);
        let entry = Entry { id, engine: *engine, account: from.account, config, created };
        // One whose log was detached just now comes into service with it, and is told of then.
        if service.streams.enter(entry.clone()).await {
            service.elections.stream_led(&entry);
        }
    }
}
