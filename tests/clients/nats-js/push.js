/** D01 to D07: push consumers, flow control, heartbeats, ordered consumers. */
"use strict";

const { AckPolicy, DeliverPolicy } = require("@nats-io/jetstream");
const { createInbox } = require("@nats-io/transport-node");
const {
  TIMEOUT_MS, Skip, check, equal, iterate, jetstream, nanos, next, number, scenario, sleep, span, until,
} = require("./harness");

async function addPush(c, stream, config = {}) {
  await c.jsm.consumers.add(stream, {
    durable_name: "c", deliver_subject: createInbox(), ack_policy: AckPolicy.Explicit, ...config,
  });
}

/** Consumes into an array. */
async function consumeInto(js, stream, ack) {
  const got = [];
  const consumer = await js.consumers.getPushConsumer(stream, "c");
  const messages = await consumer.consume({
    callback: (msg) => {
      got.push(number(msg));
      if (ack) msg.ack();
    },
  });
  return { got, consumer, messages };
}

scenario("D01", async (c) => {
  const stream = await c.stream();
  await c.putMany("d01.a", 100);
  await addPush(c, stream);
  const { got, consumer, messages } = await consumeInto(c.js, stream, true);
  await until(async () => got.length >= 100 && (await consumer.info()).num_ack_pending === 0, "100 messages acked");
  equal(got, span(0, 100), "messages");
  const info = await consumer.info();
  equal([info.ack_floor.stream_seq, info.push_bound], [100, true], "info");
  await messages.close();
});

scenario("D02", async (c) => {
  const stream = await c.stream();
  await addPush(c, stream, { deliver_group: "workers" });
  const members = [];
  for (let i = 0; i < 3; i++) {
    const nc = await c.connect();
    members.push((await consumeInto(jetstream(nc), stream, true)).got);
    await nc.flush();
  }
  await c.putMany("d02.a", 300);
  await until(() => members.flat().length >= 300, "300 messages");
  await sleep(200);
  equal(members.flat().sort((a, b) => a - b), span(0, 300), "messages");
  check(members.every((m) => m.length > 0), "a member got nothing");
});

scenario("D03", async (c) => {
  const count = 40_000;
  const stream = await c.stream();
  await c.putAsync("d03.a", count, (i) => String(i).padStart(512, "0"));
  await addPush(c, stream, { ack_policy: AckPolicy.None, flow_control: true, idle_heartbeat: nanos(1000) });
  const { got, messages } = await consumeInto(c.js, stream, false);
  await until(() => got.length >= count, "all messages");
  equal(got, span(0, count), "messages");
  await messages.close();
}, 360);

scenario("D04", async (c) => {
  const stream = await c.stream();
  const inbox = createInbox();
  const got = [];
  c.nc.subscribe(inbox, { callback: (_err, msg) => got.push(msg.headers) });
  await addPush(c, stream, { deliver_subject: inbox, idle_heartbeat: nanos(200) });
  await until(() => got.length >= 3, "3 heartbeats");
  for (const h of got) {
    equal([h.code, h.get("Nats-Last-Consumer"), h.get("Nats-Last-Stream")], [100, "0", "0"], "status and sequences");
  }
});

scenario("D05", async (c) => {
  const count = 200_000;
  const stream = await c.stream();
  await c.putAsync("d05.a", count, (i) => String(i).padStart(64, "0"));
  const consumer = await c.js.consumers.get(stream);
  const messages = await consumer.consume({ max_messages: 2000 });
  let i = 0;
  for await (const msg of messages) {
    if (msg.seq !== i + 1 || number(msg) !== i) equal([msg.seq, number(msg)], [i + 1, i], "sequence and payload");
    if (++i === count) break;
  }
  equal(i, count, "messages");
}, 360);

scenario("D06", async (c) => {
  const size = 5_000_000;
  if (c.nc.info.max_payload < size) throw new Skip(`the server's max_payload is ${c.nc.info.max_payload}`);
  const stream = await c.stream();
  const body = Buffer.alloc(size);
  const mark = (data, i) => [data.readUInt32LE(0), data.readUInt32LE(size - 8)].every((n) => n === i);
  for (let i = 0; i < 100; i++) {
    body.writeUInt32LE(i, 0);
    body.writeUInt32LE(i, size - 8);
    equal((await c.js.publish("d06.a", body, { timeout: TIMEOUT_MS })).seq, i + 1, "sequence");
  }
  const consumer = await c.js.consumers.get(stream, {});
  const messages = iterate(await consumer.consume({ max_messages: 4 }));
  for (let i = 0; i < 100; i++) {
    const { data } = await next(messages);
    equal(data.length, size, "length");
    check(mark(Buffer.from(data.buffer, data.byteOffset, data.length), i), `marks of message ${i}`);
  }
  check(!c.nc.isClosed(), "disconnected");
}, 360);

scenario("D07", async (c) => {
  const stream = await c.stream();
  for (let i = 0; i < 20; i++) await c.put(`d07.${i % 2}`, i);
  const consumer = await c.js.consumers.getPushConsumer(stream, {
    filter_subjects: ["d07.0"], deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 11,
  });
  const messages = iterate(await consumer.consume());
  for (const want of [10, 12, 14, 16, 18]) equal(number(await next(messages)), want, "stored message");
  await c.put("d07.1", 20);
  await c.put("d07.0", 21);
  equal(number(await next(messages)), 21, "new message");
});
