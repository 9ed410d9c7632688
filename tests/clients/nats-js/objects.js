/** O01 to O05: the object store. */
"use strict";

const { createHash, randomBytes } = require("node:crypto");
const { Objm } = require("@nats-io/obj");
const { TIMEOUT_MS, check, equal, expectError, iterate, next, scenario, until } = require("./harness");

async function store(c) {
  c.owns(`OBJ_${c.id}`);
  return await new Objm(c.js).create(c.id);
}

const sha = (data) => createHash("sha256").update(data).digest("base64");
/** The digest as the object store writes it: URL-safe, padded. */
const digest = (data) => `SHA-256=${sha(data).replaceAll("+", "-").replaceAll("/", "_")}`;
const bytes = (text) => new TextEncoder().encode(text);

/** A web stream of the data, in pieces of 1 MB. */
function streamOf(data) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= data.length) return controller.close();
      controller.enqueue(data.subarray(at, at += 1 << 20));
    },
  });
}

scenario("O01", async (c) => {
  const obj = await store(c);
  const data = randomBytes(300_000);
  const put = await obj.putBlob({ name: "an object" }, data);
  equal([put.name, put.size, put.chunks], ["an object", 300_000, 3], "put");
  const info = await obj.info("an object");
  equal([info.size, info.chunks, info.digest], [300_000, 3, digest(data)], "info");
  equal(sha(await obj.getBlob("an object")), sha(data), "content");
  equal((await obj.list()).map((i) => i.name), ["an object"], "list");
  await obj.delete("an object");
  // The client turns "not found" into null.
  equal(await obj.getBlob("an object"), null, "after the delete");
});

scenario("O02", async (c) => {
  const obj = await store(c);
  const data = randomBytes(50 * 1024 * 1024);
  const put = await obj.put({ name: "big" }, streamOf(data), { timeout: TIMEOUT_MS });
  equal([put.size, put.digest], [data.length, digest(data)], "put");
  const result = await obj.get("big");
  const sum = createHash("sha256");
  let size = 0;
  for await (const part of result.data) {
    sum.update(part);
    size += part.length;
  }
  check(!(await result.error), "the client reports an error");
  equal(size, data.length, "size");
  equal(sum.digest("base64"), sha(data), "SHA-256");
}, 360);

scenario("O03", async (c) => {
  const obj = await store(c);
  await obj.putBlob({ name: "o" }, new Uint8Array(500_000));
  await obj.putBlob({ name: "o" }, bytes("second"));
  equal(Buffer.from(await obj.getBlob("o")).toString(), "second", "content");
  await until(async () => (await c.state("OBJ_O03")).messages === 2, "chunks of the first object are purged");
});

scenario("O04", async (c) => {
  const obj = await store(c);
  const watch = iterate(await obj.watch());
  await obj.putBlob({ name: "one" }, bytes("1"));
  await obj.putBlob({ name: "two" }, bytes("2"));
  await obj.delete("one");
  for (const want of [["one", false], ["two", false], ["one", true]]) {
    const { name, deleted } = await next(watch);
    equal([name, Boolean(deleted)], want, "event");
  }
});

scenario("O05", async (c) => {
  const obj = await store(c);
  await obj.putBlob({ name: "o" }, new Uint8Array(1000));
  const status = await obj.status();
  equal(status.bucket, "O05", "bucket");
  check(status.size > 1000, `size ${status.size}`);
  check(await obj.destroy(), "delete");
  const opened = (async () => await new Objm(c.js).open("O05"))();
  await expectError(opened, "not found", (err) => /not found/.test(err.message));
});
