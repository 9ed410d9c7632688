// Messages that consumers have given up: tried too often, or terminated.

import { adjust, api, link, params, session } from "./api.js";
import { ago, ask, badge, bytes, command, count, field, h, kindOf, note, pager, payload, quote, span, table } from "./dom.js";
import { search } from "./streams.js";

const LIMIT = 25;
const again = () => window.dispatchEvent(new Event("console-refresh"));

function shown(row) {
  if (row.error) return h("span.dim", row.error);
  if (!row.message) return badge("gone from the stream", "warn");
  const seen = kindOf(payload(row.message.data), row.message.truncated);
  if (seen.kind === "empty") return h("span.dim", "empty");
  if (seen.kind === "hex") return [badge("binary"), " ", bytes(row.message.size)];
  return h("span.preview", (seen.raw ?? seen.text).replace(/\s+/g, " ").slice(0, 160));
}

const some = (rows) => `${count(rows.length)} ${rows.length === 1 ? "message" : "messages"}`;

async function act(what, rows, extra = {}) {
  const found = await api("POST", `dead/${what}`, { ids: rows.map((r) => r.id), ...extra });
  if (found.failed.length) throw new Error(`${found.done} done, ${found.failed.length} not: ${found.failed[0].error}`);
  note(`${some(rows)}: ${what === "retry" ? "published again" : what === "discard" ? "discarded" : "taken off the list"}.`);
}

const retry = (rows) => ask({
  title: `Try ${some(rows)} again`, action: "Try again",
  text: "Each is published again, so every consumer of its subject gets it anew, with the tries counted from one.",
  fields: [
    field("Publish to", h("input", { name: "subject", placeholder: "their own subjects", spellcheck: "false" }), "Another subject moves them there"),
    h("label.check", h("input", { type: "checkbox", name: "remove", checked: true }), "Delete the originals once that is stored"),
  ],
  line: (d) => rows.map((r) => `nuthatch stream get ${quote(r.stream)} ${r.seq} --raw | nuthatch pub ${quote(d.get("subject") || r.message?.subject || "SUBJECT")} - -J${d.get("remove") ? ` && ${command("stream", "rmm", r.stream, r.seq, "--force")}` : ""}`).join("\n"),
  send: (d) => act("retry", rows, { subject: d.get("subject").trim(), remove: d.get("remove") === "on" }),
});

const discard = (rows) => ask({
  title: `Discard ${some(rows)}`, action: "Discard", danger: true, confirm: "discard", text: "They are erased from their streams, for every consumer.",
  line: () => rows.map((r) => command("stream", "rmm", r.stream, r.seq, "--force")).join("\n"),
  send: (d) => act("discard", rows, { confirm: d.get("confirm") }),
});

export async function dead(content, _rest, query) {
  const found = await api("GET", `dead${params({ ...query, limit: LIMIT })}`);
  const chosen = new Set();
  const of = () => found.rows.filter((r) => chosen.has(r.id));
  const words = h("span.dim");
  const buttons = [
    h("button", { type: "button", onclick: async () => { if (await retry(of())) again(); } }, "Try again…"),
    h("button", { type: "button", onclick: async () => { try { await act("forget", of()); again(); } catch (e) { note(e.message, "bad"); } } }, "Take off the list"),
    h("button.danger", { type: "button", onclick: async () => { if (await discard(of())) again(); } }, "Discard…"),
  ];
  const update = () => {
    words.textContent = chosen.size ? `${count(chosen.size)} chosen` : "";
    buttons.forEach((b) => { b.disabled = chosen.size === 0; });
    all.checked = chosen.size > 0 && chosen.size === found.rows.length;
  };
  const boxes = found.rows.map((r) => h("input", { type: "checkbox", "aria-label": `Choose message ${r.seq} of ${r.stream}`, onchange: (e) => { if (e.target.checked) chosen.add(r.id); else chosen.delete(r.id); update(); } }));
  const all = h("input", { type: "checkbox", name: "all", onchange: () => { for (const [i, r] of found.rows.entries()) { boxes[i].checked = all.checked; if (all.checked) chosen.add(r.id); else chosen.delete(r.id); } update(); } });
  const columns = [
    !session.read_only && { name: "", cell: (r) => boxes[found.rows.indexOf(r)] },
    { name: "Message", cell: (r) => [h("a.name", { href: link(["messages", r.stream], { seq: r.seq, dir: "forward" }) }, `${r.stream} ${count(r.seq)}`), r.message && h("small.block.name", r.message.subject)] },
    { name: "Consumer", cell: (r) => h("a.name", { href: link(["consumers", r.stream, r.consumer]) }, r.consumer) },
    { name: "Why", cell: (r) => [badge(r.kind, "warn"), r.reason && h("small.block", r.reason)] },
    { name: "Tries", num: true, cell: (r) => count(r.deliveries) },
    { name: "Given up", cell: (r) => h("span.nowrap", { title: r.time }, ago(r.time)) },
    { name: "Payload", wide: true, cell: shown },
  ].filter(Boolean);
  content.append(
    h("div.title", h("h1", "Stuck messages"), h("div.tools", search(query, "Search"))),
    h("p.lead", "What consumers have given up: delivered as often as they may be, or terminated by their clients. The messages are still in their streams."),
    found.total && !session.read_only ? h("div.bar", h("label.check", all, "All on this page"), words, h("div.tools", buttons)) : "",
    table(columns, found.rows, { label: "Stuck messages", empty: query.search ? "Nothing of this name." : "Nothing is stuck, as far as this server has heard since its start." }),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })),
    h("p.dim", `The list is kept in memory, the newest ${count(found.kept_max)} of the account: it begins with the server's start ${span(found.uptime_ms)} ago.${found.left_out ? ` ${count(found.left_out)} older ones were left out.` : ""}`));
  update();
}
