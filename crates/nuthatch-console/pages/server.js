// The server: logs below the streams, leaf nodes, configuration; and what happens, as it happens.

import { api, follow, session } from "./api.js";
import { ago, badge, bytes, clear, count, failure, h, span, table, time } from "./dom.js";

/** Shows a page, and again when it has changed, until it is left. */
async function live(content, path, show) {
  clear(content, show(await api("GET", path)));
  return follow(() => path, (found) => clear(content, show(found)), (error) => clear(content, failure(error)), () => content.contains(document.activeElement));
}

const us = (n) => (n === undefined || n === null ? "–" : n < 1000 ? `${count(n)} µs` : `${count(Math.round(n / 1000))} ms`);
const row = (name, value) => [h("dt", name), h("dd", value)];

function log(l) {
  const share = l.segment_bytes ? l.live_bytes / l.segment_bytes : 0;
  const space = ["", "nearly full: the reserve is in use", "full"][l.space_state];
  return h("section", h("h2", h("span.name", l.name), " ", badge(l.mode), l.failed && badge("stopped", "warn"), space && badge(space, "warn")),
    h("div.meter", h("div.meter-head", h("span", "Live of what is stored"), h("b", bytes(l.live_bytes), h("small", ` of ${bytes(l.segment_bytes)}`))), h("progress", { max: 1, value: share, "aria-label": `Live part of ${l.name}` })),
    h("dl.facts.apart", row("Where", h("span.name", l.home)), row("An acknowledgement means", l.durability), row("Segments", count(l.segments)), row("Dead bytes", bytes(l.dead_bytes)),
      row("Commit", l.commit_us ? `half below ${us(l.commit_us.p50)}, 99 % below ${us(l.commit_us.p99)}, of ${count(l.commit_us.count)}` : "–"), row("Sync", l.sync_us ? `half below ${us(l.sync_us.p50)}, 99 % below ${us(l.sync_us.p99)}` : "–"),
      row("Not yet durable", l.committed_lsn > l.durable_lsn ? "something" : "nothing"), l.read_errors > 0 && row("Read errors", count(l.read_errors)),
      l.tier && [row("Moved to the bucket", `${bytes(l.tier.bytes)} in ${count(l.tier.segments)} segments`), row("Waiting to move", `${count(l.tier.waiting_segments)} segments`), l.tier.trouble && row("Trouble", l.tier.trouble)],
      l.store && row("Requests of the bucket", Object.entries(l.store.requests).map(([k, n]) => `${k} ${count(n)}`).join(", ")),
      l.store_cache && row("Cache", `${bytes(l.store_cache.bytes)} of ${bytes(l.store_cache.max_bytes)}`)));
}

export const storage = (content) => live(content, "logs", (found) => [
  h("h1", "Logs and storage"),
  found.logs?.length ? h("div.columns", found.logs.map(log)) : h("p.dim", "JetStream is off: there are no logs."),
  h("p.dim", "Times are powers of two, since the start. nuthatch log report, log inspect and doctor tell more."),
]);

function settings(value, path, out) {
  for (const [key, inner] of Object.entries(value)) {
    const name = path ? `${path}.${key}` : key;
    if (inner && typeof inner === "object" && !Array.isArray(inner)) settings(inner, name, out);
    else out.push([name, inner]);
  }
  return out;
}

const COUNTED = /^(in_|out_|mem$|cpu$|now$|uptime$|connections$|total_connections|subscriptions$|go$|gomaxprocs|proto$|cores$|config_load_time|config_digest|slow_|stale_|stalled_|refused_|routes$|remotes$|leafnodes$|jetstream\.stats)/;

/** Nodes with the connections to them: each account has one of its own. */
function nodesTable(routes) {
  const nodes = new Map();
  for (const r of routes) {
    const known = nodes.get(r.remote_name);
    if (known) { known.accounts += 1; known.in += r.in_msgs; known.out += r.out_msgs; } else nodes.set(r.remote_name, { ...r, accounts: 1, in: r.in_msgs, out: r.out_msgs });
  }
  const columns = [
    { name: "Node", wide: true, cell: (r) => h("span.name", r.remote_name) },
    { name: "Address", cell: (r) => `${r.ip}:${r.port}` },
    { name: "Accounts", num: true, cell: (r) => count(r.accounts) },
    { name: "Round trip", num: true, cell: (r) => r.rtt },
    { name: "Up for", num: true, cell: (r) => r.uptime },
    { name: "Messages in", num: true, cell: (r) => count(r.in) },
    { name: "Messages out", num: true, cell: (r) => count(r.out) },
  ];
  return table(columns, [...nodes.values()], { label: "Nodes", empty: "This server is alone." });
}

/** What the file says now, where, and what reading it again would change. */
function fromFile(written, reload) {
  const keys = (all) => all.map((key, i) => [i > 0 && ", ", h("b.name", key)]);
  const columns = [
    { name: "Setting", wide: true, cell: (r) => h("span.name", r.key) },
    { name: "Value", cell: (r) => (r.value === null ? h("span.dim", "not shown") : h("span.name", r.value)) },
    { name: "Where", cell: (r) => h("span.name", r.place) },
  ];
  const plan = () => {
    if (reload.error) return h("p.failure", `It would be refused: ${reload.error}`);
    if (reload.restart.length) return h("p.hint", "It would be refused: ", keys(reload.restart), reload.restart.length === 1 ? " needs" : " need", " a restart.", reload.now.length > 0 && [" Changed too: ", keys(reload.now), "."]);
    return reload.now.length ? h("p", "It would change at once: ", keys(reload.now), ".") : h("p.dim", "Nothing: the file says what is in force.");
  };
  return [
    h("section", h("h2", "What a reload would change"), plan(), h("p.dim", h("code", "nuthatch serve -sl reload"))),
    h("h2.apart", "In the file"),
    written.error ? h("p.failure", written.error) : table(columns, written, { label: "Settings of the file", empty: "There is no configuration file: flags and defaults alone." }),
  ];
}

export async function server(content) {
  const [{ written, reload, ...found }, leafs, nodes] = await Promise.all([api("GET", "configuration"), api("GET", "leafs"), api("GET", "nodes")]);
  const all = settings(found, "", []).filter(([name, v]) => !COUNTED.test(name) && v !== "").sort(([a], [b]) => (a < b ? -1 : 1));
  const columns = [
    { name: "Server", wide: true, cell: (r) => h("span.name", r.name || r.id || "–") },
    { name: "Account", cell: (r) => h("span.name", r.account ?? "–") },
    { name: "Address", cell: (r) => `${r.ip}:${r.port}` },
    { name: "Messages in", num: true, cell: (r) => count(r.in_msgs) },
    { name: "Messages out", num: true, cell: (r) => count(r.out_msgs) },
    { name: "Subscriptions", num: true, cell: (r) => count(r.subscriptions) },
  ];
  content.append(h("h1", "Server"),
    h("div.tiles", [["Connections", count(found.connections)], ["Memory", bytes(found.mem)], ["Processor", `${found.cpu} %`], ["Up for", found.uptime], ["Slow consumers", count(found.slow_consumers)]].map(([l, v]) => h("div.tile", h("span", l), h("b", v)))),
    h("h2.apart", "Other nodes of the cluster"), nodesTable(nodes.routes ?? []),
    h("h2.apart", "Leaf nodes"), table(columns, leafs.leafs ?? [], { label: "Leaf nodes", empty: "No leaf node is connected." }),
    h("section", h("h2", "Configuration in force", h("small", " loaded ", ago(found.config_load_time))), h("dl.facts", all.map(([name, v]) => row(h("span.name", name), h("span.name", typeof v === "string" ? v : JSON.stringify(v)))))),
    h("p.dim", "Without secrets. Defaults are shown as what is set."), ...fromFile(written, reload));
}

const short = (subject) => subject.replace(/^\$JS\.EVENT\.ADVISORY\./, "").split(".").slice(0, 2).join(" ").toLowerCase().replaceAll("_", " ");

export async function events(content) {
  let newest = 0;
  const rows = h("div.messages");
  const add = (found) => {
    if (found.rows.length) rows.querySelector(".empty")?.remove();
    rows.prepend(...found.rows.map((r) => h("details.message.event", h("summary", h("span.when", time(r.body.timestamp)), h("span.subject", short(r.subject)), h("span.preview", [r.body.stream, r.body.consumer, r.body.stream_seq && `message ${r.body.stream_seq}`, r.body.action, r.body.reason].filter(Boolean).join(" · "))),
      h("div.message-body", h("code", r.subject), h("pre.box", JSON.stringify(r.body, null, 2))))));
    newest = Math.max(newest, ...found.rows.map((r) => r.id));
    while (rows.children.length > found.kept_max) rows.lastChild.remove();
  };
  const first = await api("GET", "events");
  rows.append(h("p.empty", "Nothing has happened yet."));
  add(first);
  content.append(h("div.title", h("h1", "Events"), h("div.tools", badge("live"))),
    h("p.lead", `What has happened to streams and consumers of ${session.account}.`), rows,
    h("p.dim", `The newest ${count(first.kept_max)} are kept in memory, since the server's start ${span(first.uptime_ms)} ago. `, h("code", "nuthatch events")));
  return follow(() => `events?after=${newest}`, add, (error) => content.prepend(failure(error)));
}
