/** P01 to P04, P12 to P23: pull consumers apart from redelivery. */
"use strict";

const { AckPolicy, DeliverPolicy } = require("@nats-io/jetstream");
const {
  TIMEOUT_MS, Skip, check, collect, equal, expectCode, fetch, fetchOne, header, nanos, nothingMore, number, scenario,
  sleep, span, until,
} = require("./harness");

const numbers = (msgs) => msgs.map(number);
const pending = async (consumer) => (await consumer.info()).num_pending;

/** Waits until the (asynchronous) acks are counted, then compares exactly. */
async function ackedUpTo(consumer, floor, left) {
  await until(async () => {
    const info = await consumer.info();
    return info.ack_floor.stream_seq === floor && info.num_ack_pending === 0;
  }, `ack floor ${floor}`);
  equal(await pending(consumer), left, "num_pending");
}

scenario("P01", async (c) => {
  const stream = await c.stream();
  await c.putMany("p01.a", 10);
  const consumer = await c.consumer(stream);
  let seq = 0;
  for (const batch of [4, 6]) {
    const msgs = await fetch(consumer, batch);
    equal(numbers(msgs), span(seq, seq + batch), "messages");
    for (const msg of msgs) {
      seq++;
      const { stream: s, consumer: name, streamSequence, deliverySequence, deliveryCount, pending: left } = msg.info;
      equal([s, name], [stream, "c"], "names");
      equal([streamSequence, deliverySequence, deliveryCount, left], [seq, seq, 1, 10 - seq], "metadata");
      msg.ack();
    }
    await ackedUpTo(consumer, seq, 10 - seq);
  }
});

scenario("P02", () => {
  throw new Skip("nats.js has no no_wait fetch");
});

scenario("P03", async (c) => {
  const stream = await c.stream();
  await c.putMany("p03.a", 3);
  const consumer = await c.consumer(stream);
  const began = Date.now();
  equal(numbers(await fetch(consumer, 10, 3000)), [0, 1, 2], "messages");
  const took = Date.now() - began;
  check(took >= 2800 && took < TIMEOUT_MS / 2, `took ${took} ms`);
});

scenario("P04", async (c) => {
  const stream = await c.stream();
  for (let i = 0; i < 10; i++) await c.put("p04.a", "x".repeat(1000));
  const consumer = await c.consumer(stream);
  let got = 0;
  try {
    for await (const _ of await consumer.fetch({ max_bytes: 3500, expires: 3000 })) got++;
  } catch (err) {
    // The client throws the status that ends such a fetch after it has handed out the messages.
    check(/exceeds maxbytes/i.test(err.message), err.message);
  }
  check(got >= 1 && got <= 3, `${got} messages`);
  equal((await fetch(consumer, 10 - got)).length, 10 - got, "the others");
});

scenario("P12", async (c) => {
  const stream = await c.stream();
  await c.putMany("p12.a", 1);
  const consumer = await c.consumer(stream);
  check(await (await fetchOne(consumer)).ackAck(), "no confirmation");
  const info = await consumer.info();
  equal([info.ack_floor.stream_seq, info.num_ack_pending], [1, 0], "info after the double ack");
});

scenario("P13", async (c) => {
  const stream = await c.stream();
  await c.putMany("p13.a", 10);
  const consumer = await c.consumer(stream, "c", { max_ack_pending: 5 });
  const first = await fetch(consumer, 10, 3000);
  equal(numbers(first), span(0, 5), "first");
  for (const msg of first) await msg.ackAck();
  equal(numbers(await fetch(consumer, 5)), span(5, 10), "second");
});

scenario("P14", async (c) => {
  const stream = await c.stream();
  for (let i = 0; i < 12; i++) await c.put(`p14.${"abc"[i % 3]}`, i);
  const one = await c.consumer(stream, "one", { filter_subject: "p14.b" });
  equal(await pending(one), 4, "num_pending of one");
  equal(numbers(await fetch(one, 4)), [1, 4, 7, 10], "one filter");
  const two = await c.consumer(stream, "two", { filter_subjects: ["p14.a", "p14.c"] });
  equal(await pending(two), 8, "num_pending of two");
  equal(numbers(await fetch(two, 8)), [0, 2, 3, 5, 6, 8, 9, 11], "two filters");
  await expectCode(c.consumer(stream, "x", { filter_subjects: ["p14.a", "p14.>"] }), 10138);
});

scenario("P15", async (c) => {
  const stream = await c.stream();
  await c.put("p15.a", "x".repeat(123), { headers: header({ Kept: "yes" }) });
  const msg = await fetchOne(await c.consumer(stream, "c", { headers_only: true }));
  equal(msg.data.length, 0, "payload");
  equal([msg.headers.get("Nats-Msg-Size"), msg.headers.get("Kept")], ["123", "yes"], "headers");
});

scenario("P16", async (c) => {
  const stream = await c.stream();
  for (const tail of "abca") await c.put(`p16.${tail}`);
  await sleep(100);
  const middle = new Date().toISOString();
  await sleep(100);
  for (const tail of "ba") await c.put(`p16.${tail}`);
  const cases = {
    all: [{ deliver_policy: DeliverPolicy.All }, [1, 2, 3, 4, 5, 6]],
    last: [{ deliver_policy: DeliverPolicy.Last }, [6]],
    seq: [{ deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 4 }, [4, 5, 6]],
    time: [{ deliver_policy: DeliverPolicy.StartTime, opt_start_time: middle }, [5, 6]],
    per: [{ deliver_policy: DeliverPolicy.LastPerSubject, filter_subject: "p16.*" }, [3, 5, 6]],
  };
  for (const [name, [config, want]] of Object.entries(cases)) {
    const consumer = await c.consumer(stream, name, config);
    equal(await pending(consumer), want.length, `num_pending of ${name}`);
    equal((await fetch(consumer, want.length)).map((m) => m.seq), want, name);
  }
  const consumer = await c.consumer(stream, "new", { deliver_policy: DeliverPolicy.New });
  await nothingMore(consumer, 1000);
  await c.put("p16.z");
  equal((await fetchOne(consumer)).seq, 7, "new");
});

scenario("P17", async (c) => {
  const stream = await c.stream();
  await c.putMany("p17.a", 10);
  const every = await c.consumer(stream, "all", { ack_policy: AckPolicy.All });
  await (await fetch(every, 10))[4].ackAck();
  let info = await every.info();
  equal([info.ack_floor.stream_seq, info.num_ack_pending], [5, 5], "ack all");
  const none = await c.consumer(stream, "none", { ack_policy: AckPolicy.None });
  equal((await fetch(none, 10)).length, 10, "ack none");
  info = await none.info();
  equal([info.num_ack_pending, info.num_pending], [0, 0], "ack none");
});

scenario("P18", async (c) => {
  const stream = await c.stream();
  const config = { ack_policy: AckPolicy.Explicit, inactive_threshold: nanos(1000) };
  const { name } = await c.jsm.consumers.add(stream, config);
  await until(async () => {
    const list = await collect(c.jsm.consumers.list(stream));
    return !list.some((info) => info.name === name);
  }, "ephemeral consumer removed");
  await expectCode(c.jsm.consumers.info(stream, name), 10014);
});

scenario("P19", async (c) => {
  // Error 10149 is left out: nats.js asks for the consumer's info before it sends an update, and fails there.
  const { consumers } = c.jsm;
  const stream = await c.stream();
  await c.consumer(stream, "c", { description: "first", ack_wait: nanos(3000) });
  const { config } = await consumers.info(stream, "c");
  equal([config.durable_name, config.description, config.ack_wait], ["c", "first", nanos(3000)], "made");
  await c.consumer(stream, "d");
  equal((await collect(consumers.list(stream))).map((i) => i.name).sort(), ["c", "d"], "list");
  await consumers.update(stream, "c", { description: "second", max_ack_pending: 7 });
  const { config: updated } = await consumers.info(stream, "c");
  equal([updated.description, updated.max_ack_pending], ["second", 7], "after the update");
  await expectCode(consumers.update(stream, "c", { deliver_policy: DeliverPolicy.New }), 10012);
  await expectCode(consumers.add(stream, { ...updated, description: "third" }), 10148);
  check(await consumers.delete(stream, "c"), "delete");
  await expectCode(consumers.info(stream, "c"), 10014);
  await expectCode(consumers.delete(stream, "c"), 10014);
});

scenario("P20", async (c) => {
  const { streams } = c.jsm;
  const stream = await c.stream();
  for (let i = 0; i < 100; i++) await c.put(`p20.${i % 2}`, i);
  const config = { durable_name: "c", ack_policy: AckPolicy.Explicit, filter_subject: "p20.1" };
  equal((await c.jsm.consumers.add(stream, config)).num_pending, 50, "at creation");
  const consumer = await c.js.consumers.get(stream, "c");
  for (let seq = 52; seq < 72; seq += 2) await streams.deleteMessage(stream, seq);
  equal(await pending(consumer), 40, "after the deletes");
  const msgs = await fetch(consumer, 10);
  equal(msgs.map((m) => m.info.pending), span(30, 40).reverse(), "in the metadata");
  equal(await pending(consumer), 30, "after the partial read");
  await streams.purge(stream, { seq: 80, filter: "p20.1" });
  equal(await pending(consumer), 11, "after the purge below sequence 80");
  await streams.purge(stream, { filter: "p20.1" });
  equal(await pending(consumer), 0, "after the purge");
});

scenario("P21", async (c) => {
  const count = 2000;
  const stream = await c.stream();
  await c.putAsync("p21.a", count, String);
  const consumer = await c.consumer(stream);
  const got = [];
  const messages = await consumer.consume();
  for await (const msg of messages) {
    got.push(number(msg));
    msg.ack();
    if (got.length === count) break;
  }
  await ackedUpTo(consumer, count, 0);
  equal(got, span(0, count), "messages");
});

scenario("P22", async (c) => {
  const stream = await c.stream();
  const consumer = await c.consumer(stream);
  const began = Date.now();
  const waiting = fetch(consumer, 5).catch(() => []);
  await sleep(300);
  await c.jsm.consumers.delete(stream, "c");
  equal(await waiting, [], "messages");
  check(Date.now() - began < TIMEOUT_MS / 2, "the fetch did not end early");
});

scenario("P23", async (c) => {
  const stream = await c.stream();
  await c.putMany("p23.a", 500);
  await c.consumer(stream);
  const got = [];
  const loop = async () => {
    const consumer = await c.js.consumers.get(stream, "c");
    for (;;) {
      const msgs = await fetch(consumer, 20, 3000);
      if (msgs.length === 0) return;
      for (const msg of msgs) {
        got.push(number(msg));
        msg.ack();
      }
    }
  };
  await Promise.all([loop(), loop()]);
  equal(got.sort((a, b) => a - b), span(0, 500), "messages");
});
