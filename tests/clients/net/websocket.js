/** nats.js over websocket in Node: core messages, a stream, a large message, TLS, users, reconnects. */
"use strict";

const { readFileSync } = require("node:fs");
const { jetstream, jetstreamManager } = require("@nats-io/jetstream");
const { wsconnect } = require("@nats-io/nats-core");
const WebSocket = require("ws");

const [url, secureUrl, caFile] = process.argv.slice(2);

/** Node 20 has no WebSocket of its own; `ws` offers compression, as browsers do. */
class Trusting extends WebSocket {
  constructor(target, protocols) {
    super(target, protocols, { ca: readFileSync(caFile) });
  }
}
globalThis.WebSocket = Trusting;

function check(cond, what) {
  if (!cond) throw new Error(what);
}

async function core(nc) {
  const sub = nc.subscribe("echo", { callback: (err, msg) => err ?? msg.respond(msg.data) });
  const answer = await nc.request("echo", "hello", { timeout: 60_000 });
  check(answer.string() === "hello", `the answer is ${answer.string()}`);
  sub.unsubscribe();
  const big = "x".repeat(700_000);
  const large = nc.subscribe("large", { max: 1 });
  nc.publish("large", big);
  for await (const msg of large) check(msg.string() === big, "a large message is what it was");
}

async function stream(nc) {
  const jsm = await jetstreamManager(nc, { timeout: 60_000 });
  await jsm.streams.add({ name: "WS", subjects: ["ws.>"] });
  const js = jetstream(nc, { timeout: 60_000 });
  const acks = await Promise.all(
    Array.from({ length: 500 }, (_, n) => js.publish(`ws.${n % 7}`, `message ${n}`)),
  );
  check(acks.at(-1).seq === 500, `the last sequence is ${acks.at(-1).seq}`);
  await jsm.consumers.add("WS", { durable_name: "reader", ack_policy: "explicit" });
  const consumer = await js.consumers.get("WS", "reader");
  const messages = await consumer.consume({ max_messages: 100 });
  let count = 0;
  for await (const msg of messages) {
    check(msg.string() === `message ${count}`, `message ${count} is ${msg.string()}`);
    msg.ack();
    if (++count === 500) break;
  }
  await jsm.streams.delete("WS");
}

async function main() {
  for (const target of [url, secureUrl]) {
    const nc = await wsconnect({ servers: target, user: "web", pass: "web", timeout: 60_000 });
    await core(nc);
    await stream(nc);
    await nc.flush();
    await nc.close();
    console.log(`ok ${target}`);
  }
  const refused = await wsconnect({ servers: url, user: "tcp", pass: "tcp" }).then(
    (nc) => nc.close().then(() => false),
    (err) => /auth/i.test(err.message),
  );
  check(refused, "a user who may not use websocket is refused");
  console.log("ok allowed_connection_types");
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
