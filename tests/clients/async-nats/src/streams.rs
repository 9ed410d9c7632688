//! S01 to S11, S19, S20: stream life cycle, publishing, reading single messages, purge.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    Config, DirectGetErrorKind, LastRawMessageErrorKind, State, StorageType, Stream,
};
use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::harness::{
    Ctx, Outcome, TIMEOUT_MS, body, check, durable, equal, expect_code, expect_err, fetch,
    numbers, sleep_ms,
};
use crate::scenarios;

scenarios! {
    "S01" => account_info,
    "S02" => life_cycle,
    "S03" => create_errors,
    "S04" => update_errors,
    "S05" => publish_sync,
    "S06" => publish_async,
    "S07" => dedup,
    "S08" => expected,
    "S09" => get_and_delete,
    "S10" => direct_get,
    "S11" => purge,
    "S19" => subjects_in_state,
    "S20" => memory_storage,
}

pub async fn state(stream: &Stream) -> Outcome<State> {
    Ok(stream.get_info().await?.state)
}

fn config(name: &str, subjects: &[&str]) -> Config {
    let subjects = subjects.iter().map(ToString::to_string).collect();
    Config { name: name.to_owned(), subjects, ..Default::default() }
}

async fn account_info(c: &mut Ctx) -> Outcome {
    let before = c.js.query_account().await?;
    let stream = c.stream("", Config::default()).await?;
    for _ in 0..3 {
        c.put("s01.a", vec![0; 100]).await?;
    }
    durable(&stream, "c", Default::default()).await?;
    let after = c.js.query_account().await?;
    equal(after.streams, before.streams + 1, "streams")?;
    equal(after.consumers, before.consumers + 1, "consumers")?;
    check(
        after.storage >= before.storage + 300,
        format!("storage {} -> {}", before.storage, after.storage),
    )?;
    check(after.requests.total >= before.requests.total, "api.total")
}

async fn life_cycle(c: &mut Ctx) -> Outcome {
    let mut first = config("S02", &["s02.a", "s02.b"]);
    first.description = Some("first".to_owned());
    let stream = c.stream("", first).await?;
    let info = stream.get_info().await?;
    equal(info.config.description.as_deref(), Some("first"), "description")?;
    equal(&info.config.subjects, &["s02.a", "s02.b"], "subjects")?;
    equal((info.state.messages, info.state.last_sequence), (0, 0), "empty state")?;
    let mut second = info.config;
    second.description = Some("second".to_owned());
    second.subjects.push("s02.c".to_owned());
    let updated = c.js.update_stream(second).await?;
    equal(updated.config.description.as_deref(), Some("second"), "description after update")?;
    equal(c.put("s02.c", body("x")).await?.sequence, 1, "sequence on the new subject")?;
    equal(c.js.stream_by_subject("s02.c").await?, "S02", "name by subject")?;
    let names: Vec<String> = c.js.stream_names().try_collect().await?;
    check(names.contains(&"S02".to_owned()), "not in the names")?;
    let list: Vec<_> = c.js.streams().try_collect().await?;
    check(list.iter().any(|info| info.config.name == "S02"), "not in the list")?;
    check(c.js.delete_stream("S02").await?.success, "delete")?;
    expect_code(c.js.get_stream("S02").await, 10059)?;
    expect_code(c.js.delete_stream("S02").await, 10059)
}

async fn create_errors(c: &mut Ctx) -> Outcome {
    c.stream("", Config { max_messages: 10, ..Default::default() }).await?;
    let same = |max_messages| Config { max_messages, ..config("S03", &["s03.>"]) };
    c.js.create_stream(same(10)).await?;
    expect_code(c.js.create_stream(same(11)).await, 10058)?;
    c.owns("S03X");
    expect_code(c.js.create_stream(config("S03X", &["s03.a"])).await, 10065)?;
    let (max_age, duplicate_window) = (Duration::from_secs(1), Duration::from_secs(2));
    let bad = Config { max_age, duplicate_window, ..config("S03X", &["s03x"]) };
    expect_code(c.js.create_stream(bad).await, 10052)
}

async fn update_errors(c: &mut Ctx) -> Outcome {
    c.stream("", Config::default()).await?;
    c.stream("X", Config::default()).await?;
    // The client names 10059 "stream not found" here instead of handing out the number.
    let missing = c.js.update_stream(config("S04MISSING", &["s04m"])).await;
    expect_err(missing, "10059", |e| e.kind() == CreateStreamErrorKind::NotFound)?;
    let memory = Config { storage: StorageType::Memory, ..config("S04", &["s04.>"]) };
    expect_code(c.js.update_stream(memory).await, 10052)?;
    expect_code(c.js.update_stream(config("S04", &["s04.>", "s04x.a"])).await, 10065)
}

async fn publish_sync(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 1..=20 {
        let ack = c.put("s05.a", body(i)).await?;
        equal((ack.stream.as_str(), ack.sequence, ack.duplicate), ("S05", i, false), "ack")?;
    }
    let s = state(&stream).await?;
    equal((s.messages, s.first_sequence, s.last_sequence), (20, 1, 20), "state")?;
    let refused = c.try_put("s05none", body("x")).await;
    expect_err(refused, "no stream", |e| e.kind() == PublishErrorKind::StreamNotFound)
}

async fn publish_async(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_async("s06.a", 10_000, body).await?;
    equal(state(&stream).await?.messages, 10_000, "messages")
}

async fn dedup(c: &mut Ctx) -> Outcome {
    let window = Config { duplicate_window: Duration::from_secs(5), ..Default::default() };
    let stream = c.stream("", window).await?;
    let put = |data| PublishMessage::build().message_id("one").payload(body(data));
    let ack = c.try_put_msg("s07.a", put(1)).await?;
    equal((ack.sequence, ack.duplicate), (1, false), "first")?;
    let ack = c.try_put_msg("s07.a", put(2)).await?;
    equal((ack.sequence, ack.duplicate), (1, true), "second")?;
    sleep_ms(5_500).await;
    let ack = c.try_put_msg("s07.a", put(3)).await?;
    equal((ack.sequence, ack.duplicate), (2, false), "after the window")?;
    equal(state(&stream).await?.messages, 2, "messages")
}

async fn expected(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let msg = PublishMessage::build;
    c.try_put_msg("s08.a", msg().message_id("m1")).await?;
    c.try_put_msg("s08.b", msg().message_id("m2")).await?;
    expect_code(c.try_put_msg("s08.a", msg().expected_stream("OTHER")).await, 10060)?;
    expect_code(c.try_put_msg("s08.a", msg().expected_last_sequence(1)).await, 10071)?;
    expect_code(c.try_put_msg("s08.a", msg().expected_last_message_id("m1")).await, 10070)?;
    expect_code(c.try_put_msg("s08.a", msg().expected_last_subject_sequence(2)).await, 10071)?;
    equal(state(&stream).await?.messages, 2, "messages after the refusals")?;
    let right = [
        msg().expected_stream("S08"),
        msg().expected_last_sequence(3),
        msg().expected_last_subject_sequence(4),
        msg().message_id("m6"),
        msg().expected_last_message_id("m6"),
    ];
    for (seq, one) in (3..).zip(right) {
        equal(c.try_put_msg("s08.a", one).await?.sequence, seq, "sequence")?;
    }
    Ok(())
}

fn expect_msg(msg: &StreamMessage, seq: u64, subject: &str, data: &str) -> Outcome {
    equal(
        (msg.sequence, msg.subject.as_str(), msg.payload.clone()),
        (seq, subject, Bytes::from(data.to_owned())),
        "message",
    )
}

async fn get_and_delete(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 1..=3 {
        let msg = PublishMessage::build()
            .header("N", i.to_string().as_str())
            .payload(body(format!("body {i}")));
        c.try_put_msg(&format!("s09.{}", i % 2), msg).await?;
    }
    let msg = stream.get_raw_message(2).await?;
    expect_msg(&msg, 2, "s09.0", "body 2")?;
    equal(msg.headers.get("N").map(ToString::to_string).as_deref(), Some("2"), "header")?;
    let age = time::OffsetDateTime::now_utc() - msg.time;
    check(age.abs() < time::Duration::MINUTE, format!("time {}", msg.time))?;
    expect_msg(&stream.get_last_raw_message_by_subject("s09.1").await?, 3, "s09.1", "body 3")?;
    check(stream.delete_message(2).await?, "delete")?;
    // The client names 10037 "no message found" instead of handing out the number.
    let gone = |e: &async_nats::jetstream::stream::RawMessageError| {
        e.kind() == LastRawMessageErrorKind::NoMessageFound
    };
    expect_err(stream.get_raw_message(2).await, "10037", gone)?;
    expect_code(stream.delete_message(2).await, 10043)?;
    expect_err(stream.get_raw_message(99).await, "10037", gone)?;
    let s = stream.info_builder().with_deleted(true).fetch().await?.info.state;
    equal((s.messages, s.deleted_count, s.deleted), (2, Some(1), Some(vec![2])), "state")
}

async fn direct_get(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config { allow_direct: true, ..Default::default() }).await?;
    for i in 1..=4 {
        c.put(&format!("s10.{}", i % 2), body(format!("body {i}"))).await?;
    }
    expect_msg(&stream.direct_get(2).await?, 2, "s10.0", "body 2")?;
    expect_msg(&stream.direct_get_last_for_subject("s10.1").await?, 3, "s10.1", "body 3")?;
    expect_msg(&stream.direct_get_next_for_subject("s10.0", Some(3)).await?, 4, "s10.0", "body 4")?;
    let missing = |e: &async_nats::jetstream::stream::DirectGetError| {
        e.kind() == DirectGetErrorKind::NotFound
    };
    expect_err(stream.direct_get(99).await, "not found", missing)?;
    expect_err(stream.direct_get_last_for_subject("s10.none").await, "not found", missing)
}

async fn purge(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 1..=10 {
        c.put(&format!("s11.{}", i % 2), body("x")).await?;
    }
    let expect = async |what, want: (u64, u64, u64)| {
        let s = state(&stream).await?;
        equal((s.messages, s.first_sequence, s.last_sequence), want, what)
    };
    stream.purge().filter("s11.0").await?;
    expect("after the filter", (5, 1, 10)).await?;
    stream.purge().sequence(4).await?;
    expect("after the sequence", (3, 5, 10)).await?;
    stream.purge().keep(2).await?;
    expect("after keep", (2, 7, 10)).await?;
    equal(stream.purge().await?.purged, 2, "purged")?;
    expect("after all", (0, 11, 10)).await
}

async fn subjects_in_state(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for subject in ["s19.a.1", "s19.a.2", "s19.b"] {
        c.put(subject, body("x")).await?;
    }
    let info = stream.info_with_subjects("s19.a.*").await?;
    equal(info.info.state.subjects_count, 3, "num_subjects")?;
    let mut subjects: Vec<(String, usize)> = info.try_collect().await?;
    subjects.sort();
    equal(subjects, [("s19.a.1".to_owned(), 1), ("s19.a.2".to_owned(), 1)], "subjects")
}

async fn memory_storage(c: &mut Ctx) -> Outcome {
    let stream =
        c.stream("", Config { storage: StorageType::Memory, ..Default::default() }).await?;
    c.put_many("s20.a", 100).await?;
    let consumer = durable(&stream, "c", Default::default()).await?;
    let got = numbers(&fetch(&consumer, 100, TIMEOUT_MS).await?)?;
    equal(got, (0..100).collect::<Vec<_>>(), "messages")?;
    equal(stream.get_info().await?.config.storage, StorageType::Memory, "storage")
}
