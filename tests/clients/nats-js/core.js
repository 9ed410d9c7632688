/** C01 to C10: core publish/subscribe, request/reply, headers, drain, limits. */
"use strict";

const { createHash, randomBytes } = require("node:crypto");
const { TIMEOUT_MS, check, equal, expectError, header, number, scenario, sleep, span, until } = require("./harness");

/** Subscribes and returns the array that fills up. */
function gather(nc, subject, options = {}) {
  const got = [];
  nc.subscribe(subject, { ...options, callback: (_err, msg) => got.push(msg) });
  return got;
}

scenario("C01", async (c) => {
  const [star, mid, rest] = ["c01.*", "c01.*.x", "c01.>"].map((s) => gather(c.nc, s));
  for (const subject of ["c01", "c01.a", "c01.b", "c01.a.x", "c01.a.y"]) c.nc.publish(subject, "x");
  await c.nc.flush();
  await sleep(200);
  const subjects = (msgs) => msgs.map((m) => m.subject);
  equal(subjects(star), ["c01.a", "c01.b"], "c01.*");
  equal(subjects(mid), ["c01.a.x"], "c01.*.x");
  equal(subjects(rest), ["c01.a", "c01.b", "c01.a.x", "c01.a.y"], "c01.>");
});

scenario("C02", async (c) => {
  const members = [];
  for (let i = 0; i < 3; i++) {
    const nc = await c.connect();
    members.push(gather(nc, "c02.q", { queue: "workers" }));
    await nc.flush();
  }
  const plain = gather(c.nc, "c02.q");
  for (let i = 0; i < 300; i++) c.nc.publish("c02.q", String(i));
  await until(() => members.flat().length >= 300 && plain.length >= 300, "300 messages");
  await sleep(100);
  equal(members.flat().map(number).sort((a, b) => a - b), span(0, 300), "group");
  equal(plain.map(number), span(0, 300), "plain subscriber");
  check(members.every((m) => m.length > 0), "a member got nothing");
});

scenario("C03", async (c) => {
  const responder = await c.connect();
  responder.subscribe("c03.*", { callback: (_err, msg) => msg.respond(`re:${msg.string()}`) });
  await responder.flush();
  for (let i = 0; i < 200; i++) {
    const reply = await c.nc.request(`c03.${i}`, String(i), { timeout: TIMEOUT_MS });
    equal(reply.string(), `re:${i}`, "reply");
  }
});

scenario("C04", async (c) => {
  const began = Date.now();
  const request = c.nc.request("c04.nobody", "?", { timeout: TIMEOUT_MS });
  await expectError(request, "no responders", (err) => err.isNoResponders?.());
  check(Date.now() - began < TIMEOUT_MS / 2, "took as long as a request may");
});

scenario("C05", async (c) => {
  const sent = header({ "X-Mixed-Case": "a b: c;d", lower: "1", "X-Two": "one", "X-Utf": "grüße" });
  sent.append("X-Two", "two");
  const got = gather(c.nc, "c05.h");
  const bodies = ["line\r\nline\x00end", ""];
  for (const body of bodies) c.nc.publish("c05.h", body, { headers: sent });
  await until(() => got.length === 2, "two messages");
  for (const [i, msg] of got.entries()) {
    equal(msg.string(), bodies[i], "payload");
    equal([...msg.headers], [...sent], "headers");
  }
  c.nc.subscribe("c05.r", {
    callback: (_err, msg) => msg.respond("", { headers: header({ Echo: msg.headers.get("Ask") }) }),
  });
  const reply = await c.nc.request("c05.r", "", { timeout: TIMEOUT_MS, headers: header({ Ask: "v 1" }) });
  equal(reply.headers.get("Echo"), "v 1", "reply header");
});

scenario("C06", async (c) => {
  const receiver = await c.connect();
  const got = [];
  const sub = receiver.subscribe("c06.d");
  const reading = (async () => {
    for await (const msg of sub) {
      await sleep(2);
      got.push(msg.string());
    }
  })();
  await receiver.flush();
  for (let i = 0; i < 100; i++) c.nc.publish("c06.d", String(i));
  await c.nc.flush();
  await receiver.flush();
  await sub.drain();
  for (let i = 0; i < 10; i++) c.nc.publish("c06.d", "late");
  await c.nc.flush();
  await reading;
  await receiver.drain();
  equal(got, span(0, 100).map(String), "drained messages");
  check(receiver.isClosed(), "the connection is not closed after drain");
});

scenario("C07", async (c) => {
  const got = gather(c.nc, "c07.u", { max: 5 });
  for (let i = 0; i < 10; i++) c.nc.publish("c07.u", String(i));
  await c.nc.flush();
  await sleep(300);
  equal(got.map(number), span(0, 5), "messages");
});

scenario("C08", async (c) => {
  const limit = c.nc.info.max_payload;
  const got = gather(c.nc, "c08.p");
  const tooMuch = (async () => c.nc.publish("c08.p", new Uint8Array(limit + 1)))();
  await expectError(tooMuch, "max_payload error", (err) => /max_payload/.test(err.message));
  const body = new Uint8Array(limit).fill(0xab);
  c.nc.publish("c08.p", body);
  await until(() => got.length === 1, "the message of max_payload bytes");
  check(Buffer.compare(got[0].data, body) === 0, "payload differs");
});

scenario("C09", async (c) => {
  const responder = await c.connect();
  responder.subscribe("c09.echo", { callback: (_err, msg) => msg.respond(msg.data) });
  await responder.flush();
  const sha = (data) => createHash("sha256").update(data).digest("hex");
  for (let i = 0; i < 20; i++) {
    const body = randomBytes(Math.min(1_000_000, c.nc.info.max_payload));
    const reply = await c.nc.request("c09.echo", body, { timeout: TIMEOUT_MS });
    equal(sha(reply.data), sha(body), "SHA-256");
  }
});

scenario("C10", async (c) => {
  const count = 20_000;
  const receiver = await c.connect();
  const got = gather(receiver, "c10.o");
  await receiver.flush();
  for (let i = 0; i < count; i++) c.nc.publish("c10.o", String(i));
  await c.nc.flush();
  await until(() => got.length >= count, "all messages");
  equal(got.map(number), span(0, count), "order");
  const { headers, jetstream, max_payload: maxPayload } = c.nc.info;
  check(headers === true && jetstream === true && maxPayload > 0, `INFO ${JSON.stringify(c.nc.info)}`);
});
