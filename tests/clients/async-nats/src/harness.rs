//! The scenario registry, the bounded runner and small assertions shared by the async-nats scenarios.

use std::collections::VecDeque;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{self, PullConsumer};
use async_nats::jetstream::stream::{self, Stream};
use async_nats::jetstream::{self, publish::PublishAck};
use bytes::Bytes;
use futures_util::StreamExt;

/// How long anything may take that must come: machines may be slow. What comes late does not make a
/// scenario fail unless it says so; what must not come, or not too soon, does.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of a scenario for which the list names none.
pub const DEFAULT_LIMIT_S: u64 = 180;
/// Publishes in flight at once; the client's own limit is higher.
const PUBLISH_WINDOW: usize = 1_000;

/// Why a scenario ended early.
pub enum Stop {
    Fail(String),
    Skip(String),
}

pub type Outcome<T = ()> = Result<T, Stop>;

impl<E: Into<async_nats::Error>> From<E> for Stop {
    fn from(err: E) -> Self {
        let err: async_nats::Error = err.into();
        Self::Fail(err.to_string())
    }
}

type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One row of SCENARIOS.md.
pub struct Scenario {
    pub id: &'static str,
    pub limit_s: u64,
    pub run: for<'a> fn(&'a mut Ctx) -> Running<'a>,
}

/// Makes a table of scenarios: `"C01" => function` or `"D05" [90] => function` with a limit in seconds.
#[macro_export]
macro_rules! scenarios {
    ($($id:literal $([$limit:literal])? => $run:ident,)*) => {
        pub const SCENARIOS: &[$crate::harness::Scenario] = &[$($crate::harness::Scenario {
            id: $id,
            limit_s: [$($limit,)? $crate::harness::DEFAULT_LIMIT_S][0],
            run: |ctx| Box::pin($run(ctx)),
        },)*];
    };
}

pub fn fail<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Stop::Fail(text.into()))
}

pub fn check(cond: bool, what: impl Display) -> Outcome {
    if cond { Ok(()) } else { fail(what.to_string()) }
}

pub fn equal<A: Debug + PartialEq<B>, B: Debug>(got: A, want: B, what: &str) -> Outcome {
    if got == want {
        return Ok(());
    }
    fail(format!("{what}: got {}, want {}", short(&got), short(&want)))
}

fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take(200).collect()
}

/// The call must fail with this JetStream err_code; the client puts it into the text of every such error.
pub fn expect_code<T, E: Display>(result: Result<T, E>, code: u32) -> Outcome {
    match result {
        Ok(_) => fail(format!("error {code} expected, the call succeeded")),
        Err(e) => {
            let text = e.to_string();
            check(
                text.contains(&format!("error code {code})")),
                format!("error {code} expected, got {text}"),
            )
        }
    }
}

/// The call must fail and its error satisfy the predicate.
pub fn expect_err<T, E: Display>(
    result: Result<T, E>,
    what: &str,
    is: impl Fn(&E) -> bool,
) -> Outcome {
    match result {
        Ok(_) => fail(format!("{what} expected, the call succeeded")),
        Err(e) => check(is(&e), format!("{what} expected, got {e}")),
    }
}

/// Polls a predicate until it is true.
pub async fn until<F, Fut>(what: &str, mut probe: F) -> Outcome
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Outcome<bool>>,
{
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if probe().await? {
            return Ok(());
        }
        sleep_ms(20).await;
    }
    fail(format!("not within {TIMEOUT:?}: {what}"))
}

pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The next item, which must come.
pub async fn next<S: StreamExt + Unpin>(stream: &mut S) -> Outcome<S::Item> {
    match tokio::time::timeout(TIMEOUT, stream.next()).await {
        Ok(Some(item)) => Ok(item),
        Ok(None) => fail("the stream ended"),
        Err(_) => fail(format!("nothing within {TIMEOUT:?}")),
    }
}

/// Waits until the server has seen all that was sent on this connection; the client's `flush` only
/// empties its own buffer.
pub async fn settle(nc: &async_nats::Client) -> Outcome {
    let inbox = nc.new_inbox();
    let mut sub = nc.subscribe(inbox.clone()).await?;
    nc.publish(inbox, Bytes::new()).await?;
    next(&mut sub).await?;
    Ok(())
}

pub fn number(data: &[u8]) -> Outcome<usize> {
    Ok(std::str::from_utf8(data)?.parse::<usize>()?)
}

pub fn body(value: impl Display) -> Bytes {
    Bytes::from(value.to_string())
}

/// [`TIMEOUT`] where milliseconds are wanted.
pub const TIMEOUT_MS: u64 = TIMEOUT.as_secs() * 1000;

/// A connection that gives the server time.
pub async fn connect(url: &str) -> Outcome<async_nats::Client> {
    let options = async_nats::ConnectOptions::new();
    let options = options.connection_timeout(TIMEOUT).request_timeout(Some(TIMEOUT));
    Ok(options.connect(url).await?)
}

/// One scenario's connections, and the streams to delete at its end.
pub struct Ctx {
    pub id: &'static str,
    pub low: String,
    pub nc: async_nats::Client,
    pub js: jetstream::Context,
    url: String,
    streams: Vec<String>,
}

impl Ctx {
    async fn open(url: &str, id: &'static str) -> Outcome<Self> {
        let nc = connect(url).await?;
        let mut js = jetstream::new(nc.clone());
        js.set_timeout(TIMEOUT);
        Ok(Self { id, low: id.to_lowercase(), nc, js, url: url.to_owned(), streams: Vec::new() })
    }

    pub async fn connect(&self) -> Outcome<async_nats::Client> {
        connect(&self.url).await
    }

    pub fn owns(&mut self, stream: &str) {
        self.streams.push(stream.to_owned());
    }

    /// Creates a stream of this scenario; name and subjects are filled in if empty.
    pub async fn stream(&mut self, suffix: &str, mut config: stream::Config) -> Outcome<Stream> {
        config.name = format!("{}{suffix}", self.id);
        if config.subjects.is_empty() {
            config.subjects = vec![format!("{}.>", config.name.to_lowercase())];
        }
        self.owns(&config.name);
        Ok(self.js.create_stream(config).await?)
    }

    pub async fn put(&self, subject: &str, data: impl Into<Bytes>) -> Outcome<PublishAck> {
        Ok(self.try_put(subject, data).await?)
    }

    pub async fn try_put(
        &self,
        subject: &str,
        data: impl Into<Bytes>,
    ) -> Result<PublishAck, jetstream::context::PublishError> {
        self.js.publish(subject.to_owned(), data.into()).await?.await
    }

    pub async fn try_put_msg(
        &self,
        subject: &str,
        msg: jetstream::message::PublishMessage,
    ) -> Result<PublishAck, jetstream::context::PublishError> {
        self.js.send_publish(subject.to_owned(), msg).await?.await
    }

    /// Publishes the numbers 0 to count-1 synchronously.
    pub async fn put_many(&self, subject: &str, count: usize) -> Outcome {
        for i in 0..count {
            self.put(subject, body(i)).await?;
        }
        Ok(())
    }

    /// Publishes asynchronously; every ack must carry the next sequence, beginning with 1.
    pub async fn put_async(
        &self,
        subject: &str,
        count: usize,
        data: impl Fn(usize) -> Bytes,
    ) -> Outcome {
        let mut window = VecDeque::new();
        let mut acked = 0;
        for i in 0..count {
            if window.len() == PUBLISH_WINDOW {
                expect_next_ack(window.pop_front(), &mut acked).await?;
            }
            window.push_back(self.js.publish(subject.to_owned(), data(i)).await?);
        }
        while !window.is_empty() {
            expect_next_ack(window.pop_front(), &mut acked).await?;
        }
        Ok(())
    }

    async fn close(self) {
        for name in &self.streams {
            let _ = tokio::time::timeout(TIMEOUT, self.js.delete_stream(name)).await;
        }
        let _ = self.nc.drain().await;
    }
}

async fn expect_next_ack(
    ack: Option<jetstream::context::PublishAckFuture>,
    acked: &mut u64,
) -> Outcome {
    let Some(ack) = ack else { return Ok(()) };
    *acked += 1;
    equal(ack.await?.sequence, *acked, "sequence of an ack")
}

pub type Msg = jetstream::Message;

/// Creates a durable pull consumer.
pub async fn durable(
    stream: &Stream,
    name: &str,
    mut config: consumer::pull::Config,
) -> Outcome<PullConsumer> {
    config.durable_name = Some(name.to_owned());
    Ok(stream.create_consumer(config).await?)
}

/// Fetches up to `batch` messages, waiting at most `wait_ms` for all of them.
pub async fn fetch(consumer: &PullConsumer, batch: usize, wait_ms: u64) -> Outcome<Vec<Msg>> {
    let expires = Duration::from_millis(wait_ms);
    let mut messages = consumer.batch().max_messages(batch).expires(expires).messages().await?;
    let mut got = Vec::new();
    while let Some(msg) = messages.next().await {
        got.push(msg?);
    }
    Ok(got)
}

pub async fn fetch_one(consumer: &PullConsumer) -> Outcome<Msg> {
    match fetch(consumer, 1, TIMEOUT_MS).await?.pop() {
        Some(msg) => Ok(msg),
        None => fail(format!("no message within {TIMEOUT:?}")),
    }
}

pub async fn nothing_more(consumer: &PullConsumer, within_ms: u64) -> Outcome {
    match fetch(consumer, 1, within_ms).await?.pop() {
        Some(msg) => fail(format!("unexpected message {:?}", msg.info())),
        None => Ok(()),
    }
}

pub fn numbers(msgs: &[Msg]) -> Outcome<Vec<usize>> {
    msgs.iter().map(|m| number(&m.payload)).collect()
}

pub fn sequences(msgs: &[Msg]) -> Outcome<Vec<u64>> {
    msgs.iter().map(|m| Ok(m.info()?.stream_sequence)).collect()
}

/// What became of a scenario.
#[derive(PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// Runs one scenario within its limit and prints its line.
pub async fn run_one(url: &str, scenario: &Scenario) -> Verdict {
    let began = Instant::now();
    let limit = Duration::from_secs(scenario.limit_s);
    let outcome = match Ctx::open(url, scenario.id).await {
        Err(stop) => Err(stop),
        Ok(mut ctx) => {
            let outcome = match tokio::time::timeout(limit, (scenario.run)(&mut ctx)).await {
                Ok(outcome) => outcome,
                Err(_) => fail(format!("timeout after {} s", scenario.limit_s)),
            };
            ctx.close().await;
            outcome
        }
    };
    let (verdict, word, tail) = match outcome {
        Ok(()) => (Verdict::Passed, "ok", began.elapsed().as_millis().to_string()),
        Err(Stop::Skip(why)) => (Verdict::Skipped, "skip", why),
        Err(Stop::Fail(why)) => (Verdict::Failed, "FAIL", why.replace('\n', " ")),
    };
    println!("{word} {} {tail}", scenario.id);
    verdict
}
