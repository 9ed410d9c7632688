/** K01 to K07: the key-value store. */
"use strict";

const { Kvm } = require("@nats-io/kv");
const { check, collect, equal, expectCode, expectError, iterate, next, scenario, until } = require("./harness");

async function bucket(c, options = {}) {
  c.owns(`KV_${c.id}`);
  return await new Kvm(c.js).create(c.id, options);
}

/** A deleted key is an entry with its operation for nats.js, a missing one null. */
async function absent(kv, key) {
  const entry = await kv.get(key);
  return entry === null || entry.operation !== "PUT";
}

scenario("K01", async (c) => {
  const kv = await bucket(c, { history: 3 });
  equal(await kv.put("a.b", "one"), 1, "revision");
  equal(await kv.put("a.b", "two"), 2, "revision");
  const entry = await kv.get("a.b");
  equal([entry.key, entry.string(), entry.revision], ["a.b", "two", 2], "entry");
  equal((await kv.get("a.b", { revision: 1 })).string(), "one", "old revision");
  equal(await kv.get("none"), null, "missing key");
});

scenario("K02", async (c) => {
  const kv = await bucket(c);
  equal(await kv.create("k", "1"), 1, "create");
  await expectCode(kv.create("k", "2"), 10071);
  await expectCode(kv.update("k", "2", 9), 10071);
  equal(await kv.update("k", "2", 1), 2, "update");
  await kv.delete("k");
  check(await absent(kv, "k"), "deleted key");
  equal(await kv.create("k", "3"), 4, "create after the delete");
  equal((await kv.get("k")).string(), "3", "value");
});

/** (key, value, operation) of the next updates, and whether the last one is an update, not an initial value. */
async function nextUpdates(watch, count) {
  const got = [];
  let live = false;
  for (let i = 0; i < count; i++) {
    const { key, value, operation, isUpdate } = await next(watch);
    got.push([key, Buffer.from(value).toString(), operation]);
    live = isUpdate;
  }
  return { got, live };
}

scenario("K03", async (c) => {
  const kv = await bucket(c);
  const want = ["a.1", "a.2", "b"].map((key) => [key, key, "PUT"]);
  for (const [key, value] of want) await kv.put(key, value);
  const all = await kv.watch();
  const updates = iterate(all);
  equal(await nextUpdates(updates, 3), { got: want, live: true }, "initial values and their end mark");
  await kv.put("c", "new");
  await kv.delete("b");
  equal((await nextUpdates(updates, 2)).got, [["c", "new", "PUT"], ["b", "", "DEL"]], "updates");
  all.stop();
  const some = await kv.watch({ key: "a.*" });
  equal(await nextUpdates(iterate(some), 2), { got: want.slice(0, 2), live: true }, "wildcard");
  some.stop();
});

const history = async (kv, key) =>
  (await collect(await kv.history({ key }))).map((e) => [Buffer.from(e.value).toString(), e.operation]);

scenario("K04", async (c) => {
  const kv = await bucket(c, { history: 5 });
  for (let i = 0; i < 7; i++) await kv.put("k", String(i));
  await kv.delete("k");
  const want = [["3", "PUT"], ["4", "PUT"], ["5", "PUT"], ["6", "PUT"], ["", "DEL"]];
  equal(await history(kv, "k"), want, "history");
});

scenario("K05", async (c) => {
  const kv = await bucket(c, { history: 5 });
  for (const key of ["a", "b", "c", "a"]) await kv.put(key, "x");
  equal((await collect(await kv.keys())).sort(), ["a", "b", "c"], "keys");
  await kv.delete("b");
  await kv.purge("a");
  equal(await collect(await kv.keys()), ["c"], "keys after delete and purge");
  equal(await history(kv, "a"), [["", "PURGE"]], "history of the purged key");
  check(await absent(kv, "a"), "purged key");
});

scenario("K06", async (c) => {
  const kv = await bucket(c, { ttl: 3000 });
  await kv.put("k", "x");
  equal((await kv.get("k")).string(), "x", "value");
  await until(() => absent(kv, "k"), "the value expires");
});

scenario("K07", async (c) => {
  const kv = await bucket(c, { history: 4 });
  for (let i = 0; i < 3; i++) await kv.put(`k${i}`, "x");
  const status = await kv.status();
  equal([status.bucket, status.values, status.history], ["K07", 3, 4], "status");
  const kvm = new Kvm(c.js);
  check((await collect(kvm.list())).some((s) => s.bucket === "K07"), "not in the list");
  await (await kvm.open("K07")).status();
  check(await kv.destroy(), "delete");
  // open is lazy in nats.js; the first call on the bucket tells.
  const opened = (async () => await (await kvm.open("K07")).status())();
  await expectError(opened, "stream not found", (err) => err.code === 10059);
});
