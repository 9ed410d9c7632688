//! P01 to P04, P12 to P23: pull consumers apart from redelivery.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config, ConsumerCreateStrictErrorKind, ConsumerUpdateErrorKind, Stream,
};
use futures_util::{StreamExt, TryStreamExt};

use crate::harness::{
    Ctx, Outcome, TIMEOUT, TIMEOUT_MS, body, check, durable, equal, expect_code, expect_err,
    fail, fetch, fetch_one, next, nothing_more, number, numbers, sequences, sleep_ms, until,
};
use crate::scenarios;

scenarios! {
    "P01" => explicit_ack,
    "P02" => no_wait,
    "P03" => expires,
    "P04" => max_bytes,
    "P12" => double_ack,
    "P13" => max_ack_pending,
    "P14" => filters,
    "P15" => headers_only,
    "P16" => deliver_policies,
    "P17" => ack_all_and_none,
    "P18" => ephemeral,
    "P19" => life_cycle,
    "P20" => exact_pending,
    "P21" => continuous,
    "P22" => deleted_while_waiting,
    "P23" => two_fetchers,
}

async fn pending(consumer: &PullConsumer) -> Outcome<u64> {
    Ok(consumer.get_info().await?.num_pending)
}

/// Waits until the (asynchronous) acks are counted, then compares exactly.
async fn acked_up_to(consumer: &PullConsumer, floor: u64, left: u64) -> Outcome {
    until("the ack floor", async || {
        let info = consumer.get_info().await?;
        Ok(info.ack_floor.stream_sequence == floor && info.num_ack_pending == 0)
    })
    .await?;
    equal(pending(consumer).await?, left, "num_pending")
}

async fn explicit_ack(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p01.a", 10).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let mut seq = 0;
    for batch in [4, 6] {
        let msgs = fetch(&consumer, batch, TIMEOUT_MS).await?;
        equal(msgs.len(), batch, "messages")?;
        for msg in msgs {
            seq += 1;
            equal(number(&msg.payload)?, seq as usize - 1, "message")?;
            let info = msg.info()?;
            equal((info.stream, info.consumer), ("P01", "c"), "names")?;
            equal((info.stream_sequence, info.consumer_sequence), (seq, seq), "sequences")?;
            equal((info.delivered, info.pending), (1, 10 - seq), "delivered, pending")?;
            msg.ack().await?;
        }
        acked_up_to(&consumer, seq, 10 - seq).await?;
    }
    Ok(())
}

async fn no_wait(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    for count in [0, 3] {
        c.put_many("p02.a", count).await?;
        let began = Instant::now();
        let got = consumer.fetch().max_messages(10).messages().await?.count().await;
        equal(got, count, "messages")?;
        check(began.elapsed() < TIMEOUT / 3, "took as long as a fetch that waits")?;
    }
    Ok(())
}

async fn expires(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p03.a", 3).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let began = Instant::now();
    equal(numbers(&fetch(&consumer, 10, 3_000).await?)?, [0, 1, 2], "messages")?;
    let took_ms = began.elapsed().as_millis();
    check((2_800..30_000).contains(&took_ms), format!("took {took_ms} ms"))
}

async fn max_bytes(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for _ in 0..10 {
        c.put("p04.a", vec![0; 1_000]).await?;
    }
    let consumer = durable(&stream, "c", Default::default()).await?;
    let mut messages = consumer.fetch().max_messages(10).max_bytes(3_500).messages().await?;
    let mut got = 0;
    // The client hands the status that ends such a batch out as an error.
    while let Some(Ok(_)) = messages.next().await {
        got += 1;
    }
    check((1..=3).contains(&got), format!("{got} messages"))?;
    equal(fetch(&consumer, 10 - got, TIMEOUT_MS).await?.len(), 10 - got, "the others")
}

async fn double_ack(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p12.a", 1).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    fetch_one(&consumer).await?.double_ack().await?;
    let info = consumer.get_info().await?;
    equal(
        (info.ack_floor.stream_sequence, info.num_ack_pending),
        (1, 0),
        "info after the double ack",
    )
}

async fn max_ack_pending(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p13.a", 10).await?;
    let consumer =
        durable(&stream, "c", pull::Config { max_ack_pending: 5, ..Default::default() }).await?;
    let first = fetch(&consumer, 10, 3_000).await?;
    equal(numbers(&first)?, [0, 1, 2, 3, 4], "first")?;
    for msg in first {
        msg.double_ack().await?;
    }
    equal(numbers(&fetch(&consumer, 5, TIMEOUT_MS).await?)?, [5, 6, 7, 8, 9], "second")
}

async fn filters(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 0..12 {
        c.put(&format!("p14.{}", ["a", "b", "c"][i % 3]), body(i)).await?;
    }
    let many = |subjects: &[&str]| pull::Config {
        filter_subjects: subjects.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let single = pull::Config { filter_subject: "p14.b".to_owned(), ..Default::default() };
    let one = durable(&stream, "one", single).await?;
    equal(pending(&one).await?, 4, "num_pending of one")?;
    equal(numbers(&fetch(&one, 4, TIMEOUT_MS).await?)?, [1, 4, 7, 10], "one filter")?;
    let two = durable(&stream, "two", many(&["p14.a", "p14.c"])).await?;
    equal(pending(&two).await?, 8, "num_pending of two")?;
    equal(numbers(&fetch(&two, 8, TIMEOUT_MS).await?)?, [0, 2, 3, 5, 6, 8, 9, 11], "two filters")?;
    let overlap = pull::Config { durable_name: Some("x".to_owned()), ..many(&["p14.a", "p14.>"]) };
    expect_code(stream.create_consumer(overlap).await, 10138)
}

async fn headers_only(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let msg = PublishMessage::build().header("Kept", "yes").payload(vec![0; 123].into());
    c.try_put_msg("p15.a", msg).await?;
    let consumer =
        durable(&stream, "c", pull::Config { headers_only: true, ..Default::default() }).await?;
    let msg = fetch_one(&consumer).await?;
    equal(msg.payload.len(), 0, "payload")?;
    let header =
        |name: &str| msg.headers.as_ref().and_then(|h| h.get(name)).map(ToString::to_string);
    equal(header("Nats-Msg-Size").as_deref(), Some("123"), "Nats-Msg-Size")?;
    equal(header("Kept").as_deref(), Some("yes"), "Kept")
}

async fn deliver_policies(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for tail in ["a", "b", "c", "a"] {
        c.put(&format!("p16.{tail}"), body("x")).await?;
    }
    sleep_ms(100).await;
    let middle = time::OffsetDateTime::now_utc();
    sleep_ms(100).await;
    for tail in ["b", "a"] {
        c.put(&format!("p16.{tail}"), body("x")).await?;
    }
    let cases: [(&str, DeliverPolicy, &[u64]); 5] = [
        ("all", DeliverPolicy::All, &[1, 2, 3, 4, 5, 6]),
        ("last", DeliverPolicy::Last, &[6]),
        ("seq", DeliverPolicy::ByStartSequence { start_sequence: 4 }, &[4, 5, 6]),
        ("time", DeliverPolicy::ByStartTime { start_time: middle }, &[5, 6]),
        ("per", DeliverPolicy::LastPerSubject, &[3, 5, 6]),
    ];
    for (name, deliver_policy, want) in cases {
        let config = pull::Config {
            deliver_policy,
            filter_subject: "p16.*".to_owned(),
            ..Default::default()
        };
        let consumer = durable(&stream, name, config).await?;
        equal(pending(&consumer).await?, want.len() as u64, "num_pending")?;
        equal(sequences(&fetch(&consumer, want.len(), TIMEOUT_MS).await?)?, want, name)?;
    }
    let config = pull::Config { deliver_policy: DeliverPolicy::New, ..Default::default() };
    let consumer = durable(&stream, "new", config).await?;
    nothing_more(&consumer, 300).await?;
    c.put("p16.z", body("x")).await?;
    equal(fetch_one(&consumer).await?.info()?.stream_sequence, 7, "new")
}

async fn ack_all_and_none(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p17.a", 10).await?;
    let policy = |ack_policy| pull::Config { ack_policy, ..Default::default() };
    let every = durable(&stream, "all", policy(AckPolicy::All)).await?;
    let msgs = fetch(&every, 10, TIMEOUT_MS).await?;
    equal(msgs.len(), 10, "ack all")?;
    msgs[4].double_ack().await?;
    let info = every.get_info().await?;
    equal((info.ack_floor.stream_sequence, info.num_ack_pending), (5, 5), "ack all")?;
    let none = durable(&stream, "none", policy(AckPolicy::None)).await?;
    equal(fetch(&none, 10, TIMEOUT_MS).await?.len(), 10, "ack none")?;
    let info = none.get_info().await?;
    equal((info.num_ack_pending, info.num_pending), (0, 0), "ack none")
}

/// The client names 10014 "consumer not found" instead of handing out the number.
async fn expect_no_consumer(stream: &Stream, name: &str) -> Outcome {
    let missing = stream.consumer_info(name).await;
    expect_err(missing, "10014", |e| e.kind() == ConsumerInfoErrorKind::NotFound)
}

async fn ephemeral(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let config = pull::Config { inactive_threshold: Duration::from_secs(1), ..Default::default() };
    let name = stream.create_consumer(config).await?.cached_info().name.clone();
    until("ephemeral consumer removed", async || {
        let names: Vec<String> = stream.consumer_names().try_collect().await?;
        Ok(!names.contains(&name))
    })
    .await?;
    expect_no_consumer(&stream, &name).await
}

async fn life_cycle(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let first = pull::Config {
        durable_name: Some("c".to_owned()),
        description: Some("first".to_owned()),
        ack_wait: Duration::from_secs(3),
        ..Default::default()
    };
    let made = stream.create_consumer(first.clone()).await?.get_info().await?;
    equal((made.name.as_str(), made.config.description.as_deref()), ("c", Some("first")), "made")?;
    equal(made.config.ack_wait, first.ack_wait, "ack_wait")?;
    durable(&stream, "d", Default::default()).await?;
    let mut names: Vec<String> = stream.consumer_names().try_collect().await?;
    names.sort();
    equal(names, ["c", "d"], "names")?;
    equal(stream.consumers().count().await, 2, "list")?;
    let second =
        pull::Config { description: Some("second".to_owned()), max_ack_pending: 7, ..first };
    stream.update_consumer(second.clone()).await?;
    let config = stream.consumer_info("c").await?.config;
    equal(
        (config.description.as_deref(), config.max_ack_pending),
        (Some("second"), 7),
        "after the update",
    )?;
    let policy = pull::Config { deliver_policy: DeliverPolicy::New, ..second.clone() };
    expect_code(stream.update_consumer(policy).await, 10012)?;
    // The client gives 10148 and 10149 kinds of their own instead of handing out the number.
    let third = pull::Config { description: Some("third".to_owned()), ..second };
    let refused = stream.create_consumer_strict(third).await;
    expect_err(refused, "10148", |e| e.kind() == ConsumerCreateStrictErrorKind::AlreadyExists)?;
    let missing = pull::Config { durable_name: Some("missing".to_owned()), ..Default::default() };
    let refused = stream.update_consumer(missing).await;
    expect_err(refused, "10149", |e| e.kind() == ConsumerUpdateErrorKind::DoesNotExist)?;
    check(stream.delete_consumer("c").await?.success, "delete")?;
    expect_no_consumer(&stream, "c").await?;
    expect_code(stream.delete_consumer("c").await, 10014)
}

async fn exact_pending(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 0..100 {
        c.put(&format!("p20.{}", i % 2), body(i)).await?;
    }
    let config = pull::Config { filter_subject: "p20.1".to_owned(), ..Default::default() };
    let consumer = durable(&stream, "c", config).await?;
    equal(consumer.cached_info().num_pending, 50, "at creation")?;
    for seq in (52..72).step_by(2) {
        stream.delete_message(seq).await?;
    }
    equal(pending(&consumer).await?, 40, "after the deletes")?;
    for (i, msg) in (0..).zip(fetch(&consumer, 10, TIMEOUT_MS).await?) {
        equal(msg.info()?.pending, 39 - i, "in the metadata")?;
    }
    equal(pending(&consumer).await?, 30, "after the partial read")?;
    stream.purge().sequence(80).filter("p20.1").await?;
    equal(pending(&consumer).await?, 11, "after the purge below sequence 80")?;
    stream.purge().filter("p20.1").await?;
    equal(pending(&consumer).await?, 0, "after the purge")
}

async fn continuous(c: &mut Ctx) -> Outcome {
    const COUNT: usize = 2_000;
    let stream = c.stream("", Config::default()).await?;
    c.put_async("p21.a", COUNT, body).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let mut messages = consumer.messages().await?;
    for i in 0..COUNT {
        let msg = next(&mut messages).await??;
        equal(number(&msg.payload)?, i, "message")?;
        msg.ack().await?;
    }
    acked_up_to(&consumer, COUNT as u64, 0).await
}

async fn deleted_while_waiting(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let began = Instant::now();
    let expires = TIMEOUT;
    let mut messages = consumer.batch().max_messages(5).expires(expires).messages().await?;
    sleep_ms(300).await;
    stream.delete_consumer("c").await?;
    if let Some(Ok(_)) = messages.next().await {
        return fail("a message from nowhere");
    }
    check(began.elapsed() < TIMEOUT / 2, "the fetch did not end early")
}

async fn fetch_all(consumer: PullConsumer) -> Outcome<Vec<usize>> {
    let mut got = Vec::new();
    loop {
        let msgs = fetch(&consumer, 20, 3_000).await?;
        if msgs.is_empty() {
            return Ok(got);
        }
        for msg in msgs {
            got.push(number(&msg.payload)?);
            msg.ack().await?;
        }
    }
}

async fn two_fetchers(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("p23.a", 500).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let (one, two) = tokio::join!(fetch_all(consumer.clone()), fetch_all(consumer));
    let mut all = [one?, two?].concat();
    all.sort_unstable();
    equal(all, (0..500).collect::<Vec<_>>(), "messages")
}
