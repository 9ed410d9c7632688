//! JetStream for monitoring: totals, accounts, streams, consumers, health.

use crate::account_table::AccountTable;
use crate::api_stats::ApiStats;
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::log_names::LogNames;
use crate::logs_port::LogsPort;
use crate::move_table::Moves;
use crate::registry::Entry;
use crate::sizes::{ASSET_BYTES, config_bytes};
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{ConsumerInfo, StorageType};
use nuthatch_server::jetstream_port::{
    BoxFuture, JsAccount, JsHealth, JsLog, JsSample, JsStream, JsTotals, JsView, JszQuery,
    SampleQuery,
};
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod sample;

/// Consumers listed for one stream in one operation.
const CONSUMERS_PAGE: usize = 1024;

/// The service as monitoring sees it.
pub(super) struct View {
    pub(super) accounts: Arc<AccountTable>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) infos: Arc<Infos>,
    pub(super) moves: Arc<Moves>,
    pub(super) stats: Arc<ApiStats>,
}

impl View {
    async fn totals_of(&self, account: Option<AccountId>) -> JsTotals {
        // A log that does not answer shows as zeros here and as broken in the health check.
        let [file, memory] = self.calls.usage(account).await.unwrap_or_default();
        let registry = self.streams.read();
        let accounts: Vec<AccountId> = match account {
            Some(account) => vec![account],
            None => registry.accounts().collect(),
        };
        let reserved = |engine| -> u64 {
            accounts.iter().map(|account| registry.reserved_bytes(*account, engine)).sum()
        };
        let [moves, moves_failing] = self.moves.under_way();
        JsTotals {
            memory_bytes: memory.bytes,
            store_bytes: file.bytes,
            reserved_memory_bytes: reserved(StorageType::Memory),
            reserved_store_bytes: reserved(StorageType::File),
            accounts: accounts.len().max(1) as u64,
            streams: file.streams + memory.streams,
            consumers: file.consumers + memory.consumers,
            messages: file.messages + memory.messages,
            missing_messages: file.missing_messages + memory.missing_messages,
            api_total: self.stats.all().total,
            api_errors: self.stats.all().errors,
            api_latency: self.stats.latency.snapshot(),
            refused_restores: self.stats.refused_restores.load(Ordering::Relaxed),
            moves,
            moves_failing,
        }
    }

    async fn streams_of(
        &self,
        account: AccountId,
        query: &JszQuery,
        room: &mut JszRoom,
    ) -> Vec<JsStream> {
        let entries: Vec<Arc<Entry>> =
            self.streams.read().of_account(account).take(room.assets).cloned().collect();
        let mut streams = Vec::with_capacity(entries.len());
        for entry in entries {
            if room.assets == 0 || !room.take(config_bytes(&entry.config)) {
                break;
            }
            room.assets -= 1;
            // A stream deleted meanwhile is left out.
            let Ok(mut info) = self.calls.current_info(&entry).await else { continue };
            self.infos.complete_stream(&mut info);
            let moving = self.moves.report_of(account, &info.config.name);
            let log = self.streams.read().get(account, &info.config.name).map(|e| e.engine);
            let log = log.map_or_else(String::new, |engine| self.names.name_of(engine));
            let mut consumers =
                if query.consumers { self.consumers_of(&entry).await } else { Vec::new() };
            consumers.truncate(room.assets);
            let fits = consumers.iter().take_while(|info| room.take(filter_bytes(info))).count();
            consumers.truncate(fits);
            room.assets -= fits;
            streams.push(JsStream {
                config: Arc::unwrap_or_clone(info.config),
                created: info.created,
                state: info.state,
                consumers,
                log,
                moving,
            });
        }
        streams
    }

    async fn consumers_of(&self, entry: &Entry) -> Vec<ConsumerInfo> {
        let mut all = Vec::new();
        loop {
            let op = Op::ListConsumers {
                id: entry.id,
                offset: all.len(),
                limit: CONSUMERS_PAGE,
                names_only: false,
            };
            let Ok(OpOutcome::Consumers { total, infos, .. }) =
                self.calls.run(entry.engine, op).await
            else {
                return all;
            };
            let page_was_empty = infos.is_empty();
            all.extend(infos);
            if page_was_empty || all.len() >= total {
                return all;
            }
        }
    }
}

/// What `/jsz` may still show.
struct JszRoom {
    assets: usize,
    bytes: usize,
    is_cut: bool,
}

impl JszRoom {
    /// Whether so many bytes more are shown.
    const fn take(&mut self, bytes: usize) -> bool {
        self.is_cut |= bytes > self.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        !self.is_cut
    }
}

/// What a consumer's filters add to an answer, about.
fn filter_bytes(info: &ConsumerInfo) -> usize {
    info.config.filter_subjects.iter().map(String::len).sum::<usize>() + ASSET_BYTES
}

impl JsView for View {
    fn logs(&self) -> Vec<JsLog> {
        self.logs.logs()
    }

    fn sample(&self, query: SampleQuery) -> BoxFuture<'_, JsSample> {
        Box::pin(async move { self.sample_of(&query).await })
    }

    fn totals(&self) -> BoxFuture<'_, JsTotals> {
        Box::pin(self.totals_of(None))
    }

    fn accounts(&self, query: JszQuery) -> BoxFuture<'_, (Vec<JsAccount>, bool)> {
        Box::pin(async move {
            let ids = self.accounts.ids(self.streams.read().accounts());
            let mut accounts = Vec::new();
            let (mut before, mut room) =
                (0, JszRoom { assets: query.assets_max, bytes: query.bytes_max, is_cut: false });
            for id in ids {
                let name = self.accounts.name_of(id);
                // With accounts of its own a configuration leaves the global one without users.
                let is_spare = id == AccountId::GLOBAL && !self.accounts.is_global_only();
                if is_spare && self.streams.read().count(id) == 0 {
                    continue;
                }
                if query.account.as_ref().is_some_and(|wanted| *wanted != name) {
                    continue;
                }
                before += 1;
                if before <= query.offset {
                    continue;
                }
                if accounts.len() >= query.limit {
                    break;
                }
                let totals = self.totals_of(Some(id)).await;
                let wants_streams = query.streams || query.consumers;
                let streams = if wants_streams {
                    self.streams_of(id, &query, &mut room).await
                } else {
                    Vec::new()
                };
                accounts.push(JsAccount { name, totals, streams });
            }
            (accounts, room.is_cut)
        })
    }

    fn health(&self) -> JsHealth {
        self.logs.health()
    }

    fn check<'a>(
        &'a self,
        account: &'a str,
        stream: Option<&'a str>,
        consumer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut ids = self.accounts.ids(self.streams.read().accounts()).into_iter();
            let id = ids
                .find(|id| account.is_empty() || self.accounts.name_of(*id) == account)
                .ok_or_else(|| format!("JetStream account {account:?} not found"))?;
            let Some(stream) = stream else { return Ok(()) };
            let entry = self
                .streams
                .entry(id, stream)
                .map_err(|_| format!("JetStream stream {stream:?} not found"))?;
            let Some(name) = consumer else { return Ok(()) };
            let op = Op::ConsumerInfo { id: entry.id, name: name.to_owned() };
            match self.calls.run(entry.engine, op).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("JetStream consumer {name:?} not available: {error}")),
            }
        })
    }

    fn waiting_inboxes<'a>(
        &'a self,
        account: &'a str,
        stream: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut ids = self.accounts.ids(self.streams.read().accounts()).into_iter();
            let id = ids.find(|id| self.accounts.name_of(*id) == account);
            let found = id.map(|id| self.streams.entry(id, stream));
            let Some(Ok(entry)) = found else { return Vec::new() };
            let op = Op::ConsumerInfo { id: entry.id, name: consumer.to_owned() };
            match self.calls.run(entry.engine, op).await {
                Ok(OpOutcome::Consumer(info)) => info.waiting_inboxes,
                _ => Vec::new(),
            }
        })
    }
}
