//! The JetStream workloads driven by the NATS project's own client for Rust, so that the numbers
//! of a client that people use stand beside those of the lean one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream::consumer::{PullConsumer, pull, push};
use async_nats::jetstream::context::{ContextBuilder, PublishAckFuture};
use async_nats::jetstream::{Context, Message};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::runtime::Runtime;

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{RunReport, Tally};
use crate::workload::consumer::{AckMode, OrderCheck};
use crate::workload::js_pub::JsPub;
use crate::workload::js_read::{JsRead, ReadMode};

/// Buffered messages of a subscription of the client; a batch must fit.
const SUBSCRIPTION_CAPACITY: usize = 64 * 1024;

/// How long a fetch waits for its messages.
const FETCH_EXPIRES: Duration = Duration::from_secs(30);

fn failed(err: impl std::fmt::Display) -> BenchError {
    BenchError::AsyncNats(err.to_string())
}

/// One connection in the runtime that all connections of a run share.
struct Connection {
    runtime: Arc<Runtime>,
    client: Client,
}

fn runtime() -> Result<Arc<Runtime>, BenchError> {
    Runtime::new().map(Arc::new).map_err(failed)
}

fn connect(runtime: &Arc<Runtime>, target: &Target) -> Result<Connection, BenchError> {
    let Some(server) = target.options.servers.first() else {
        return Err(BenchError::Usage("no server address".into()));
    };
    if target.options.identity.is_some() || target.options.tls.is_wanted() || server.tls {
        let text = "--client async-nats takes a user and password or a token, and no TLS";
        return Err(BenchError::Usage(text.into()));
    }
    let (own, shared) = (&server.credentials, &target.options.credentials);
    let anonymous = own.user.is_none() && own.token.is_none();
    let login = if anonymous { shared } else { own };
    let mut options = async_nats::ConnectOptions::new()
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .request_timeout(Some(target.timeout));
    if let Some(token) = &login.token {
        options = options.token(token.clone());
    } else if let Some(user) = &login.user {
        options =
            options.user_and_password(user.clone(), login.password.clone().unwrap_or_default());
    }
    let client = runtime.block_on(options.connect(server.to_string())).map_err(failed)?;
    Ok(Connection { runtime: runtime.clone(), client })
}

/// [`JsPub::run`] with async-nats.
///
/// # Errors
/// Like [`JsPub::run`].
pub fn publish(workload: &JsPub, target: &Target) -> Result<RunReport, BenchError> {
    let runtime = runtime()?;
    workload.run_with(
        target,
        |_| connect(&runtime, target),
        |index, connection, tally| {
            let count = share(workload.msgs, workload.clients, index);
            // The library starts a task of its own when it makes a context.
            let _inside = connection.runtime.enter();
            let publisher = Publisher::new(workload, index, &connection.client, target);
            connection.runtime.block_on(publisher.run(count, tally))
        },
    )
}

struct Publisher<'a> {
    plan: &'a JsPub,
    context: Context,
    payload: Payload,
    pool: Bytes,
    window: VecDeque<(Instant, PublishAckFuture)>,
    last_seq: u64,
}

impl<'a> Publisher<'a> {
    fn new(plan: &'a JsPub, index: usize, client: &Client, target: &Target) -> Self {
        let payload = Payload::new(plan.size, index as u64);
        let pool = Bytes::copy_from_slice(payload.pool());
        let context = ContextBuilder::new()
            .timeout(target.timeout)
            .ack_timeout(target.timeout)
            .max_ack_inflight(plan.window + 1)
            .build(client.clone());
        let window = VecDeque::with_capacity(plan.window);
        Self { plan, context, payload, pool, window, last_seq: 0 }
    }

    async fn run(mut self, count: u64, tally: &mut Tally) -> Result<(), BenchError> {
        tally.started = Instant::now();
        for number in 0..count {
            if self.window.len() == self.plan.window {
                self.await_ack(tally).await;
            }
            let body = self.pool.slice(self.payload.range(number));
            let sent = Instant::now();
            let subject = self.plan.stream.subject.clone();
            let ack = self.context.publish(subject, body).await.map_err(failed)?;
            self.window.push_back((sent, ack));
        }
        while !self.window.is_empty() {
            self.await_ack(tally).await;
        }
        tally.finished = Instant::now();
        tally.bytes = tally.msgs * self.plan.size as u64;
        Ok(())
    }

    async fn await_ack(&mut self, tally: &mut Tally) {
        let Some((sent, ack)) = self.window.pop_front() else { return };
        match ack.await {
            Err(err) => tally.error(|| err.to_string()),
            Ok(ack) if ack.stream != self.plan.stream.name || ack.duplicate => {
                tally.error(|| format!("{ack:?}"));
            }
            Ok(ack) if ack.sequence <= self.last_seq => {
                tally.error(|| format!("sequence {} after {}", ack.sequence, self.last_seq));
            }
            Ok(ack) => {
                self.last_seq = ack.sequence;
                tally.count(1);
                tally.latencies.record(sent.elapsed());
            }
        }
    }
}

/// [`JsRead::run`] with async-nats.
///
/// # Errors
/// Like [`JsRead::run`].
pub fn read(workload: &JsRead, target: &Target) -> Result<RunReport, BenchError> {
    let runtime = runtime()?;
    let unclaimed = AtomicU64::new(workload.msgs);
    workload.run_with(
        target,
        |_| connect(&runtime, target),
        |_, connection, tally| {
            let _inside = connection.runtime.enter();
            let reader = AsyncReader::new(workload, &connection.client, target);
            connection.runtime.block_on(reader.run(&unclaimed, tally))
        },
    )
}

struct AsyncReader<'a> {
    plan: &'a JsRead,
    context: Context,
    client: Client,
    check: OrderCheck,
}

impl<'a> AsyncReader<'a> {
    fn new(plan: &'a JsRead, client: &Client, target: &Target) -> Self {
        let context = ContextBuilder::new().timeout(target.timeout).build(client.clone());
        let gapless = plan.mode.is_ordered() || plan.clients == 1;
        Self { plan, context, client: client.clone(), check: OrderCheck::new(gapless) }
    }

    async fn run(mut self, unclaimed: &AtomicU64, tally: &mut Tally) -> Result<(), BenchError> {
        match self.plan.mode {
            ReadMode::Consume => self.consume(unclaimed, tally).await?,
            ReadMode::Fetch => self.fetch(unclaimed, tally).await?,
            ReadMode::OrderedPush => self.ordered_push(tally).await?,
            ReadMode::OrderedPull => self.ordered_pull(tally).await?,
        }
        self.client.flush().await.map_err(failed)
    }

    async fn durable(&self) -> Result<PullConsumer, BenchError> {
        let (name, stream) = (&self.plan.consumer, &self.plan.stream.name);
        self.context.get_consumer_from_stream(name, stream).await.map_err(failed)
    }

    async fn consume(
        &mut self,
        unclaimed: &AtomicU64,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let consumer = self.durable().await?;
        let batch = self.plan.batch;
        let builder = consumer.stream().max_messages_per_batch(batch);
        let mut messages = builder.messages().await.map_err(failed)?;
        // The library decides when to pull, so shares are claimed message by message.
        while claim(unclaimed, 1) > 0 {
            self.next(&mut messages, tally).await?;
        }
        Ok(())
    }

    async fn fetch(&mut self, unclaimed: &AtomicU64, tally: &mut Tally) -> Result<(), BenchError> {
        let consumer = self.durable().await?;
        loop {
            let count = claim(unclaimed, self.plan.batch as u64);
            if count == 0 {
                return Ok(());
            }
            let asked = Instant::now();
            let builder = consumer.batch().max_messages(count as usize).expires(FETCH_EXPIRES);
            let mut messages = builder.messages().await.map_err(failed)?;
            for _ in 0..count {
                let message = messages.next().await.ok_or_else(|| failed("a fetch fell short"))?;
                self.receive(message.map_err(failed)?, tally).await?;
            }
            tally.latencies.record(asked.elapsed());
        }
    }

    async fn ordered_push(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let deliver_subject = self.client.new_inbox();
        let config = push::OrderedConfig { deliver_subject, ..Default::default() };
        let consumer = self.context.create_consumer_on_stream(config, &self.plan.stream.name);
        let mut messages = consumer.await.map_err(failed)?.messages().await.map_err(failed)?;
        for _ in 0..self.plan.msgs {
            self.next(&mut messages, tally).await?;
        }
        Ok(())
    }

    async fn ordered_pull(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let config = pull::OrderedConfig::default();
        let consumer = self.context.create_consumer_on_stream(config, &self.plan.stream.name);
        let mut messages = consumer.await.map_err(failed)?.messages().await.map_err(failed)?;
        for _ in 0..self.plan.msgs {
            self.next(&mut messages, tally).await?;
        }
        Ok(())
    }

    async fn next<E: std::fmt::Display>(
        &mut self,
        messages: &mut (impl Stream<Item = Result<Message, E>> + Unpin),
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let message = messages.next().await.ok_or_else(|| failed("the messages ended early"))?;
        self.receive(message.map_err(failed)?, tally).await
    }

    async fn receive(&mut self, message: Message, tally: &mut Tally) -> Result<(), BenchError> {
        tally.count(1);
        tally.bytes += message.payload.len() as u64;
        if let Err(what) = self.check.next(message.reply.as_ref().map(|reply| reply.as_bytes())) {
            tally.error(|| what);
        }
        if self.plan.mode.is_ordered() || self.plan.ack == AckMode::None {
            return Ok(());
        }
        message.ack().await.map_err(failed)
    }
}

/// Takes up to `count` of what is left.
fn claim(unclaimed: &AtomicU64, count: u64) -> u64 {
    let take = |left: u64| Some(left.saturating_sub(count));
    let before = unclaimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    before.map_or(0, |left| left.min(count))
}
