// Overview: is all well, what is going on, how much is used.

import { api, follow, session } from "./api.js";
import { chart } from "./charts.js";
import { badge, bytes, clear, count, failure, h, span } from "./dom.js";

const EVERY_MS = 2000;
const HISTORY_MS = 10000;

/** What a counter did since the last look, for each second. */
function rate(now, before, seconds, pick) {
  const [a, b] = [pick(now), pick(before)];
  if (a === undefined || b === undefined || seconds <= 0) return null;
  return Math.max(0, a - b) / seconds;
}

const perSecond = (value) => (value === null ? "–" : `${value < 10 && value > 0 ? value.toFixed(1) : count(Math.round(value))}`);

function meter(label, used, limit, show) {
  const has = limit > 0;
  const part = has ? Math.min(1, used / limit) : 0;
  return h("div.meter", h("div.meter-head", h("span", label), h("b", show(used), has && h("small", ` of ${show(limit)}`), !has && h("small", " · no limit"))),
    has && h("progress", { max: 1, value: part, "aria-label": label, class: part > 0.9 ? "bad" : part > 0.75 ? "warn" : "" }));
}

const tile = (label, value, unit) => h("div.tile", h("span", label), h("b", value), unit && h("small", unit));

/** The hour that the server has kept. */
function hour(found) {
  if (found.error) return h("p.dim", found.error);
  if (!found.ages_ms.length) return h("p.dim", "The first points come within half a minute of the server's start.");
  const of = (title, show, ...lines) => chart({ title, show, isBytes: show !== count && show !== perSecond, ages: found.ages_ms, hour: found.step_ms * found.points_max, lines: lines.map(([name, key]) => ({ name, values: found[key] })) });
  return h("div.charts",
    of("Messages per second", perSecond, ["in", "in_messages"], ["out", "out_messages"]),
    of("Bytes per second", (n) => bytes(Math.round(n)), ["in", "in_bytes"], ["out", "out_bytes"]),
    of("Connections", count, ["", "connections"]),
    of("Stored by streams", bytes, ["", "stored_bytes"]));
}

function page(found, before, seconds, history) {
  const js = found.account.jetstream;
  const traffic = found.traffic;
  const old = before?.traffic;
  const r = (pick) => (traffic && old ? rate(traffic, old, seconds, pick) : null);
  const limits = js?.limits ?? {};
  return [
    h("h1", "Overview"),
    h("section.health", { class: found.troubles.length ? "bad" : found.forecasts.length ? "warn" : "good" },
      h("span.dot", { "aria-hidden": "true" }),
      h("div", found.troubles.length || found.forecasts.length ? [...found.troubles, ...found.forecasts].map((text) => h("p", text)) : h("p", `All is well. ${found.server} has been up for ${span(found.uptime_ms)}.`))),
    h("section", h("h2", "Traffic of the account", h("small", ` ${session.account}`)),
      traffic ? h("div.tiles",
        tile("Messages in", perSecond(r((t) => t.received?.msgs)), "per second"),
        tile("Messages out", perSecond(r((t) => t.sent?.msgs)), "per second"),
        tile("Bytes in", r((t) => t.received?.bytes) === null ? "–" : bytes(Math.round(r((t) => t.received?.bytes))), "per second"),
        tile("Bytes out", r((t) => t.sent?.bytes) === null ? "–" : bytes(Math.round(r((t) => t.sent?.bytes))), "per second"),
        tile("Connections", count(traffic.conns)),
        tile("Subscriptions", count(traffic.num_subscriptions)),
        tile("Slow consumers", count(traffic.slow_consumers)))
        : h("p.dim", "Your user may not ask for the account's traffic.")),
    h("section", h("h2", "The last hour", h("small", " kept by the server in memory")), history),
    h("section", h("h2", "Storage"),
      js ? h("div.meters",
        meter("On disk", js.storage ?? 0, limits.max_storage, bytes),
        meter("In memory", js.memory ?? 0, limits.max_memory, bytes),
        meter("Streams", js.streams ?? 0, limits.max_streams, count),
        meter("Consumers", js.consumers ?? 0, limits.max_consumers, count))
        : h("p.dim", `JetStream does not answer: ${found.account.jetstream_error}`)),
    h("div.columns", h("section", h("h2", "Durability"),
      h("dl.facts", found.durability.map(({ log, words }) => [h("dt", `Log ${log}`), h("dd", words, /^no fsync|power cut/.test(words) && [" ", badge("weaker", "warn")])]),
        !found.durability.length && h("dd", "Nothing is stored on disk."))),
    h("section", h("h2", "Server"),
      h("dl.facts", h("dt", "Name"), h("dd", h("span.name", found.server)), h("dt", "Version"), h("dd", found.version),
        h("dt", "Up for"), h("dd", span(found.uptime_ms)), h("dt", "Largest message"), h("dd", bytes(found.max_payload)),
        js?.api && [h("dt", "API requests"), h("dd", `${count(js.api.total)}, ${count(js.api.errors)} of them refused`)]))),
  ];
}

export async function overview(content) {
  const ask = () => api("GET", "history").catch((error) => ({ error: error.message }));
  let [before, kept] = await Promise.all([api("GET", "overview"), ask()]);
  let at = performance.now();
  let asked = at;
  let history = hour(kept);
  clear(content, page(before, null, 0, history));
  return follow(() => "overview", async (found) => {
    const now = performance.now();
    if (now - at < EVERY_MS) return;
    if (now - asked > HISTORY_MS) { asked = now; history = hour(await ask()); }
    if (!content.isConnected) return;
    clear(content, page(found, before, (now - at) / 1000, history));
    [before, at] = [found, now];
  }, (error) => { if (content.isConnected) clear(content, h("h1", "Overview"), failure(error)); });
}
