//! C01 to C10: core publish/subscribe, request/reply, headers, drain, limits.

use std::time::{Duration, Instant};

use async_nats::client::{PublishErrorKind, RequestErrorKind};
use async_nats::{Client, HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use crate::harness::{
    Ctx, Outcome, TIMEOUT, body, check, equal, expect_err, fail, next, number, settle, until,
};
use crate::scenarios;

scenarios! {
    "C01" => wildcards,
    "C02" => queue_groups,
    "C03" => request_reply,
    "C04" => no_responders,
    "C05" => headers,
    "C06" => drain,
    "C07" => unsubscribe_after,
    "C08" => max_payload,
    "C09" => large_messages,
    "C10" => order,
}

/// What has come to a subscription of a connection that has settled, and what should not come within
/// 300 ms.
async fn gathered(sub: &mut Subscriber) -> Vec<Message> {
    let mut got = Vec::new();
    while let Ok(Some(msg)) = tokio::time::timeout(Duration::from_millis(300), sub.next()).await {
        got.push(msg);
    }
    got
}

async fn gathered_numbers(sub: &mut Subscriber) -> Outcome<Vec<usize>> {
    gathered(sub).await.iter().map(|m| number(&m.payload)).collect()
}

async fn wildcards(c: &mut Ctx) -> Outcome {
    let mut star = c.nc.subscribe("c01.*").await?;
    let mut mid = c.nc.subscribe("c01.*.x").await?;
    let mut rest = c.nc.subscribe("c01.>").await?;
    for subject in ["c01", "c01.a", "c01.b", "c01.a.x", "c01.a.y"] {
        c.nc.publish(subject, body("x")).await?;
    }
    settle(&c.nc).await?;
    let subjects =
        |msgs: Vec<Message>| msgs.iter().map(|m| m.subject.to_string()).collect::<Vec<_>>();
    equal(subjects(gathered(&mut star).await), ["c01.a", "c01.b"], "c01.*")?;
    equal(subjects(gathered(&mut mid).await), ["c01.a.x"], "c01.*.x")?;
    equal(subjects(gathered(&mut rest).await), ["c01.a", "c01.b", "c01.a.x", "c01.a.y"], "c01.>")
}

async fn queue_groups(c: &mut Ctx) -> Outcome {
    let mut members = Vec::new();
    for _ in 0..3 {
        let nc = c.connect().await?;
        members.push((nc.queue_subscribe("c02.q", "workers".to_owned()).await?, nc.clone()));
        settle(&nc).await?;
    }
    let mut plain = c.nc.subscribe("c02.q").await?;
    for i in 0..300 {
        c.nc.publish("c02.q", body(i)).await?;
    }
    settle(&c.nc).await?;
    let mut all = Vec::new();
    for (member, nc) in &mut members {
        settle(nc).await?;
        let got = gathered_numbers(member).await?;
        check(!got.is_empty(), "a member got nothing")?;
        all.extend(got);
    }
    all.sort_unstable();
    equal(all, (0..300).collect::<Vec<_>>(), "group")?;
    equal(gathered_numbers(&mut plain).await?, (0..300).collect::<Vec<_>>(), "plain subscriber")
}

/// Answers every request on a subject with what `answer` makes of it.
async fn respond(nc: Client, subject: &str, answer: fn(&Message) -> (Bytes, HeaderMap)) -> Outcome {
    let mut requests = nc.subscribe(subject.to_owned()).await?;
    settle(&nc).await?;
    tokio::spawn(async move {
        while let Some(msg) = requests.next().await {
            let (data, headers) = answer(&msg);
            if let Some(reply) = msg.reply {
                let _ = nc.publish_with_headers(reply, headers, data).await;
            }
        }
    });
    Ok(())
}

async fn request_reply(c: &mut Ctx) -> Outcome {
    let answer =
        |m: &Message| (Bytes::from([b"re:", m.payload.as_ref()].concat()), HeaderMap::new());
    respond(c.connect().await?, "c03.*", answer).await?;
    for i in 0..200 {
        let reply = c.nc.request(format!("c03.{i}"), body(i)).await?;
        equal(reply.payload, body(format!("re:{i}")), "reply")?;
    }
    Ok(())
}

async fn no_responders(c: &mut Ctx) -> Outcome {
    let began = Instant::now();
    let answer = c.nc.request("c04.nobody", body("?")).await;
    expect_err(answer, "no responders", |e| e.kind() == RequestErrorKind::NoResponders)?;
    check(began.elapsed() < TIMEOUT / 2, "took as long as a request may")
}

async fn headers(c: &mut Ctx) -> Outcome {
    let mut sent = HeaderMap::new();
    sent.insert("X-Mixed-Case", "a b: c;d");
    sent.insert("lower", "1");
    sent.append("X-Two", "one");
    sent.append("X-Two", "two");
    sent.insert("X-Utf", "grüße");
    let mut sub = c.nc.subscribe("c05.h").await?;
    for payload in [Bytes::from_static(b"line\r\nline\x00end"), Bytes::new()] {
        c.nc.publish_with_headers("c05.h", sent.clone(), payload.clone()).await?;
        let msg = next(&mut sub).await?;
        equal(msg.payload, payload, "payload")?;
        equal(msg.headers, Some(sent.clone()), "headers")?;
    }
    let answer = |m: &Message| {
        let mut headers = HeaderMap::new();
        if let Some(value) = m.headers.as_ref().and_then(|h| h.get("Ask")) {
            headers.insert("Echo", value.clone());
        }
        (Bytes::new(), headers)
    };
    respond(c.nc.clone(), "c05.r", answer).await?;
    let mut ask = HeaderMap::new();
    ask.insert("Ask", "v 1");
    let reply = c.nc.request_with_headers("c05.r", ask, Bytes::new()).await?;
    let echo = reply.headers.and_then(|h| h.get("Echo").map(ToString::to_string));
    equal(echo.as_deref(), Some("v 1"), "reply header")
}

async fn drain(c: &mut Ctx) -> Outcome {
    let receiver = c.connect().await?;
    let mut sub = receiver.subscribe("c06.d").await?;
    settle(&receiver).await?;
    for i in 0..100 {
        c.nc.publish("c06.d", body(i)).await?;
    }
    settle(&c.nc).await?;
    settle(&receiver).await?;
    sub.drain().await?;
    settle(&receiver).await?;
    for _ in 0..10 {
        c.nc.publish("c06.d", body("late")).await?;
    }
    settle(&c.nc).await?;
    let mut got = Vec::new();
    for _ in 0..100 {
        got.push(number(&next(&mut sub).await?.payload)?);
    }
    equal(got, (0..100).collect::<Vec<_>>(), "drained messages")?;
    equal(sub.next().await.map(|m| m.payload), None, "after the drain")?;
    receiver.drain().await?;
    until("the connection ends with its drain", async || {
        Ok(receiver.subscribe("c06.x").await.is_err())
    })
    .await
}

async fn unsubscribe_after(c: &mut Ctx) -> Outcome {
    let mut sub = c.nc.subscribe("c07.u").await?;
    sub.unsubscribe_after(5).await?;
    for i in 0..10 {
        c.nc.publish("c07.u", body(i)).await?;
    }
    settle(&c.nc).await?;
    equal(gathered_numbers(&mut sub).await?, [0, 1, 2, 3, 4], "messages")
}

async fn max_payload(c: &mut Ctx) -> Outcome {
    let limit = c.nc.server_info().max_payload;
    let mut sub = c.nc.subscribe("c08.p").await?;
    let refused = c.nc.publish("c08.p", Bytes::from(vec![0; limit + 1])).await;
    expect_err(refused, "max payload exceeded", |e| {
        e.kind() == PublishErrorKind::MaxPayloadExceeded
    })?;
    let data = Bytes::from(vec![0xab; limit]);
    c.nc.publish("c08.p", data.clone()).await?;
    settle(&c.nc).await?;
    check(next(&mut sub).await?.payload == data, "payload differs")
}

/// Pseudo-random bytes (xorshift), the same for the same seed.
pub fn random(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(size + 8);
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(size);
    out
}

async fn large_messages(c: &mut Ctx) -> Outcome {
    respond(c.connect().await?, "c09.echo", |m| (m.payload.clone(), HeaderMap::new())).await?;
    let size = c.nc.server_info().max_payload.min(1_000_000);
    for seed in 0..20 {
        let data = random(seed, size);
        let want = Sha256::digest(&data);
        let reply = c.nc.request("c09.echo", data.into()).await?;
        equal(Sha256::digest(&reply.payload), want, "SHA-256")?;
    }
    Ok(())
}

async fn order(c: &mut Ctx) -> Outcome {
    const COUNT: usize = 20_000;
    let receiver = c.connect().await?;
    let mut sub = receiver.subscribe("c10.o").await?;
    settle(&receiver).await?;
    for i in 0..COUNT {
        c.nc.publish("c10.o", body(i)).await?;
    }
    settle(&c.nc).await?;
    for i in 0..COUNT {
        let got = number(&next(&mut sub).await?.payload)?;
        if got != i {
            return fail(format!("message {got} in place {i}"));
        }
    }
    let info = c.nc.server_info();
    check(info.headers && info.jetstream && info.max_payload > 0, format!("INFO {info:?}"))
}
