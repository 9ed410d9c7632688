// Moleculer: two nodes that find each other over NATS, calls, balanced calls, events, a node that leaves.
const assert = require("node:assert");
const { ServiceBroker } = require("moleculer");

const events = [];
const broker = (nodeID, url) => new ServiceBroker({ nodeID, transporter: url, logger: false, heartbeatInterval: 1 });

async function main(url) {
  const caller = broker("caller", url);
  const nodes = ["one", "two"].map((name) => {
    const node = broker(name, url);
    node.createService({
      name: "math",
      actions: { add: (ctx) => ctx.params.a + ctx.params.b, where: () => name, fail() { throw new Error("not today"); } },
      events: { "math.noted": (ctx) => events.push(`${name} ${ctx.params}`) },
    });
    return node;
  });
  await Promise.all([caller, ...nodes].map((node) => node.start()));
  await caller.waitForServices("math", 30000);
  for (let n = 0; n < 20; n++) assert.strictEqual(await caller.call("math.add", { a: n, b: 1 }), n + 1);
  const seen = new Set();
  for (let n = 0; seen.size < 2 && n < 300; n++) {
    seen.add(await caller.call("math.where"));
    await new Promise((go) => setTimeout(go, 20));
  }
  assert.deepStrictEqual([...seen].sort(), ["one", "two"], "calls are balanced");
  await assert.rejects(caller.call("math.fail"), /not today/);
  await caller.broadcast("math.noted", "all");
  for (let n = 0; events.length < 2 && n < 300; n++) await new Promise((go) => setTimeout(go, 100));
  assert.deepStrictEqual(events.sort(), ["one all", "two all"]);
  await nodes[0].stop();
  for (let n = 0; n < 10; n++) assert.strictEqual(await caller.call("math.where"), "two");
  await nodes[1].stop();
  await caller.stop();
  console.log("moleculer: discovery, calls, balance, errors, events");
}
main(process.argv[2]).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
