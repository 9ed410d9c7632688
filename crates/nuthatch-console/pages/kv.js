// Key-value buckets, keys, and one key with its history.

import { adjust, api, follow, go, link, params, part, session } from "./api.js";
import { ago, ask, badge, bytes, clear, command, count, encode, field, h, kindOf, note, pager, payload, save, table, time } from "./dom.js";
import { body } from "./messages.js";
import { newBucket } from "./buckets.js";
import { search } from "./streams.js";
import { changes } from "./changes.js";

const LIMIT = 50;
const again = () => window.dispatchEvent(new Event("console-refresh"));

async function buckets(content, query) {
  const found = await api("GET", `kv${params({ ...query, limit: LIMIT })}`);
  const columns = [
    { name: "Bucket", key: "name", wide: true, cell: (r) => [h("a.name", { href: link(["kv", r.name.slice(3)]) }, r.name.slice(3)), " ", r.storage === "memory" && badge("memory"), r.description && h("small.block", r.description)] },
    { name: "Values kept", key: "messages", num: true, cell: (r) => count(r.messages) },
    { name: "Size", key: "bytes", num: true, cell: (r) => bytes(r.bytes) },
    { name: "History", num: true, cell: (r) => count(r.history) },
    { name: "Last change", cell: (r) => h("span.nowrap", ago(r.last_time)) },
  ];
  content.append(h("div.title", h("h1", "Key-value buckets"), h("div.tools", search(query, "Search buckets"), !session.read_only && h("button.primary", { type: "button", onclick: async () => { const name = await newBucket("kv"); if (name) go(["kv", name]); } }, "Create bucket…"))),
    table(columns, found.rows, { sort: found.sorted_by, order: query.order ?? "asc", label: "Buckets", onsort: (sort, order) => adjust({ sort, order, offset: "" }), empty: query.search ? "No bucket has such a name." : "There are no buckets yet." }),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })));
}

/** Put a value: a new key, or a key's next value, only if nobody was quicker. */
const put = (bucket, { key = "", text = "", revision = null } = {}) => {
  let done = key;
  return ask({
    title: key ? "Put value" : "New key", action: "Put",
    text: revision ? `Only if revision ${count(revision)} is still the newest.` : undefined,
    fields: [
      key ? h("p", h("b.name", key)) : field("Key", h("input", { name: "key", required: true, autofocus: true, spellcheck: "false", autocomplete: "off" }), "Letters, digits and - / _ = ."),
      field("Value", h("textarea.code", { name: "value", rows: 8, value: text, spellcheck: "false" })),
    ],
    line: (d) => (revision ? command("kv", "update", bucket, key, d.get("value") ?? "", revision) : command("kv", key ? "put" : "create", bucket, key || d.get("key") || "KEY", d.get("value") ?? "")),
    send: async (d) => {
      done = key || String(d.get("key")).trim();
      const found = await api("PUT", `kv/${part(bucket)}/entry`, { key: done, data: encode(d.get("value").replaceAll("\r\n", "\n")), revision: key ? revision : 0 });
      note(`${done} is at revision ${count(found.revision)}.`);
    },
  }).then((ok) => (ok ? done : null));
};

const crumbs = (...parts) => h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/kv" }, "Key-value"), " / ", parts.map((p) => [p, " / "]));
const operation = (op) => (op === "PUT" ? null : badge(op === "PURGE" ? "purged" : "deleted", "warn"));

function preview(row) {
  if (row.operation !== "PUT") return operation(row.operation);
  const seen = kindOf(payload(row.data), row.truncated);
  if (seen.kind === "hex") return [badge("binary"), " ", bytes(row.size)];
  return seen.kind === "empty" ? h("span.dim", "empty") : h("span.preview", (seen.raw ?? seen.text).replace(/\s+/g, " ").slice(0, 120));
}

/** Shows a page again when it has changed, while its box is ticked; nothing that somebody works on is taken away. */
function watched(content, query, path, show) {
  const live = h("input", { type: "checkbox", name: "live", checked: query.live === "1", onchange: () => adjust({ live: live.checked ? "1" : "" }) });
  const box = h("label.check", live, "Live");
  if (query.live !== "1") return { box, stop: undefined };
  const inUse = () => document.querySelector("dialog") || content.querySelector("details[open] .tab:focus, input:focus:not([type=checkbox])");
  return { box, stop: follow(() => path, show, (error) => note(error.message, "bad"), inUse) };
}

async function keys(content, bucket, query) {
  const { live: _live, ...asked } = query;
  const path = `kv/${part(bucket)}/keys${params({ ...asked, limit: LIMIT })}`;
  const found = await api("GET", path);
  const columns = [
    { name: "Key", key: "name", cell: (r) => h("a.name", { href: link(["kv", bucket, r.key]) }, r.key) },
    { name: "Value", wide: true, cell: preview },
    { name: "Revision", num: true, cell: (r) => count(r.seq) },
    { name: "Size", num: true, cell: (r) => bytes(r.size) },
    { name: "Changed", cell: (r) => h("span.nowrap", { title: r.time }, ago(r.time)) },
  ];
  const all = (page) => table(columns, page.rows, { sort: "name", order: query.order ?? "asc", label: "Keys", onsort: (_s, order) => adjust({ order, offset: "" }), empty: query.search ? "No key has such a name." : "The bucket is empty." });
  const rows = h("div", all(found));
  const live = watched(content, query, path, (page) => clear(rows, all(page)));
  content.append(crumbs(),
    h("div.title", h("h1", h("span.name", bucket)), h("div.tools", live.box, search(query, "Search keys"), !session.read_only && h("button.primary", { type: "button", onclick: async () => { const key = await put(bucket); if (key) go(["kv", bucket, key]); } }, "New key…"))),
    found.more_than_looked_at ? h("p.hint", "There are more keys than are looked through.") : "",
    rows,
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })));
  return live.stop;
}

/** A list has the beginnings of older values: this is one in full. */
async function showAll(event, bucket, key, r) {
  const box = event.target.closest(".message-body");
  try {
    const found = await api("GET", `kv/${part(bucket)}/entry${params({ key, revision: r.seq })}`);
    box.querySelector(".payload").replaceWith(body(found, null));
  } catch (error) { note(error.message, "bad"); }
}

async function one(content, bucket, key, query) {
  const path = `kv/${part(bucket)}/entry?key=${part(key)}`;
  const found = await api("GET", path);
  let [newest] = found.history;
  const asText = (r) => { try { return new TextDecoder("utf-8", { fatal: true }).decode(payload(r.data)); } catch { return null; } };
  const change = async () => { if (await put(bucket, { key, text: asText(newest) ?? "", revision: newest.seq })) again(); };
  const revert = async (r) => { if (await put(bucket, { key, text: asText(r), revision: newest.seq })) again(); };
  const remove = async () => {
    const done = await ask({
      title: "Delete key", action: "Delete key", danger: true, confirm: key,
      fields: [h("label.check", h("input", { type: "checkbox", name: "purge" }), "Its history too")],
      line: (d) => command("kv", d.get("purge") ? "purge" : "del", bucket, key, "--force"),
      send: async (d) => { await api("DELETE", `kv/${part(bucket)}/entry`, { key, confirm: d.get("confirm"), purge: d.get("purge") === "on" }); note(`${key} is deleted.`); },
    });
    if (done) again();
  };
  const difference = (r, before) => {
    const [now, then] = [r, before].map((one) => (one && one.operation === "PUT" && !one.truncated ? asText(one) : null));
    return now !== null && then !== null && now !== then ? changes(then, now, `Since revision ${count(before.seq)}`) : "";
  };
  const revisions = (history) => history.map((r, at) => h("details.message", { open: at === 0, "data-seq": r.seq },
    h("summary", h("span.seq", count(r.seq)), h("span.subject", at === 0 ? "newest" : "", " ", operation(r.operation)), h("span.when", time(r.time)), h("span.size", bytes(r.size)), h("span.preview", r.operation === "PUT" ? preview(r) : "")),
    h("div.message-body", body(r, r.truncated && at > 0 && h("button.tab", { type: "button", onclick: (e) => showAll(e, bucket, key, r) }, "Show all")), at > 0 && r.operation === "PUT" && !session.read_only && asText(r) !== null && !r.truncated && h("div.tools", h("button", { type: "button", onclick: () => revert(r) }, "Make it the newest…")), difference(r, history[at + 1]))));
  const list = h("div.messages", revisions(found.history));
  const live = watched(content, query, path, ({ history }) => {
    if (history[0].seq === newest.seq) return;
    [newest] = history;
    const open = new Set([...list.querySelectorAll("details[open]")].map((d) => d.dataset.seq));
    clear(list, revisions(history));
    for (const d of list.children) d.open ||= open.has(d.dataset.seq);
  });
  content.append(crumbs(h("a.name", { href: link(["kv", bucket]) }, bucket)),
    h("div.title", h("h1", h("span.name", key)), h("div.tools", live.box,
      h("button", { type: "button", onclick: () => save(payload(newest.data), `${bucket}-${key}`) }, "Download"),
      !session.read_only && [
        h("button", { type: "button", onclick: change, disabled: newest.truncated || asText(newest) === null }, "Put value…"),
        h("button.danger", { type: "button", onclick: remove }, "Delete…"),
      ])),
    h("section", h("h2", "History"), list),
    found.is_whole ? "" : h("p.hint", "The values are large: not all of the older ones are shown. The command shows them."),
    h("p.dim", h("code", command("kv", query.live === "1" ? "watch" : "history", bucket, key))));
  return live.stop;
}

export async function kv(content, [bucket, key], query) {
  if (bucket && key) return one(content, bucket, key, query);
  if (bucket) return keys(content, bucket, query);
  return buckets(content, query);
}
