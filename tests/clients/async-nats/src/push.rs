//! D01 to D07: push consumers, flow control, heartbeats, ordered consumers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PushConsumer, pull, push};
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::harness::{Ctx, Outcome, Stop, body, check, equal, next, number, until};
use crate::scenarios;

scenarios! {
    "D01" => durable,
    "D02" => deliver_group,
    "D03" [360] => flow_control,
    "D04" => heartbeats,
    "D05" [360] => ordered,
    "D06" [360] => five_megabytes,
    "D07" => ordered_filtered,
}

fn push_config(c: &Ctx) -> push::Config {
    push::Config {
        deliver_subject: c.nc.new_inbox(),
        durable_name: Some("c".to_owned()),
        ..Default::default()
    }
}

async fn durable(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    c.put_many("d01.a", 100).await?;
    let consumer = stream.create_consumer(push_config(c)).await?;
    let mut messages = consumer.messages().await?;
    for i in 0..100 {
        let msg = next(&mut messages).await??;
        equal(number(&msg.payload)?, i, "message")?;
        msg.ack().await?;
    }
    until("100 messages acked", async || Ok(consumer.get_info().await?.num_ack_pending == 0))
        .await?;
    let info = consumer.get_info().await?;
    equal((info.ack_floor.stream_sequence, info.push_bound), (100, true), "info")
}

/// Acks and gives what one member gets until all members have `all`, and what should not come then.
async fn member(consumer: PushConsumer, all: usize, seen: &AtomicUsize) -> Outcome<Vec<usize>> {
    let mut messages = consumer.messages().await?;
    let mut got = Vec::new();
    loop {
        match timeout(Duration::from_millis(700), messages.next()).await {
            Ok(Some(msg)) => {
                let msg = msg?;
                got.push(number(&msg.payload)?);
                seen.fetch_add(1, Ordering::Relaxed);
                msg.ack().await?;
            }
            Err(_) if seen.load(Ordering::Relaxed) < all => {}
            _ => return Ok(got),
        }
    }
}

async fn deliver_group(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let config = push::Config { deliver_group: Some("workers".to_owned()), ..push_config(c) };
    stream.create_consumer(config).await?;
    let mut consumers = Vec::new();
    for _ in 0..3 {
        let js = async_nats::jetstream::new(c.connect().await?);
        consumers.push(js.get_stream("D02").await?.get_consumer::<push::Config>("c").await?);
    }
    let mut consumers = consumers.into_iter();
    let publish = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        c.put_many("d02.a", 300).await
    };
    let seen = AtomicUsize::new(0);
    let mut run = || consumers.next().map(|consumer| member(consumer, 300, &seen));
    let (Some(a), Some(b), Some(d)) = (run(), run(), run()) else {
        unreachable!("three consumers were made")
    };
    let (published, a, b, d) = tokio::join!(publish, a, b, d);
    published?;
    let members = [a?, b?, d?];
    check(members.iter().all(|got| !got.is_empty()), "a member got nothing")?;
    let mut all = members.concat();
    all.sort_unstable();
    equal(all, (0..300).collect::<Vec<_>>(), "messages")
}

async fn flow_control(c: &mut Ctx) -> Outcome {
    const COUNT: usize = 40_000;
    let stream = c.stream("", Config::default()).await?;
    c.put_async("d03.a", COUNT, |i| body(format!("{i:0512}"))).await?;
    let config = push::Config {
        ack_policy: AckPolicy::None,
        flow_control: true,
        idle_heartbeat: Duration::from_secs(1),
        ..push_config(c)
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    for i in 0..COUNT {
        equal(number(&next(&mut messages).await??.payload)?, i, "message")?;
    }
    Ok(())
}

async fn heartbeats(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    let config = push::Config { idle_heartbeat: Duration::from_millis(200), ..push_config(c) };
    let mut sub = c.nc.subscribe(config.deliver_subject.clone()).await?;
    stream.create_consumer(config).await?;
    for _ in 0..3 {
        let msg = next(&mut sub).await?;
        equal(msg.status.map(|s| s.as_u16()), Some(100), "status")?;
        let header =
            |name: &str| msg.headers.as_ref().and_then(|h| h.get(name)).map(ToString::to_string);
        let seen = (header("Nats-Last-Consumer"), header("Nats-Last-Stream"));
        equal(seen, (Some("0".to_owned()), Some("0".to_owned())), "sequences")?;
    }
    Ok(())
}

async fn ordered(c: &mut Ctx) -> Outcome {
    const COUNT: usize = 200_000;
    let stream = c.stream("", Config::default()).await?;
    c.put_async("d05.a", COUNT, |i| body(format!("{i:064}"))).await?;
    let config = push::OrderedConfig { deliver_subject: c.nc.new_inbox(), ..Default::default() };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    for i in 0..COUNT {
        let msg = next(&mut messages).await??;
        equal(
            (msg.info()?.stream_sequence, number(&msg.payload)?),
            (i as u64 + 1, i),
            "sequence and payload",
        )?;
    }
    Ok(())
}

async fn five_megabytes(c: &mut Ctx) -> Outcome {
    const SIZE: usize = 5_000_000;
    let limit = c.nc.server_info().max_payload;
    if limit < SIZE {
        return Err(Stop::Skip(format!("the server's max_payload is {limit}")));
    }
    let stream = c.stream("", Config::default()).await?;
    let mut data = vec![0; SIZE];
    for i in 0..100_u64 {
        data[..8].copy_from_slice(&i.to_le_bytes());
        data[SIZE - 8..].copy_from_slice(&i.to_le_bytes());
        equal(c.put("d06.a", Bytes::copy_from_slice(&data)).await?.sequence, i + 1, "sequence")?;
    }
    // The pull form: the client keeps two pulls open, which together must stay below the
    // server's max_pending (64 MB).
    let consumer =
        stream.create_consumer(pull::OrderedConfig { max_batch: 4, ..Default::default() }).await?;
    let mut messages = consumer.messages().await?;
    for i in 0..100_u64 {
        let payload = next(&mut messages).await??.message.payload;
        equal(payload.len(), SIZE, "length")?;
        let mark = i.to_le_bytes();
        check(
            payload.starts_with(&mark) && payload.ends_with(&mark),
            format!("marks of message {i}"),
        )?;
    }
    equal(c.nc.connection_state(), State::Connected, "connection")?;
    equal(c.nc.statistics().connects.load(std::sync::atomic::Ordering::Relaxed), 1, "connects")
}

async fn ordered_filtered(c: &mut Ctx) -> Outcome {
    let stream = c.stream("", Config::default()).await?;
    for i in 0..20 {
        c.put(&format!("d07.{}", i % 2), body(i)).await?;
    }
    let config = pull::OrderedConfig {
        filter_subject: "d07.0".to_owned(),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: 11 },
        ..Default::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    for want in [10, 12, 14, 16, 18] {
        equal(number(&next(&mut messages).await??.payload)?, want, "stored message")?;
    }
    c.put("d07.1", body(20)).await?;
    c.put("d07.0", body(21)).await?;
    equal(number(&next(&mut messages).await??.payload)?, 21, "new message")
}
