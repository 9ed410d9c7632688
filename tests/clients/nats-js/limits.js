/** S12 to S18: stream limits, discard and retention policies, rollups, deny flags. */
"use strict";

const { DiscardPolicy, JsHeaders, RetentionPolicy } = require("@nats-io/jetstream");
const {
  check, equal, expectCode, fetchOne, header, nanos, number, scenario, span, until,
} = require("./harness");

/** The payload numbers that are still in the stream, in order. */
async function kept(c, stream) {
  const { first_seq: first, last_seq: last } = await c.state(stream);
  const out = [];
  for (let seq = first; seq <= last; seq++) {
    const msg = await c.jsm.streams.getMessage(stream, { seq });
    if (msg) out.push(number(msg));
  }
  return out;
}

const messages = async (c, stream) => (await c.state(stream)).messages;

scenario("S12", async (c) => {
  const byMsgs = await c.stream("A", { max_msgs: 5 });
  await c.putMany("s12a.x", 10);
  equal(await kept(c, byMsgs), span(5, 10), "max_msgs");

  const byBytes = await c.stream("B", { max_bytes: 2000 });
  for (let i = 0; i < 10; i++) await c.put("s12b.x", String(i).padStart(500, "0"));
  const { bytes } = await c.state(byBytes);
  check(bytes <= 2000, `bytes ${bytes}`);
  const left = await kept(c, byBytes);
  check(left.length >= 1 && left.length <= 4, `kept ${left}`);
  equal(left, span(10 - left.length, 10), "max_bytes keeps the newest");

  const bySubject = await c.stream("C", { max_msgs_per_subject: 2 });
  for (let i = 0; i < 10; i++) await c.put(`s12c.${i % 2}`, i);
  equal(await kept(c, bySubject), span(6, 10), "max_msgs_per_subject");
});

scenario("S13", async (c) => {
  const stream = await c.stream("", { max_age: nanos(4000), duplicate_window: nanos(1000) });
  await c.putMany("s13.a", 3);
  equal(await messages(c, stream), 3, "messages at first");
  await until(async () => await messages(c, stream) === 0, "messages expire");
  equal((await c.state(stream)).last_seq, 3, "last_seq");
});

scenario("S14", async (c) => {
  const discard = DiscardPolicy.New;
  await c.stream("A", { max_msg_size: 100 });
  await expectCode(c.put("s14a.x", "x".repeat(101)), 10054);
  equal((await c.put("s14a.x", "x".repeat(100))).seq, 1, "at the limit");

  await c.stream("B", { max_msgs: 2, discard });
  await c.putMany("s14b.x", 2);
  await expectCode(c.put("s14b.x"), 10077);
  equal(await kept(c, "S14B"), [0, 1], "max_msgs keeps the oldest");

  await c.stream("C", { max_bytes: 500, discard });
  await c.put("s14c.x", "x".repeat(200));
  await expectCode(c.put("s14c.x", "x".repeat(400)), 10077);
  equal(await messages(c, "S14C"), 1, "max_bytes");

  await c.stream("D", { max_msgs_per_subject: 1, discard, discard_new_per_subject: true });
  await c.put("s14d.x", 0);
  await expectCode(c.put("s14d.x", 1), 10077);
  equal((await c.put("s14d.y", 2)).seq, 2, "another subject");
});

scenario("S15", async (c) => {
  const stream = await c.stream("", { retention: RetentionPolicy.Interest });
  equal((await c.put("s15.a", "nobody")).seq, 1, "sequence without interest");
  equal(await messages(c, stream), 0, "stored without interest");
  const one = await c.consumer(stream, "one");
  const two = await c.consumer(stream, "two");
  await c.put("s15.a");
  await (await fetchOne(one)).ackAck();
  equal(await messages(c, stream), 1, "after the first ack");
  await (await fetchOne(two)).ackAck();
  await until(async () => await messages(c, stream) === 0, "gone after the second ack");
});

scenario("S16", async (c) => {
  const stream = await c.stream("", { retention: RetentionPolicy.Workqueue });
  const a = await c.consumer(stream, "a", { filter_subject: "s16.a.*" });
  await c.consumer(stream, "b", { filter_subject: "s16.b" });
  await expectCode(c.consumer(stream, "all"), 10099);
  await expectCode(c.consumer(stream, "o", { filter_subject: "s16.a.1" }), 10100);
  await c.put("s16.a.1", "x");
  await c.put("s16.b", "y");
  await (await fetchOne(a)).ackAck();
  await until(async () => await messages(c, stream) === 1, "acked message is gone");
  const other = await c.jsm.streams.getMessage(stream, { last_by_subj: "s16.b" });
  equal(other.string(), "y", "the other one stays");
});

scenario("S17", async (c) => {
  const stream = await c.stream("", { allow_rollup_hdrs: true });
  const rolled = (how) => ({ headers: header({ [JsHeaders.RollupHdr]: how }) });
  for (let i = 0; i < 6; i++) await c.put(`s17.${i % 2}`, i);
  await c.put("s17.0", 6, rolled(JsHeaders.RollupValueSubject));
  equal(await kept(c, stream), [1, 3, 5, 6], "rollup sub");
  await c.put("s17.1", 7, rolled(JsHeaders.RollupValueAll));
  equal(await kept(c, stream), [7], "rollup all");
  await c.stream("X");
  await expectCode(c.put("s17x.a", 8, rolled(JsHeaders.RollupValueSubject)), 10111);
});

scenario("S18", async (c) => {
  const { streams } = c.jsm;
  const deny = await c.stream("A", { deny_delete: true, deny_purge: true });
  await c.put("s18a.x");
  await expectCode(streams.deleteMessage(deny, 1), 10057);
  await expectCode(streams.purge(deny), 10110);
  const sealed = await c.stream("B");
  await c.put("s18b.x");
  check((await streams.update(sealed, { sealed: true })).config.sealed, "sealed");
  await expectCode(c.put("s18b.x"), 10109);
  equal(await messages(c, sealed), 1, "messages");
});
