/** Scenario registry, bounded runner and small assertions shared by the nats.js scenarios. */
"use strict";

const { isDeepStrictEqual, inspect } = require("node:util");
const { setTimeout: sleep } = require("node:timers/promises");
const { connect, headers } = require("@nats-io/transport-node");
const { jetstream, jetstreamManager, AckPolicy } = require("@nats-io/jetstream");

/**
 * How long anything may take that must come, and a scenario: machines may be slow. What comes late does not make a scenario
 * fail unless it says so; what must not come, or not too soon, does.
 */
const TIMEOUT_MS = 60_000;
const DEFAULT_LIMIT_S = 180;
/** Publishes in flight at once. */
const PUBLISH_WINDOW = 1000;
/** The shortest expiry that the client's fetch and next accept. */
const MIN_EXPIRES_MS = 1000;
const SCENARIOS = [];

class Skip extends Error {}
class Failed extends Error {}

/** Registers an async function `run(c)` under its id of SCENARIOS.md. */
function scenario(id, run, limitS = DEFAULT_LIMIT_S) {
  SCENARIOS.push({ id, run, limitS });
}

function check(cond, what) {
  if (!cond) throw new Failed(what);
}

function short(value) {
  return inspect(value, { breakLength: Infinity }).slice(0, 200);
}

function equal(got, want, what) {
  if (!isDeepStrictEqual(got, want)) throw new Failed(`${what}: got ${short(got)}, want ${short(want)}`);
}

/** The call must fail with an error that satisfies the predicate. */
async function expectError(promise, what, is) {
  let result;
  try {
    result = await promise;
  } catch (err) {
    check(is(err), `${what} expected, got ${err}`);
    return;
  }
  throw new Failed(`${what} expected, got ${short(result)}`);
}

/** The call must fail with this JetStream err_code. */
function expectCode(promise, code) {
  return expectError(promise, `error ${code}`, (err) => err.code === code);
}

/** Polls an async predicate until it is true. */
async function until(probe, what, withinMs = TIMEOUT_MS) {
  for (const deadline = Date.now() + withinMs; Date.now() < deadline; await sleep(20)) {
    if (await probe()) return;
  }
  throw new Failed(`not within ${withinMs} ms: ${what}`);
}

/** The next value of an async iterator, which must come. */
async function next(iterator) {
  const timer = new AbortController();
  const late = sleep(TIMEOUT_MS, "late", { signal: timer.signal }).catch(() => "off");
  const first = await Promise.race([iterator.next(), late]);
  timer.abort();
  check(first !== "late", `nothing within ${TIMEOUT_MS} ms`);
  check(!first.done, "the iterator ended");
  return first.value;
}

const iterate = (iterable) => iterable[Symbol.asyncIterator]();

async function collect(iterable) {
  const out = [];
  for await (const item of iterable) out.push(item);
  return out;
}

const span = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
const number = (msg) => Number(msg.string());
const nanos = (ms) => ms * 1_000_000;

function header(pairs) {
  const h = headers();
  for (const [name, value] of Object.entries(pairs)) h.append(name, value);
  return h;
}

/** One scenario's connections, and the streams to delete at its end. */
class Ctx {
  constructor(url, id) {
    Object.assign(this, { url, id, low: id.toLowerCase(), conns: [], streams: [] });
  }

  async open() {
    this.nc = await this.connect();
    this.jsm = await jetstreamManager(this.nc, { timeout: TIMEOUT_MS, checkAPI: false });
    this.js = this.jsm.jetstream();
  }

  async connect() {
    const nc = await connect({ servers: this.url, reconnect: false, timeout: TIMEOUT_MS });
    this.conns.push(nc);
    return nc;
  }

  owns(stream) {
    this.streams.push(stream);
  }

  /** Creates a stream of this scenario and returns its name. */
  async stream(suffix = "", config = {}) {
    const name = this.id + suffix;
    this.owns(name);
    await this.jsm.streams.add({ name, subjects: [`${name.toLowerCase()}.>`], ...config });
    return name;
  }

  /** Creates a durable pull consumer (explicit ack unless told otherwise). */
  async consumer(stream, name = "c", config = {}) {
    await this.jsm.consumers.add(stream, { durable_name: name, ack_policy: AckPolicy.Explicit, ...config });
    return await this.js.consumers.get(stream, name);
  }

  async state(stream) {
    return (await this.jsm.streams.info(stream)).state;
  }

  put(subject, body = "x", options = {}) {
    return this.js.publish(subject, String(body), options);
  }

  /** Publishes the numbers 0 to count-1 synchronously. */
  async putMany(subject, count) {
    for (let i = 0; i < count; i++) await this.put(subject, i);
  }

  /** Publishes asynchronously; the acks must carry 1, 2, 3 ... in order. */
  async putAsync(subject, count, body) {
    const window = [];
    let acked = 0;
    const takeAck = async () => {
      const ack = await window.shift();
      if (ack.seq !== ++acked) equal(ack.seq, acked, "sequence of an ack");
    };
    for (let i = 0; i < count; i++) {
      if (window.length === PUBLISH_WINDOW) await takeAck();
      window.push(this.js.publish(subject, body(i), { timeout: TIMEOUT_MS }));
    }
    while (window.length > 0) await takeAck();
  }

  async close() {
    for (const name of this.streams) await this.jsm.streams.delete(name).catch(() => {});
    for (const nc of this.conns) await nc.close().catch(() => {});
  }
}

/** Up to max_messages messages of one fetch. */
async function fetch(consumer, count, expires = TIMEOUT_MS) {
  const iter = await consumer.fetch({ max_messages: count, expires: Math.max(expires, MIN_EXPIRES_MS) });
  return await collect(iter);
}

async function fetchOne(consumer) {
  const [msg] = await fetch(consumer, 1);
  check(msg, `no message within ${TIMEOUT_MS} ms`);
  return msg;
}

async function nothingMore(consumer, withinMs) {
  // Where a machine stands still for a while, the client misses heartbeats: nothing has come then either.
  const msgs = await fetch(consumer, 1, withinMs).catch((err) => {
    check(/heartbeats missed/.test(err.message), err);
    return [];
  });
  check(msgs.length === 0, `unexpected message ${short(msgs[0]?.info)}`);
}

async function bounded(promise, limitS) {
  const timer = new AbortController();
  const late = sleep(limitS * 1000, null, { signal: timer.signal }).then(
    () => Promise.reject(new Failed(`timeout after ${limitS} s`)),
    () => {},
  );
  try {
    await Promise.race([promise, late]);
  } finally {
    timer.abort();
  }
}

/** Runs one scenario and prints its line; returns ok, FAIL or skip. */
async function runOne(url, { id, run, limitS }) {
  const c = new Ctx(url, id);
  const began = Date.now();
  let verdict = "ok";
  let tail = "";
  try {
    await bounded(c.open(), (2 * TIMEOUT_MS) / 1000);
    await bounded(run(c), limitS);
    tail = String(Date.now() - began);
  } catch (err) {
    verdict = err instanceof Skip ? "skip" : "FAIL";
    tail = (err instanceof Skip || err instanceof Failed ? err.message : `${err.name}: ${err.message}`)
      .replaceAll("\n", " ");
  }
  await bounded(c.close(), (2 * TIMEOUT_MS) / 1000).catch(() => {});
  console.log(verdict, id, tail);
  return verdict;
}

/** Makes the stream that stays throughout the run; SCENARIOS.md says why. */
async function createKeeper(url) {
  const nc = await connect({ servers: url, timeout: TIMEOUT_MS });
  const jsm = await jetstreamManager(nc, { timeout: TIMEOUT_MS, checkAPI: false });
  // Without JetStream the scenarios that need it will say the same.
  await jsm.streams.add({ name: "KEEPER", subjects: ["keeper"] })
    .catch((err) => console.error(`no stream KEEPER: ${err}`));
  await nc.close();
}

/** Runs all scenarios (or those of `only`) and tells whether all is well. */
async function runAll(url, only) {
  await createKeeper(url);
  const tally = { ok: 0, FAIL: 0, skip: 0 };
  for (const one of SCENARIOS) {
    if (only.length === 0 || only.includes(one.id)) tally[await runOne(url, one)]++;
  }
  console.log(`${tally.ok} passed, ${tally.FAIL} failed, ${tally.skip} skipped`);
  return tally.FAIL === 0 && tally.ok > 0;
}

module.exports = {
  TIMEOUT_MS, Skip, check, collect, equal, expectCode, expectError, fetch, fetchOne, header, iterate, jetstream, nanos, next,
  nothingMore, number, runAll, scenario, short, sleep, span, until,
};
