//! `STREAM.RESTORE`: an archive becomes a stream, all of it or nothing.
//!
//! The chunks of the upload go through a bounded queue to a thread that reads the archive and hands
//! what it holds to a [`nuthatch_streams::control::restore`], which decides about every step.

mod driver;
mod fill;
mod upload;

use crate::account_table::AccountTable;
use crate::admission::Admission;
use crate::api_stats::ApiStats;
use crate::changing::ChangeRights;
use crate::core_port::CorePort;
use crate::elections::Elections;
use crate::envelope::{self, ResponseType};
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::metadata::set_consumer_metadata;
use crate::origins::Origins;
use crate::outcome::{Answer, Work};
use crate::placing::Placing;
use crate::request::{is_empty, parse};
use crate::snapshot::times;
use crate::stream_table::StreamTable;
use crate::transfers::{RESTORES_MAX, RESTORES_OF_ACCOUNT_MAX, Transfers};
use driver::{Driver, Ended, Place};
use fill::{ConsumerRoom, ReadError};
use nuthatch_protocol::js::{ConsumerSnapshot, CreateConsumerRequest, StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::Requester;
use nuthatch_server::random::random_id;
use nuthatch_server::shares::{Full, Share};
use nuthatch_streams::consumer::{ConsumerLimits, validate_consumer};
use nuthatch_streams::control::restore::Happened;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;
use upload::Upload;

/// Characters of the random part of a subject.
const SUBJECT_ID_CHARS: usize = 22;

#[derive(Deserialize, Default)]
#[serde(default)]
struct RestoreRequest {
    config: StreamConfig,
    /// State of the backup when it was made; the archive holds it too.
    state: Value,
}

#[derive(Serialize)]
struct RestoreBody<'a> {
    deliver_subject: &'a str,
}

fn too_many(full: Full) -> String {
    match full {
        Full::All => format!("{RESTORES_MAX} restores are under way: try again"),
        Full::Account => {
            format!("{RESTORES_OF_ACCOUNT_MAX} restores of this account are under way: try again")
        }
    }
}

/// A restore on its way.
struct Restore {
    place: Place,
    upload: Upload,
    consumers: ConsumerRoom,
    _room: Share,
}

/// Makes streams of archives.
pub(super) struct Restores {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) admission: Arc<Admission>,
    pub(super) origins: Arc<Origins>,
    pub(super) placing: Arc<Placing>,
    pub(super) infos: Arc<Infos>,
    pub(super) transfers: Arc<Transfers>,
    pub(super) stats: Arc<ApiStats>,
    pub(super) elections: Arc<Elections>,
}

impl Restores {
    /// `STREAM.RESTORE`
    pub(super) async fn begin(
        self: &Arc<Self>,
        from: &Requester,
        name: &str,
        body: &[u8],
        then: &mut Option<Work>,
    ) -> Answer {
        let answer = self.try_begin(from, name, body, then).await;
        if answer.is_err() {
            self.stats.refused_restores.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn try_begin(
        self: &Arc<Self>,
        from: &Requester,
        name: &str,
        body: &[u8],
        then: &mut Option<Work>,
    ) -> Answer {
        if is_empty(body) {
            return Err(JsError::BAD_REQUEST);
        }
        let mut config = parse::<RestoreRequest>(body, self.strict)?.config;
        if config.name.is_empty() {
            name.clone_into(&mut config.name);
        }
        if config.name != name {
            return Err(JsError::STREAM_MISMATCH);
        }
        if name.contains(['/', '\\']) {
            return Err(JsError::STREAM_NAME_CONTAINS_PATH_SEPARATORS);
        }
        let config = self.admission.restored_config(config)?;
        let config = self.check(from, config).await?;
        let engine = self.placing.here(&config)?;
        let room = self.transfers.restores.take(from.account, 1);
        let room = room.map_err(|full| JsError::STREAM_RESTORE.with_err(too_many(full)))?;
        let subject = format!("$JS.SNAPSHOT.RESTORE.{name}.{}", random_id(SUBJECT_ID_CHARS));
        let transfers = self.transfers.clone();
        let Some(upload) = Upload::open(transfers, from.account, &subject, Handle::current())
        else {
            let error = JsError::RESTORE_SUBSCRIBE_FAILED.with("subject", &subject);
            return Err(error.with_err("the account is gone"));
        };
        let body = RestoreBody { deliver_subject: &subject };
        let answer = envelope::ok(ResponseType("stream_restore"), &body);
        let (service, from) = (self.clone(), from.clone());
        let consumer_bytes = self.transfers.bytes.take(from.account, 0);
        let consumer_bytes = consumer_bytes.expect("there is always room for nothing");
        let consumers = ConsumerRoom::new(consumer_bytes);
        let place = Place { service, from, config, engine };
        let restore = Restore { place, upload, consumers, _room: room };
        *then = Some(Box::pin(restore.run()));
        Ok(answer)
    }

    /// Whether there is room for the stream beside the others, now.
    async fn check(
        &self,
        from: &Requester,
        mut config: StreamConfig,
    ) -> Result<StreamConfig, JsError> {
        self.origins.check(from.account, &mut config)?;
        if self.streams.read().get(from.account, &config.name).is_some() {
            return Err(JsError::STREAM_NAME_EXIST_RESTORE_FAILED);
        }
        self.admission.check_new(from.account, &config).await?;
        Ok(config)
    }
}

impl Restore {
    async fn run(self) {
        let (service, name) = (self.place.service.clone(), self.place.config.name.clone());
        let handle = Handle::current();
        // Reading an archive waits for chunks and for the log: that takes a thread of its own.
        let done = tokio::task::spawn_blocking(move || self.on_thread(&handle)).await;
        if let Err(why) = done {
            // What it left goes with the next start; that it happened must be seen.
            service.core.say(&format!("the restore of stream {name} ended by a mistake: {why}"));
        }
    }

    fn on_thread(mut self, handle: &Handle) {
        let Place { service, from, config, .. } = &self.place;
        let start = service.core.now();
        service.transfers.tell(from, "restore_create", &config.name, serde_json::Map::new());
        let ended = self.restore(handle);
        self.answer(ended, start);
    }

    /// Reads the whole upload into the stream.
    fn restore(&mut self, handle: &Handle) -> Ended {
        let mut driver = Driver::new(&self.place, handle);
        if let Some(ended) = driver.drive(Happened::Began) {
            return ended;
        }
        let mut ended = None;
        let name = &self.place.config.name;
        let consumers = &mut self.consumers;
        let read = nuthatch_archive::read(&mut self.upload, name, &mut |item| {
            let item = consumers.take(item)?;
            ended = driver.drive(Happened::Item(item));
            if ended.is_none() { Ok(()) } else { Err(ReadError::Over) }
        });
        if let Some(ended) = ended {
            return ended;
        }
        let read = read.and_then(|()| self.upload.drain().map_err(ReadError::Archive));
        let happened = match read {
            Ok(()) => Happened::Complete,
            Err(why) => Happened::Failed(why.into()),
        };
        driver.drive(happened).expect("the backup was read to its end")
    }

    fn answer(mut self, ended: Ended, start: Time) {
        let Place { service, from, config, .. } = &self.place;
        let answer = match ended {
            Ok(info) => service.infos.answer(from.account, "stream_create", *info, false),
            Err(error) => {
                service.stats.refused_restores.fetch_add(1, Ordering::Relaxed);
                envelope::failed(ResponseType("stream_create"), &error, json!({}))
            }
        };
        self.upload.answer(&answer);
        let mut fields = times(start, service.core.now());
        fields.insert("bytes".to_owned(), json!(self.upload.received()));
        service.transfers.tell(from, "restore_complete", &config.name, fields);
    }
}

/// Consumers of a backup as new ones are checked.
pub(super) fn checked_consumers(
    consumers: Vec<ConsumerSnapshot>,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<Vec<ConsumerSnapshot>, JsError> {
    let max = if stream.max_consumers > 0 { stream.max_consumers } else { limits.max_consumers };
    if usize::try_from(max).is_ok_and(|max| max > 0 && consumers.len() > max) {
        return Err(JsError::MAXIMUM_CONSUMERS_LIMIT);
    }
    let check = |snapshot: ConsumerSnapshot| {
        let ConsumerSnapshot { config, state } = snapshot;
        let name = config.name.clone();
        let mut request = CreateConsumerRequest {
            stream_name: stream.name.clone(),
            config,
            ..CreateConsumerRequest::default()
        };
        set_consumer_metadata(&mut request.config);
        let config = validate_consumer(&request, stream, limits)
            .map_err(|why| JsError::STREAM_RESTORE.with_err(format!("consumer {name}: {why}")))?;
        Ok(ConsumerSnapshot { config, state })
    };
    consumers.into_iter().map(check).collect()
}
