//! P05 to P11: nak, term, in-progress, ack wait, max_deliver, backoff.

use std::time::{Duration, Instant};

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::Config;

use crate::harness::{
    Ctx, Msg, Outcome, TIMEOUT, body, check, durable, equal, fetch_one, next, nothing_more,
    sleep_ms,
};
use crate::scenarios;

scenarios! {
    "P05" => nak,
    "P06" => nak_delay,
    "P07" => term,
    "P08" => in_progress,
    "P09" => ack_wait,
    "P10" => max_deliver,
    "P11" => backoff,
}

/// A stream with one message, its consumer, and the first delivery.
async fn one_message(c: &mut Ctx, config: pull::Config) -> Outcome<(PullConsumer, Msg)> {
    let stream = c.stream("", Config::default()).await?;
    c.put(&format!("{}.a", c.low), body("x")).await?;
    let consumer = durable(&stream, "c", config).await?;
    let msg = fetch_one(&consumer).await?;
    equal(msg.info()?.delivered, 1, "first delivery")?;
    Ok((consumer, msg))
}

fn wait_ms(ack_wait_ms: u64) -> pull::Config {
    pull::Config { ack_wait: Duration::from_millis(ack_wait_ms), ..Default::default() }
}

/// The next delivery, which must have this count.
async fn again(consumer: &PullConsumer, count: i64) -> Outcome<Msg> {
    let msg = fetch_one(consumer).await?;
    equal(msg.info()?.delivered, count, "delivered")?;
    Ok(msg)
}

async fn nak(c: &mut Ctx) -> Outcome {
    let (consumer, msg) = one_message(c, Default::default()).await?;
    let began = Instant::now();
    msg.ack_with(AckKind::Nak(None)).await?;
    again(&consumer, 2).await?;
    check(began.elapsed() < TIMEOUT / 3, "redelivered late")
}

async fn nak_delay(c: &mut Ctx) -> Outcome {
    let (consumer, msg) = one_message(c, Default::default()).await?;
    let began = Instant::now();
    msg.ack_with(AckKind::Nak(Some(Duration::from_millis(700)))).await?;
    again(&consumer, 2).await?;
    let took_ms = began.elapsed().as_millis();
    check((600..20_000).contains(&took_ms), format!("took {took_ms} ms"))
}

async fn term(c: &mut Ctx) -> Outcome {
    let (consumer, msg) = one_message(c, wait_ms(500)).await?;
    msg.ack_with(AckKind::Term).await?;
    nothing_more(&consumer, 1_500).await?;
    let info = consumer.get_info().await?;
    equal((info.num_ack_pending, info.ack_floor.stream_sequence), (0, 1), "info")
}

async fn in_progress(c: &mut Ctx) -> Outcome {
    let (consumer, msg) = one_message(c, wait_ms(5_000)).await?;
    for _ in 0..2 {
        sleep_ms(3_000).await;
        msg.ack_with(AckKind::Progress).await?;
    }
    nothing_more(&consumer, 2_000).await?;
    msg.double_ack().await?;
    equal(consumer.get_info().await?.num_ack_pending, 0, "num_ack_pending")
}

async fn ack_wait(c: &mut Ctx) -> Outcome {
    let (consumer, _) = one_message(c, wait_ms(500)).await?;
    let msg = again(&consumer, 2).await?;
    equal(consumer.get_info().await?.num_redelivered, 1, "num_redelivered")?;
    msg.double_ack().await?;
    equal(consumer.get_info().await?.num_redelivered, 0, "after the ack")
}

async fn max_deliver(c: &mut Ctx) -> Outcome {
    let mut advisories = c.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.P10.c").await?;
    let (consumer, _) = one_message(c, pull::Config { max_deliver: 2, ..wait_ms(500) }).await?;
    again(&consumer, 2).await?;
    nothing_more(&consumer, 1_500).await?;
    let told: serde_json::Value = serde_json::from_slice(&next(&mut advisories).await?.payload)?;
    equal(
        (told["stream"].as_str(), told["consumer"].as_str()),
        (Some("P10"), Some("c")),
        "advisory",
    )?;
    equal(
        (told["stream_seq"].as_u64(), told["deliveries"].as_u64()),
        (Some(1), Some(2)),
        "advisory",
    )?;
    let second = tokio::time::timeout(Duration::from_millis(200), next(&mut advisories)).await;
    check(second.is_err(), "a second advisory")
}

async fn backoff(c: &mut Ctx) -> Outcome {
    let backoff = vec![Duration::from_millis(300), Duration::from_secs(1)];
    let began = Instant::now();
    let (consumer, _) =
        one_message(c, pull::Config { backoff, max_deliver: 3, ..Default::default() }).await?;
    for (count, least_ms) in [(2, 250), (3, 1_250)] {
        again(&consumer, count).await?;
        let took_ms = began.elapsed().as_millis();
        check(took_ms >= least_ms, format!("delivery {count} after {took_ms} ms"))?;
    }
    nothing_more(&consumer, 1_500).await
}
