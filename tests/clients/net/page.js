/** Runs in the browser: publishes to a stream over websocket and reads it back. */
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { wsconnect } from "@nats-io/nats-core";

const MESSAGES = 200;
const TIMEOUT_MS = 60_000;

window.run = async (servers) => {
  const nc = await wsconnect({ servers, user: "web", pass: "web", timeout: TIMEOUT_MS });
  const jsm = await jetstreamManager(nc, { timeout: TIMEOUT_MS });
  await jsm.streams.add({ name: "BROWSER", subjects: ["browser.>"] });
  const js = jetstream(nc, { timeout: TIMEOUT_MS });
  const body = (n) => `${n} ${"nuthatch ".repeat(n)}`;
  await Promise.all(Array.from({ length: MESSAGES }, (_, n) => js.publish("browser.x", body(n))));
  await jsm.consumers.add("BROWSER", { durable_name: "page", ack_policy: "explicit" });
  const consumer = await js.consumers.get("BROWSER", "page");
  let good = 0;
  for await (const msg of await consumer.consume()) {
    if (msg.string() === body(good)) good += 1;
    await msg.ackAck();
    if (msg.seq === MESSAGES) break;
  }
  const info = await jsm.consumers.info("BROWSER", "page");
  await jsm.streams.delete("BROWSER");
  const server = nc.info.server_name;
  await nc.close();
  return { good, pending: info.num_pending + info.num_ack_pending, server };
};

/** What a page from elsewhere gets. */
window.refused = (url) =>
  new Promise((resolve) => {
    const socket = new WebSocket(url);
    socket.onopen = () => resolve(false);
    socket.onerror = () => resolve(true);
  });
