// Consumers over all streams, those that lag most first; and one consumer.

import { adjust, api, go, link, params, part, session } from "./api.js";
import { ago, ask, badge, command, count, field, h, note, pager, table, time } from "./dom.js";
import { delivery } from "./delivery.js";
import { search } from "./streams.js";

const LIMIT = 50;

export function consumerTable(found, query, withStream) {
  const { sort = "pending", order = "desc" } = query;
  const zero = (n) => (n ? count(n) : h("span.dim", "0"));
  const columns = [
    { name: "Consumer", key: "name", wide: true, cell: (r) => [h("a.name", { href: link(["consumers", r.stream, r.name]) }, r.name), " ", r.paused && badge("paused", "warn"), r.push && badge("push"), !r.durable && badge("ephemeral")] },
    withStream && { name: "Stream", key: "stream", cell: (r) => h("a.name", { href: link(["streams", r.stream]) }, r.stream) },
    { name: "Pending", key: "pending", num: true, cell: (r) => zero(r.pending) },
    { name: "Outstanding", key: "outstanding", num: true, cell: (r) => zero(r.outstanding) },
    { name: "Redelivered", key: "redelivered", num: true, cell: (r) => zero(r.redelivered) },
    { name: "Waiting", key: "waiting", num: true, cell: (r) => zero(r.waiting) },
    { name: "Last delivery", cell: (r) => h("span.nowrap", ago(r.last_active)) },
  ].filter(Boolean);
  return table(columns, found.rows, { sort, order, label: "Consumers", onsort: (s, o) => adjust({ sort: s, order: o, offset: "" }), empty: query.search ? "No consumer has such a name." : "There are no consumers." });
}

async function list(content, query) {
  const found = await api("GET", `consumers${params({ ...query, limit: LIMIT })}`);
  content.append(
    h("div.title", h("h1", "Consumers"), h("div.tools", search(query, "Search consumers"))),
    found.more_than_looked_at ? h("p.hint", "There are more consumers than can be looked at together: those of the first streams are shown. A stream's page has its own.") : "",
    consumerTable(found, query, true),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (o) => adjust({ offset: o })));
}

const inOneHour = () => { const at = new Date(Date.now() + 3600e3); at.setMinutes(at.getMinutes() - at.getTimezoneOffset()); return at.toISOString().slice(0, 19); };

/** Clients whose pulls wait, or who listen on the subject of a push consumer. */
async function listeners(path, c) {
  const found = await api("GET", `${path}/listeners`);
  if (found.is_denied) return h("span.dim", "your user may not see connections");
  if (!found.rows.length) return h("span.dim", c.deliver_subject ? "nobody" : found.waiting ? "clients elsewhere" : "nobody now");
  const pulls = (r) => (c.deliver_subject ? "" : r.pulls === 1 ? ", one pull" : `, ${count(r.pulls)} pulls`);
  return found.rows.map((r) => h("span.block", h("a.name", { href: link(["connections", String(r.cid)]) }, r.name || `client ${r.cid}`), h("small", ` ${r.authorized_user ?? ""} ${r.ip}:${r.port}${pulls(r)}`)));
}

async function one(content, stream, name) {
  const path = `streams/${part(stream)}/consumers/${part(name)}`;
  const info = await api("GET", path);
  const { config: c } = info;
  const again = () => window.dispatchEvent(new Event("console-refresh"));
  const row = (label, value) => [h("dt", label), h("dd", value)];
  const until = (d) => new Date(d.get("until")).toISOString();
  const pause = async () => {
    const done = await ask({
      title: "Pause consumer", text: "Nothing is delivered until then.", action: "Pause",
      fields: [field("Until", h("input", { name: "until", type: "datetime-local", step: "1", value: inOneHour(), required: true }))],
      line: (d) => command("consumer", "pause", stream, name, d.get("until") ? until(d) : "1h", "--force"),
      send: async (d) => { await api("POST", `${path}/pause`, { until: until(d) }); note(`${name} is paused.`); },
    });
    if (done) again();
  };
  const resume = async () => {
    const done = await ask({
      title: "Resume consumer", text: "Messages are delivered again.", action: "Resume", line: () => command("consumer", "resume", stream, name),
      send: async () => { await api("POST", `${path}/pause`, {}); note(`${name} goes on.`); },
    });
    if (done) again();
  };
  const floor = info.ack_floor?.stream_seq ?? 0;
  const preview = h("p.hint", { "aria-live": "polite" });
  const reset = async () => {
    const stored = await api("GET", `streams/${part(stream)}`);
    const { first_seq: first, last_seq: last } = stored.state;
    const tell = (d) => {
      const to = d.get("seq").trim() === "" ? floor + 1 : Number(d.get("seq"));
      if (!Number.isSafeInteger(to) || to < 1) { preview.textContent = "A sequence is a whole number above 0."; return; }
      const from = Math.max(to, first);
      const many = Math.max(0, last - from + 1);
      const again = Math.max(0, Math.min(floor, last) - from + 1);
      preview.textContent = `It goes on at ${count(from)}: up to ${count(many)} messages are delivered${again ? `, ${count(again)} of them were acknowledged and come again` : ""}${from > floor + 1 ? `; ${count(Math.min(from - 1, last) - floor)} behind what was acknowledged are skipped` : ""}. What is outstanding now is forgotten.`;
    };
    const seq = h("input", { name: "seq", inputmode: "numeric", placeholder: `${floor + 1}, behind what was acknowledged` });
    seq.addEventListener("input", () => tell(new FormData(seq.form)));
    tell(new Map([["seq", ""]]));
    const done = await ask({
      title: "Reset consumer", action: "Reset", danger: true, confirm: name, fields: [field("Go on at sequence", seq), preview],
      line: (d) => command("request", `$JS.API.CONSUMER.RESET.${stream}.${name}`, d.get("seq") ? JSON.stringify({ seq: Number(d.get("seq")) }) : "{}"),
      send: async (d) => { const body = { confirm: d.get("confirm") }; if (d.get("seq")) body.seq = Number(d.get("seq")); const found = await api("POST", `${path}/reset`, body); note(`${name} goes on at ${count(found.reset_seq)}.`); },
    });
    if (done) again();
  };
  const remove = async () => {
    const done = await ask({
      title: "Delete consumer", text: "What it has acknowledged is forgotten with it. The messages stay, unless the stream keeps them for its consumers only.", action: "Delete consumer", danger: true, confirm: name,
      line: () => command("consumer", "rm", stream, name, "--force"),
      send: async (d) => { await api("DELETE", path, { confirm: d.get("confirm") }); note(`Consumer ${name} is deleted.`); },
    });
    if (done) go(["streams", stream]);
  };
  // Without an answer the rest of the page is still worth showing.
  const who = await listeners(path, c).catch((e) => h("span.dim", `not known: ${e.message}`));
  const filters = c.filter_subjects?.length ? c.filter_subjects.join(", ") : c.filter_subject || "all subjects";
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/consumers" }, "Consumers"), " / ", h("a.name", { href: link(["streams", stream]) }, stream), " / "),
    h("div.title", h("h1", h("span.name", name), " ", info.paused && badge("paused", "warn")), h("div.tools",
      !session.read_only && [
        info.paused ? h("button", { type: "button", onclick: resume }, "Resume…") : h("button", { type: "button", onclick: pause }, "Pause…"),
        h("button", { type: "button", onclick: () => reset().catch((e) => note(e.message, "bad")) }, "Reset…"),
        h("button.danger", { type: "button", onclick: remove }, "Delete…"),
      ])),
    c.description ? h("p.lead", c.description) : "",
    h("div.tiles", [["Pending", info.num_pending], ["Outstanding", info.num_ack_pending], ["Redelivered", info.num_redelivered], ["Waiting pulls", info.num_waiting]].map(([l, v]) => h("div.tile", h("span", l), h("b", count(v ?? 0))))),
    h("div.columns",
      h("section", h("h2", "State"), h("dl.facts",
        row("Delivered up to", [count(info.delivered?.stream_seq), " ", time(info.delivered?.last_active)]), row("Acknowledged up to", [count(info.ack_floor?.stream_seq), " ", time(info.ack_floor?.last_active)]),
        info.oldest_outstanding && row("Oldest outstanding", [h("a", { href: link(["messages", stream], { seq: info.oldest_outstanding.seq, dir: "forward" }) }, count(info.oldest_outstanding.seq)), `, stored ${ago(info.oldest_outstanding.time)} `, h("span.name", info.oldest_outstanding.subject)]),
        row(c.deliver_subject ? "Who listens" : "Who pulls", who),
        info.paused && row("Paused until", time(c.pause_until)), row("Created", time(info.created)))),
      h("section", h("h2", "Configuration"), h("dl.facts",
        row("Kind", c.deliver_subject ? ["push to ", h("span.name", c.deliver_subject)] : "pull"), row("Filter", h("span.subjects", filters)), row("Begins with", c.deliver_policy), row("Acknowledgement", c.ack_policy),
        row("Waits for it", c.ack_wait ? `${c.ack_wait / 1e9} s` : "–"), row("Deliveries", c.max_deliver > 0 ? count(c.max_deliver) : "no limit"), row("Most outstanding", c.max_ack_pending > 0 ? count(c.max_ack_pending) : "no limit")))),
    !session.read_only && !c.deliver_subject ? delivery(stream, name, path) : "",
    h("details", h("summary", "As JSON"), h("pre.box", JSON.stringify(info, null, 2))));
}

export async function consumers(content, [stream, name], query) {
  if (stream && name) await one(content, stream, name);
  else await list(content, query);
}
