// Connections of clients: who they are, what they do, what they listen on.

import { adjust, api, follow, go, link, params, part, session } from "./api.js";
import { ago, ask, badge, bytes, clear, command, count, failure, field, h, note, pager, table } from "./dom.js";
import { search } from "./streams.js";

const LIMIT = 50;
const EVERY_MS = 3000;
const per = (n) => (n === null ? "–" : n > 0 && n < 10 ? n.toFixed(1) : count(Math.round(n)));

function rates(rows, before, seconds) {
  const old = new Map((before ?? []).map((r) => [r.cid, r]));
  for (const r of rows) {
    const was = old.get(r.cid);
    const of = (key) => (was && seconds > 0 ? Math.max(0, r[key] - was[key]) / seconds : null);
    Object.assign(r, { in_rate: of("in_msgs"), out_rate: of("out_msgs"), out_byte_rate: of("out_bytes") });
  }
}

const who = (r) => (r.name || `client ${r.cid}`);

function columns(closed) {
  return [
    { name: "Client", wide: true, cell: (r) => [closed ? h("span.name", who(r)) : h("a.name", { href: link(["connections", String(r.cid)]) }, who(r)), h("small.block", `${r.ip}:${r.port}${r.lang ? ` · ${r.lang} ${r.version ?? ""}` : ""}`)] },
    { name: "User", cell: (r) => [h("span.name", r.authorized_user || "–"), r.account && h("small.block", r.account)] },
    closed && { name: "Reason", cell: (r) => badge(r.reason ?? "closed", "warn") },
    { name: closed ? "Messages in" : "In / s", num: true, cell: (r) => (closed ? count(r.in_msgs) : per(r.in_rate)) },
    { name: closed ? "Messages out" : "Out / s", num: true, cell: (r) => (closed ? count(r.out_msgs) : per(r.out_rate)) },
    !closed && { name: "Bytes out / s", num: true, cell: (r) => (r.out_byte_rate === null ? "–" : bytes(Math.round(r.out_byte_rate))) },
    !closed && { name: "Waiting", key: "pending", num: true, cell: (r) => (r.pending_bytes ? bytes(r.pending_bytes) : h("span.dim", "0")) },
    { name: "Subscriptions", key: "subs", num: true, cell: (r) => count(r.subscriptions) },
    { name: closed ? "Ended" : "Active", key: closed ? undefined : "last", cell: (r) => h("span.nowrap", ago(closed ? r.stop : r.last_activity)) },
  ].filter(Boolean);
}

async function list(content, query) {
  const path = `connections${params({ ...query, limit: LIMIT })}`;
  const closed = query.closed === "1";
  let before = await api("GET", path);
  let at = performance.now();
  const box = h("div.page");
  const listens = h("form.jump", { onsubmit: (e) => { e.preventDefault(); adjust({ subject: new FormData(listens).get("subject").trim(), offset: "" }); } },
    field("Who listens on", h("input", { name: "subject", value: query.subject ?? "", placeholder: "a subject, such as orders.new", spellcheck: "false" })),
    h("button", { type: "submit" }, "Show"), query.subject && h("button.quiet", { type: "button", onclick: () => adjust({ subject: "" }) }, "Everybody"));
  const fill = (found) => clear(box,
    found.more_than_looked_at ? h("p.hint", "There are more connections than can be looked at together: the first 1,024 in this order are shown.") : "",
    table(columns(closed), found.rows, { sort: query.sort, order: "desc", label: "Connections", onsort: (sort) => adjust({ sort, offset: "" }), empty: query.subject ? `No client listens on ${query.subject}.` : "No connection." }),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })));
  rates(before.rows, null, 0);
  fill(before);
  const tab = (text, value) => h("button.tab", { type: "button", "aria-pressed": String((query.closed ?? "") === value), onclick: () => adjust({ closed: value, sort: "", offset: "" }) }, text);
  content.append(h("div.title", h("h1", "Connections", h("small.beside", before.sees_server ? " of the whole server" : ` of ${session.account}`)), h("div.tools", h("div.tabs", tab("Open", ""), tab("Closed", "1")), search(query, "Search connections"))), listens, box);
  if (closed) return undefined;
  return follow(() => path, (found) => {
    const now = performance.now();
    if (now - at < EVERY_MS) return;
    rates(found.rows, before.rows, (now - at) / 1000);
    [before, at] = [found, now];
    fill(found);
  }, (error) => clear(box, failure(error)), () => document.querySelector("dialog") || box.contains(document.activeElement));
}

async function one(content, cid) {
  const r = await api("GET", `connections/${part(cid)}`);
  const row = (name, value) => [h("dt", name), h("dd", value)];
  const subs = r.subscriptions_list_detail ?? [];
  const kick = async () => {
    const done = await ask({
      title: "Close connection", text: "Its client is told and may connect again at once.", action: "Close connection", danger: true, confirm: cid,
      line: () => `${command("request", "$SYS.REQ.SERVER.PING.IDZ", "")}\n${command("request", "$SYS.REQ.SERVER.ID.KICK", JSON.stringify({ cid: r.cid }))}`,
      send: async (d) => { await api("POST", `connections/${part(cid)}/kick`, { confirm: d.get("confirm") }); note(`Connection ${cid} is closed.`); },
    });
    if (done) go(["connections"]);
  };
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/connections" }, "Connections"), " / "),
    h("div.title", h("h1", h("span.name", who(r))), h("div.tools", session.sees_server && !session.read_only && h("button.danger", { type: "button", onclick: kick }, "Close connection…"))),
    h("div.tiles", [["Messages in", count(r.in_msgs)], ["Messages out", count(r.out_msgs)], ["Bytes in", bytes(r.in_bytes)], ["Bytes out", bytes(r.out_bytes)], ["Waiting to be read", bytes(r.pending_bytes)]].map(([l, v]) => h("div.tile", h("span", l), h("b", v)))),
    h("div.columns",
      h("section", h("h2", "Client"), h("dl.facts", row("Number", String(r.cid)), row("Address", `${r.ip}:${r.port}`), row("User", h("span.name", r.authorized_user || "–")), row("Account", h("span.name", r.account || r.name_tag || "–")),
        row("Library", `${r.lang || "–"} ${r.version ?? ""}`), row("Up for", r.uptime), row("Idle for", r.idle), row("Round trip", r.rtt), row("TLS", r.tls_version ? `${r.tls_version}, ${r.tls_cipher_suite}` : "none"), r.stalls && row("Held back", `${count(r.stalls)} times, for others read too slowly`))),
      h("section", h("h2", "Subscriptions ", h("small", count(r.subscriptions))), subs.length ? h("div.table", h("table", h("thead", h("tr", h("th", "Subject"), h("th", "Queue group"), h("th.num", "Messages"))), h("tbody", subs.map((s) => h("tr", h("td", { "data-label": "Subject" }, h("span.name", s.subject)), h("td", { "data-label": "Queue group" }, h("span.name", s.qgroup || "–")), h("td.num", { "data-label": "Messages" }, count(s.msgs))))))) : h("p.dim", "None."),
        r.subscriptions_truncated && h("p.dim", "It has more."))));
}

export async function connections(content, [cid], query) {
  if (cid) return one(content, cid);
  return list(content, query);
}
