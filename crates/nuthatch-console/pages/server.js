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

/** What a bucket was asked, in the kinds in which stores bill: creations and listings cost about ten times as much as reads. */
function bucket({ requests: r, retries, put_bytes: written, get_bytes: read }) {
  const list = (...kinds) => kinds.map((kind) => `${kind} ${count(r[kind] ?? 0)}`).join(", ");
  const sum = (...kinds) => count(kinds.reduce((all, kind) => all + (r[kind] ?? 0), 0));
  return [row("Billed as writes", `${sum("put", "list")} requests: ${list("put", "list")}; ${bytes(written)} written`),
    row("Billed as reads", `${sum("get", "head")} requests: ${list("get", "head")}; ${bytes(read)} read`), row("Not billed", list("delete")), retries > 0 && row("Repeated", `${count(retries)} requests, for the bucket failed for a moment`)];
}

function log(l) {
  const share = l.segment_bytes ? l.live_bytes / l.segment_bytes : 0;
  const space = ["", "nearly full: the reserve is in use", "full"][l.space_state];
  return h("section", h("h2", h("span.name", l.name), " ", badge(l.mode), l.failed && badge("stopped", "warn"), space && badge(space, "warn")),
    h("div.meter", h("div.meter-head", h("span", "Live of what is stored"), h("b", bytes(l.live_bytes), h("small", ` of ${bytes(l.segment_bytes)}`))), h("progress", { max: 1, value: share, "aria-label": `Live part of ${l.name}` })),
    h("dl.facts.apart", row("Where", h("span.name", l.home)), row("An acknowledgement means", l.durability), row("Segments", count(l.segments)), row("Dead bytes", bytes(l.dead_bytes)),
      row("Commit", l.commit_us ? `half below ${us(l.commit_us.p50)}, 99 % below ${us(l.commit_us.p99)}, of ${count(l.commit_us.count)}` : "–"), row("Sync", l.sync_us ? `half below ${us(l.sync_us.p50)}, 99 % below ${us(l.sync_us.p99)}` : "–"),
      row("Not yet durable", l.committed_lsn > l.durable_lsn ? "something" : "nothing"), l.read_errors > 0 && row("Read errors", count(l.read_errors)),
      l.tier && [row("Moved to the bucket", `${bytes(l.tier.bytes)} in ${count(l.tier.segments)} segments`), row("Waiting to move", `${count(l.tier.waiting_segments)} segments`), l.tier.trouble && row("Trouble", l.tier.trouble)],
      l.store && bucket(l.store),
      l.store_cache && row("Cache", `${bytes(l.store_cache.bytes)} of ${bytes(l.store_cache.max_bytes)}`)));
}

const FINDINGS_SHOWN = 50;

/** What the doctor said of a log when it last mended it. */
function lastReport(r) {
  if (!r.report) return h("p.dim", `The doctor mended it at ${r.mended_at}; what it said is not kept there.`);
  const { findings = [], lost = [], applied } = r.report;
  const rows = [...findings.map((f) => ({ ...f, what: [f.what, f.action && h("small.block", f.action)] })), ...lost.map((l) => ({ severity: "lost", kind: l.stream, file: "–", what: `sequence ${count(l.first)} to ${count(l.last)}` }))];
  const columns = [
    { name: "Kind", wide: true, cell: (f) => [h("span.name", f.kind), " ", badge(f.severity, f.severity === "note" ? undefined : "warn")] },
    { name: "File", cell: (f) => h("span.name", f.file || "the log") },
    { name: "What was found", cell: (f) => h("span", f.what) },
  ];
  return [h("p", `The doctor looked at ${r.mended_at}`, applied?.mended ? ", and mended it:" : ":"), table(columns, rows.slice(0, FINDINGS_SHOWN), { label: `Findings of ${r.log}`, empty: "It named nothing." }), rows.length > FINDINGS_SHOWN && h("p.dim", `and ${count(rows.length - FINDINGS_SHOWN)} more`), applied?.kept_in && h("p.dim", "What it replaced is kept in ", h("span.name", applied.kept_in))];
}

function findings(rows) {
  const many = (n, what) => n > 0 && h("p.hint", `${count(n)} ${what}`);
  const shown = rows.filter((r) => r.damaged_places || r.torn_frames || r.unusable_files || r.mended_at);
  return [h("h2.apart", "Findings"), shown.length ? shown.map((r) => h("section", h("h2", h("span.name", r.log)),
    many(r.damaged_places, "places cannot be read: their messages wait. Copy the store, then run the doctor."),
    many(r.torn_frames, "incomplete frames at the end were cut off by the start: they were never acknowledged."),
    many(r.unusable_files, "checkpoints or footers could not be used by the start. If that comes back, the medium is failing."),
    r.mended_at && lastReport(r))) : h("p.dim", "Nothing is known to be wrong, and the doctor has mended nothing here."),
  h("p.dim", h("code", "nuthatch doctor DIR"), " reads everything, while the server is stopped; without ", h("code", "--apply"), " it leaves nothing behind.")];
}

export async function storage(content) {
  const [logs, wrong] = [h("div.page"), h("div.page")];
  const show = (found) => [
    h("h1", "Logs and storage"),
    found.logs?.length ? h("div.columns", found.logs.map(log)) : h("p.dim", "JetStream is off: there are no logs."),
    h("p.dim", "Times are powers of two, since the start. nuthatch log report, log inspect and doctor tell more."),
  ];
  content.append(logs, wrong);
  const ending = await live(logs, "logs", show);
  clear(wrong, findings((await api("GET", "findings")).rows));
  return ending;
}

function settings(value, path, out) {
  for (const [key, inner] of Object.entries(value)) {
    const name = path ? `${path}.${key}` : key;
    if (inner && typeof inner === "object" && !Array.isArray(inner)) settings(inner, name, out);
    else out.push([name, inner]);
  }
  return out;
}

const COUNTED = /^(in_|out_|mem$|cpu$|now$|uptime$|connections$|total_connections|subscriptions$|go$|gomaxprocs|proto$|cores$|config_load_time|config_digest|slow_|stale_|stalled_|refused_|routes$|remotes$|leafnodes$|jetstream\.stats)/;

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
  const [{ written, reload, ...found }, leafs] = await Promise.all([api("GET", "configuration"), api("GET", "leafs")]);
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
