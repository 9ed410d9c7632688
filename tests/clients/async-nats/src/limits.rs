//! S12 to S18: stream limits, discard and retention policies, rollups, deny flags.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Stream};

use crate::harness::{
    Ctx, Outcome, body, check, durable, equal, expect_code, fetch_one, number, until,
};
use crate::scenarios;
use crate::streams::state;

scenarios! {
    "S12" => discard_old,
    "S13" => max_age,
    "S14" => refusals,
    "S15" => interest,
    "S16" => work_queue,
    "S17" => rollup,
    "S18" => deny_and_seal,
}

/// The payload numbers that are still in the stream, in order.
async fn kept(stream: &Stream) -> Outcome<Vec<usize>> {
    let s = state(stream).await?;
    let mut out = Vec::new();
    for seq in s.first_sequence..=s.last_sequence {
        if let Ok(msg) = stream.get_raw_message(seq).await {
            out.push(number(&msg.payload)?);
        }
    }
    Ok(out)
}

async fn messages(stream: &Stream) -> Outcome<u64> {
    Ok(state(stream).await?.messages)
}

async fn discard_old(c: &mut Ctx) -> Outcome {
    let by_msgs = c.stream("A", Config { max_messages: 5, ..Default::default() }).await?;
    c.put_many("s12a.x", 10).await?;
    equal(kept(&by_msgs).await?, [5, 6, 7, 8, 9], "max_msgs")?;

    let by_bytes = c.stream("B", Config { max_bytes: 2_000, ..Default::default() }).await?;
    for i in 0..10 {
        c.put("s12b.x", body(format!("{i:0500}"))).await?;
    }
    let bytes = state(&by_bytes).await?.bytes;
    check(bytes <= 2_000, format!("bytes {bytes}"))?;
    let left = kept(&by_bytes).await?;
    check((1..=4).contains(&left.len()), format!("kept {left:?}"))?;
    equal(&left, &(10 - left.len()..10).collect::<Vec<_>>(), "max_bytes keeps the newest")?;

    let by_subject =
        c.stream("C", Config { max_messages_per_subject: 2, ..Default::default() }).await?;
    for i in 0..10 {
        c.put(&format!("s12c.{}", i % 2), body(i)).await?;
    }
    equal(kept(&by_subject).await?, [6, 7, 8, 9], "max_msgs_per_subject")
}

async fn max_age(c: &mut Ctx) -> Outcome {
    let age = Duration::from_secs(4);
    let config = Config { max_age: age, duplicate_window: age, ..Default::default() };
    let stream = c.stream("", config).await?;
    c.put_many("s13.a", 3).await?;
    equal(messages(&stream).await?, 3, "messages at first")?;
    until("messages expire", async || Ok(messages(&stream).await? == 0)).await?;
    equal(state(&stream).await?.last_sequence, 3, "last_seq")
}

async fn refusals(c: &mut Ctx) -> Outcome {
    let new = || Config { discard: DiscardPolicy::New, ..Default::default() };
    c.stream("A", Config { max_message_size: 100, ..Default::default() }).await?;
    expect_code(c.try_put("s14a.x", vec![0; 101]).await, 10054)?;
    equal(c.put("s14a.x", vec![0; 100]).await?.sequence, 1, "at the limit")?;

    let by_msgs = c.stream("B", Config { max_messages: 2, ..new() }).await?;
    c.put_many("s14b.x", 2).await?;
    expect_code(c.try_put("s14b.x", body("x")).await, 10077)?;
    equal(kept(&by_msgs).await?, [0, 1], "max_msgs keeps the oldest")?;

    let by_bytes = c.stream("C", Config { max_bytes: 500, ..new() }).await?;
    c.put("s14c.x", vec![0; 200]).await?;
    expect_code(c.try_put("s14c.x", vec![0; 400]).await, 10077)?;
    equal(messages(&by_bytes).await?, 1, "max_bytes")?;

    c.stream("D", Config { max_messages_per_subject: 1, discard_new_per_subject: true, ..new() })
        .await?;
    c.put("s14d.x", body(0)).await?;
    expect_code(c.try_put("s14d.x", body(1)).await, 10077)?;
    equal(c.put("s14d.y", body(2)).await?.sequence, 2, "another subject")
}

async fn interest(c: &mut Ctx) -> Outcome {
    let stream =
        c.stream("", Config { retention: RetentionPolicy::Interest, ..Default::default() }).await?;
    equal(c.put("s15.a", body("nobody")).await?.sequence, 1, "sequence without interest")?;
    equal(messages(&stream).await?, 0, "stored without interest")?;
    let one = durable(&stream, "one", Default::default()).await?;
    let two = durable(&stream, "two", Default::default()).await?;
    c.put("s15.a", body("x")).await?;
    fetch_one(&one).await?.double_ack().await?;
    equal(messages(&stream).await?, 1, "after the first ack")?;
    fetch_one(&two).await?.double_ack().await?;
    until("gone after the second ack", async || Ok(messages(&stream).await? == 0)).await
}

async fn work_queue(c: &mut Ctx) -> Outcome {
    let stream = c
        .stream("", Config { retention: RetentionPolicy::WorkQueue, ..Default::default() })
        .await?;
    let filtered = |name: &str, filter: &str| pull::Config {
        durable_name: Some(name.to_owned()),
        filter_subject: filter.to_owned(),
        ..Default::default()
    };
    let a = stream.create_consumer(filtered("a", "s16.a.*")).await?;
    stream.create_consumer(filtered("b", "s16.b")).await?;
    expect_code(stream.create_consumer(filtered("all", "")).await, 10099)?;
    expect_code(stream.create_consumer(filtered("o", "s16.a.1")).await, 10100)?;
    c.put("s16.a.1", body("x")).await?;
    c.put("s16.b", body("y")).await?;
    fetch_one(&a).await?.double_ack().await?;
    until("acked message is gone", async || Ok(messages(&stream).await? == 1)).await?;
    let other = stream.get_last_raw_message_by_subject("s16.b").await?;
    equal(other.payload, body("y"), "the other one stays")
}

async fn rollup(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config { allow_rollup: true, ..Default::default() }).await?;
    let rolled = |how: &str, data: usize| {
        PublishMessage::build().header("Nats-Rollup", how).payload(body(data))
    };
    for i in 0..6 {
        c.put(&format!("s17.{}", i % 2), body(i)).await?;
    }
    c.try_put_msg("s17.0", rolled("sub", 6)).await?;
    equal(kept(&stream).await?, [1, 3, 5, 6], "rollup sub")?;
    c.try_put_msg("s17.1", rolled("all", 7)).await?;
    equal(kept(&stream).await?, [7], "rollup all")?;
    c.stream("X", Config::default()).await?;
    expect_code(c.try_put_msg("s17x.a", rolled("sub", 8)).await, 10111)
}

async fn deny_and_seal(c: &mut Ctx) -> Outcome {
    let deny =
        c.stream("A", Config { deny_delete: true, deny_purge: true, ..Default::default() }).await?;
    c.put("s18a.x", body("x")).await?;
    expect_code(deny.delete_message(1).await, 10057)?;
    expect_code(deny.purge().await, 10110)?;
    let open = c.stream("B", Config::default()).await?;
    c.put("s18b.x", body("x")).await?;
    let config = Config { sealed: true, ..open.get_info().await?.config };
    check(c.js.update_stream(config).await?.config.sealed, "sealed")?;
    expect_code(c.try_put("s18b.x", body("y")).await, 10109)?;
    equal(messages(&open).await?, 1, "messages")
}
