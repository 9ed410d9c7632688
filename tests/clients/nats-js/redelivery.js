/** P05 to P11: nak, term, in-progress, ack wait, max_deliver, backoff. */
"use strict";

const { TIMEOUT_MS, check, equal, fetchOne, nanos, nothingMore, scenario, sleep, until } = require("./harness");

/** A stream with one message, its consumer, and the first delivery. */
async function oneMessage(c, config = {}) {
  const stream = await c.stream();
  await c.put(`${c.low}.a`);
  const consumer = await c.consumer(stream, "c", config);
  const msg = await fetchOne(consumer);
  equal(msg.info.deliveryCount, 1, "first delivery");
  return { consumer, msg };
}

/** The next delivery, which must have this count. */
async function again(consumer, count) {
  const msg = await fetchOne(consumer);
  equal(msg.info.deliveryCount, count, "delivered");
  return msg;
}

scenario("P05", async (c) => {
  const { consumer, msg } = await oneMessage(c);
  const began = Date.now();
  msg.nak();
  await again(consumer, 2);
  check(Date.now() - began < TIMEOUT_MS / 3, "redelivered late");
});

scenario("P06", async (c) => {
  const { consumer, msg } = await oneMessage(c);
  const began = Date.now();
  msg.nak(700);
  await again(consumer, 2);
  const took = Date.now() - began;
  check(took >= 600 && took < TIMEOUT_MS / 3, `took ${took} ms`);
});

scenario("P07", async (c) => {
  const { consumer, msg } = await oneMessage(c, { ack_wait: nanos(500) });
  msg.term();
  await nothingMore(consumer, 1500);
  const info = await consumer.info();
  equal([info.num_ack_pending, info.ack_floor.stream_seq], [0, 1], "info");
});

scenario("P08", async (c) => {
  const { consumer, msg } = await oneMessage(c, { ack_wait: nanos(5000) });
  for (let i = 0; i < 2; i++) {
    await sleep(3000);
    msg.working();
  }
  await nothingMore(consumer, 2000);
  await msg.ackAck();
  equal((await consumer.info()).num_ack_pending, 0, "num_ack_pending");
});

scenario("P09", async (c) => {
  const { consumer } = await oneMessage(c, { ack_wait: nanos(500) });
  const msg = await again(consumer, 2);
  equal((await consumer.info()).num_redelivered, 1, "num_redelivered");
  await msg.ackAck();
  equal((await consumer.info()).num_redelivered, 0, "after the ack");
});

scenario("P10", async (c) => {
  const advisories = [];
  c.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.P10.c", {
    callback: (_err, msg) => advisories.push(msg.json()),
  });
  const { consumer } = await oneMessage(c, { ack_wait: nanos(500), max_deliver: 2 });
  await again(consumer, 2);
  await nothingMore(consumer, 1500);
  await until(() => advisories.length > 0, "the advisory");
  equal(advisories.length, 1, "advisories");
  const { stream, consumer: name, stream_seq: seq, deliveries } = advisories[0];
  equal([stream, name, seq, deliveries], ["P10", "c", 1, 2], "advisory");
});

scenario("P11", async (c) => {
  const began = Date.now();
  const { consumer } = await oneMessage(c, { backoff: [nanos(300), nanos(1000)], max_deliver: 3 });
  for (const [count, least] of [[2, 250], [3, 1250]]) {
    await again(consumer, count);
    const took = Date.now() - began;
    check(took >= least, `delivery ${count} after ${took} ms`);
  }
  await nothingMore(consumer, 1500);
});
