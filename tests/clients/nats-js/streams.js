/** S01 to S11, S19, S20: stream life cycle, publishing, reading single messages, purge. */
"use strict";

const { StorageType } = require("@nats-io/jetstream");
const {
  check, collect, equal, expectCode, expectError, fetch, header, nanos, number, scenario, sleep, span,
} = require("./harness");

const flat = async (lister) => await collect(lister);

scenario("S01", async (c) => {
  const before = await c.jsm.getAccountInfo();
  const stream = await c.stream();
  for (let i = 0; i < 3; i++) await c.put("s01.a", "x".repeat(100));
  await c.consumer(stream);
  const after = await c.jsm.getAccountInfo();
  equal(after.streams, before.streams + 1, "streams");
  equal(after.consumers, before.consumers + 1, "consumers");
  check(after.storage >= before.storage + 300, `storage ${before.storage} -> ${after.storage}`);
  check(typeof after.limits.max_streams === "number", "limits.max_streams");
  check(after.api.total >= before.api.total, "api.total");
});

scenario("S02", async (c) => {
  const { streams } = c.jsm;
  await c.stream("", { description: "first", subjects: ["s02.a", "s02.b"] });
  const { config, state } = await streams.info("S02");
  equal(config.description, "first", "description");
  equal(config.subjects, ["s02.a", "s02.b"], "subjects");
  equal([state.messages, state.last_seq], [0, 0], "empty state");
  const subjects = [...config.subjects, "s02.c"];
  const updated = await streams.update("S02", { description: "second", subjects });
  equal(updated.config.description, "second", "description after update");
  equal((await c.put("s02.c")).seq, 1, "sequence on the new subject");
  equal(await streams.find("s02.c"), "S02", "name by subject");
  check((await flat(streams.names())).includes("S02"), "not in the names");
  check((await flat(streams.list())).some((s) => s.config.name === "S02"), "not in the list");
  check(await streams.delete("S02"), "delete");
  await expectCode(streams.info("S02"), 10059);
  await expectCode(streams.delete("S02"), 10059);
});

scenario("S03", async (c) => {
  const { streams } = c.jsm;
  await c.stream("", { max_msgs: 10 });
  await streams.add({ name: "S03", subjects: ["s03.>"], max_msgs: 10 });
  await expectCode(streams.add({ name: "S03", subjects: ["s03.>"], max_msgs: 11 }), 10058);
  c.owns("S03X");
  await expectCode(streams.add({ name: "S03X", subjects: ["s03.a"] }), 10065);
  const bad = { name: "S03X", subjects: ["s03x"], max_age: nanos(1000), duplicate_window: nanos(2000) };
  await expectCode(streams.add(bad), 10052);
});

scenario("S04", async (c) => {
  const { streams } = c.jsm;
  await c.stream();
  await c.stream("X");
  await expectCode(streams.update("S04MISSING", { subjects: ["s04m"] }), 10059);
  await expectCode(streams.update("S04", { storage: StorageType.Memory }), 10052);
  await expectCode(streams.update("S04", { subjects: ["s04.>", "s04x.a"] }), 10065);
});

scenario("S05", async (c) => {
  const stream = await c.stream();
  for (let i = 1; i <= 20; i++) {
    const { stream: name, seq, duplicate } = await c.put("s05.a", i);
    equal([name, seq, duplicate], [stream, i, false], "ack");
  }
  const { messages, first_seq: first, last_seq: last } = await c.state(stream);
  equal([messages, first, last], [20, 1, 20], "state");
  const noStream = (err) => err.isNoResponders?.() || err.cause?.isNoResponders?.();
  await expectError(c.put("s05none"), "no responders", noStream);
});

scenario("S06", async (c) => {
  const stream = await c.stream();
  await c.putAsync("s06.a", 10_000, String);
  equal((await c.state(stream)).messages, 10_000, "messages");
});

scenario("S07", async (c) => {
  const stream = await c.stream("", { duplicate_window: nanos(5000) });
  const put = async () => {
    const { seq, duplicate } = await c.put("s07.a", "x", { msgID: "one" });
    return [seq, duplicate];
  };
  equal(await put(), [1, false], "first");
  equal(await put(), [1, true], "second");
  await sleep(5500);
  equal(await put(), [2, false], "after the window");
  equal((await c.state(stream)).messages, 2, "messages");
});

scenario("S08", async (c) => {
  const stream = await c.stream();
  await c.put("s08.a", 1, { msgID: "m1" });
  await c.put("s08.b", 2, { msgID: "m2" });
  const put = (expect) => c.put("s08.a", "x", { expect });
  await expectCode(put({ streamName: "OTHER" }), 10060);
  await expectCode(put({ lastSequence: 1 }), 10071);
  await expectCode(put({ lastMsgID: "m1" }), 10070);
  await expectCode(put({ lastSubjectSequence: 2 }), 10071);
  equal((await c.state(stream)).messages, 2, "messages after the refusals");
  equal((await put({ streamName: stream })).seq, 3, "stream");
  equal((await put({ lastSequence: 3 })).seq, 4, "last sequence");
  equal((await put({ lastSubjectSequence: 4 })).seq, 5, "subject sequence");
  await c.put("s08.a", 6, { msgID: "m6" });
  equal((await put({ lastMsgID: "m6" })).seq, 7, "last msg id");
});

function expectMsg(msg, seq, subject, body) {
  equal([msg?.seq, msg?.subject, msg?.string()], [seq, subject, body], "message");
}

scenario("S09", async (c) => {
  const { streams } = c.jsm;
  const stream = await c.stream();
  for (let i = 1; i <= 3; i++) {
    await c.put(`s09.${i % 2}`, `body ${i}`, { headers: header({ N: String(i) }) });
  }
  const msg = await streams.getMessage(stream, { seq: 2 });
  expectMsg(msg, 2, "s09.0", "body 2");
  equal(msg.header.get("N"), "2", "header");
  check(Math.abs(Date.now() - msg.time) < 60_000, `time ${msg.time}`);
  expectMsg(await streams.getMessage(stream, { last_by_subj: "s09.1" }), 3, "s09.1", "body 3");
  check(await streams.deleteMessage(stream, 2), "delete");
  // The client turns error 10037 into null.
  equal(await streams.getMessage(stream, { seq: 2 }), null, "deleted message");
  await expectCode(streams.deleteMessage(stream, 2), 10043);
  equal(await streams.getMessage(stream, { seq: 99 }), null, "missing message");
  const { state } = await streams.info(stream, { deleted_details: true });
  equal([state.messages, state.num_deleted, state.deleted], [2, 1, [2]], "state");
});

scenario("S10", async (c) => {
  const { direct } = c.jsm;
  const stream = await c.stream("", { allow_direct: true });
  for (let i = 1; i <= 4; i++) await c.put(`s10.${i % 2}`, `body ${i}`);
  expectMsg(await direct.getMessage(stream, { seq: 2 }), 2, "s10.0", "body 2");
  expectMsg(await direct.getMessage(stream, { last_by_subj: "s10.1" }), 3, "s10.1", "body 3");
  expectMsg(await direct.getMessage(stream, { seq: 3, next_by_subj: "s10.0" }), 4, "s10.0", "body 4");
  // The client turns 404 into null.
  equal(await direct.getMessage(stream, { seq: 99 }), null, "missing sequence");
  equal(await direct.getMessage(stream, { last_by_subj: "s10.none" }), null, "missing subject");
});

scenario("S11", async (c) => {
  const { streams } = c.jsm;
  const stream = await c.stream();
  for (let i = 1; i <= 10; i++) await c.put(`s11.${i % 2}`);
  const expect = async (what, ...want) => {
    const { messages, first_seq: first, last_seq: last } = await c.state(stream);
    equal([messages, first, last], want, what);
  };
  await streams.purge(stream, { filter: "s11.0" });
  await expect("after the filter", 5, 1, 10);
  await streams.purge(stream, { seq: 4 });
  await expect("after the sequence", 3, 5, 10);
  await streams.purge(stream, { keep: 2 });
  await expect("after keep", 2, 7, 10);
  equal((await streams.purge(stream)).purged, 2, "purged");
  await expect("after all", 0, 11, 10);
});

scenario("S19", async (c) => {
  const stream = await c.stream();
  for (const subject of ["s19.a.1", "s19.a.2", "s19.b"]) await c.put(subject);
  const { state } = await c.jsm.streams.info(stream, { subjects_filter: "s19.a.*" });
  equal({ ...state.subjects }, { "s19.a.1": 1, "s19.a.2": 1 }, "subjects");
  equal(state.num_subjects, 3, "num_subjects");
});

scenario("S20", async (c) => {
  const stream = await c.stream("", { storage: StorageType.Memory });
  await c.putMany("s20.a", 100);
  const consumer = await c.consumer(stream);
  equal((await fetch(consumer, 100)).map(number), span(0, 100), "messages");
  equal((await c.jsm.streams.info(stream)).config.storage, StorageType.Memory, "storage");
});
