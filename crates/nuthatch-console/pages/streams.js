// Streams: the list, and one stream with its consumers.

import { adjust, api, go, link, params, part, session } from "./api.js";
import { ago, ask, badge, bytes, clear, command, count, field, h, note, pager, table, time } from "./dom.js";
import { consumerTable } from "./consumers.js";
import { streamForm } from "./stream-form.js";

const LIMIT = 50;

/** A search field whose words go into the address when one pauses. */
export function search(query, label) {
  let timer;
  const input = h("input", {
    type: "search", placeholder: `${label}  /`, "aria-label": label, value: query.search ?? "", spellcheck: "false",
    oninput: () => { clearTimeout(timer); timer = setTimeout(() => { sessionStorage.setItem("refocus", "1"); adjust({ search: input.value, offset: "" }); }, 250); },
  });
  if (sessionStorage.getItem("refocus")) {
    sessionStorage.removeItem("refocus");
    setTimeout(() => { input.focus(); input.setSelectionRange(input.value.length, input.value.length); });
  }
  return input;
}

const kindOf = (row) => [
  row.mirror && badge(`mirror of ${row.mirror}`),
  row.sources > 0 && badge(`${row.sources} ${row.sources === 1 ? "source" : "sources"}`),
  row.storage === "memory" && badge("memory"),
  row.retention !== "limits" && badge(row.retention === "workqueue" ? "work queue" : row.retention),
];

function list(content, query) {
  const { sort = "name", order = "asc" } = query;
  const offset = Number(query.offset ?? 0);
  return api("GET", `streams${params({ ...query, limit: LIMIT })}`).then((found) => {
    const columns = [
      { name: "Stream", key: "name", wide: true, cell: (r) => [h("a.name", { href: link(["streams", r.name]) }, r.name), " ", kindOf(r), r.description && h("small.block", r.description)] },
      { name: "Subjects", cell: (r) => h("span.subjects", (r.subjects ?? []).slice(0, 3).join(", "), (r.subjects ?? []).length > 3 && ` and ${r.subjects.length - 3} more`) },
      { name: "Messages", key: "messages", num: true, cell: (r) => count(r.messages) },
      { name: "Size", key: "bytes", num: true, cell: (r) => bytes(r.bytes) },
      { name: "Consumers", key: "consumers", num: true, cell: (r) => count(r.consumers) },
      { name: "Last message", cell: (r) => h("span.nowrap", { title: r.last_time }, ago(r.last_time)) },
    ];
    content.append(
      h("div.title", h("h1", "Streams"), h("div.tools", search(query, "Search streams"), !session.read_only && h("a.button.primary", { href: "#/streams/+create" }, "Create stream"))),
      found.sorted_by !== sort && h("p.hint", "Too many streams to sort them by that: they are sorted by name. A search makes them fewer.") || "",
      table(columns, found.rows, { sort: found.sorted_by, order, label: "Streams", onsort: (s, o) => adjust({ sort: s, order: o, offset: "" }), empty: query.search ? "No stream has such a name." : "There are no streams yet." }),
      pager(offset, LIMIT, found.total, (o) => adjust({ offset: o })));
  });
}

const purge = (name) => ask({
  title: "Purge stream", text: "Removes messages. They cannot be brought back.", action: "Purge", danger: true, confirm: name,
  fields: [
    field("Only this subject", h("input", { name: "filter", placeholder: "all subjects", spellcheck: "false" })),
    field("Only before this sequence", h("input", { name: "seq", inputmode: "numeric", placeholder: "all" })),
    field("Keep so many of the newest", h("input", { name: "keep", inputmode: "numeric", placeholder: "none" })),
  ],
  line: (d) => command("stream", "purge", name, ...(d.get("filter") ? ["--subject", d.get("filter")] : []), ...(d.get("seq") ? ["--seq", d.get("seq")] : []), ...(d.get("keep") ? ["--keep", d.get("keep")] : []), "--force"),
  send: async (d) => {
    const number = (key) => {
      if (!d.get(key)) return null;
      const n = Number(d.get(key));
      if (!Number.isSafeInteger(n)) throw new Error(`${d.get(key)} is not a whole number that a browser can hold`);
      return n;
    };
    const found = await api("POST", `streams/${part(name)}/purge`, { confirm: d.get("confirm"), filter: d.get("filter"), seq: number("seq"), keep: number("keep") });
    note(`${count(found.purged)} messages are gone.`);
  },
});

const remove = (name) => ask({
  title: "Delete stream", text: "The stream goes, with all its messages and consumers.", action: "Delete stream", danger: true, confirm: name,
  line: () => command("stream", "rm", name, "--force"),
  send: async (d) => { await api("DELETE", `streams/${part(name)}`, { confirm: d.get("confirm") }); note(`Stream ${name} is deleted.`); },
});

const seal = (name) => ask({
  title: "Seal stream", text: "Nothing can be added, deleted or changed any more, and no limit removes anything. It cannot be unsealed.", action: "Seal", danger: true, confirm: name,
  line: () => command("stream", "seal", name, "--force"),
  send: async () => { const { config } = await api("GET", `streams/${part(name)}`); await api("PUT", "streams", { ...config, sealed: true }); note(`${name} is sealed.`); },
});

async function relocate(name) {
  const [now, { durability }] = await Promise.all([api("GET", `streams/${part(name)}/move`), api("GET", "overview")]);
  const logs = durability.map((d) => d.log).filter((log) => log !== now.log);
  return ask({
    title: "Move stream", action: "Move", confirm: name, text: logs.length ? `It is in the log ${now.log}. It stays in use while its messages are copied.` : `It is in the log ${now.log}, and the configuration names no other.`,
    fields: [field("To the log", h("select", { name: "log", required: true }, logs.map((log) => h("option", { value: log }, log))))],
    line: (d) => command("stream", "move", name, "--log", d.get("log") || "LOG"),
    send: async (d) => { await api("POST", `streams/${part(name)}/move`, { confirm: name, log: d.get("log") ?? "" }); note(`${name} is moving to ${d.get("log")}.`); },
  });
}

/** How a move is doing; it looks again while one is under way. */
function moving(name, first) {
  const box = h("div");
  const show = (m) => {
    if (!m.moving) { clear(box, m.move?.error ? h("p.failure", `The move to ${m.move.to} has failed: ${m.move.error}`) : m.move ? h("p.dim", `It lives in the log ${m.log} now.`) : ""); return; }
    const { from, to, copied_seq: copied, last_seq: last, error } = m.move;
    clear(box, h("section", h("h2", `Moving from ${from} to ${to}`), h("progress", { max: 1, value: last ? copied / last : 0, "aria-label": "Moved" }), h("p.dim", `${count(copied)} of ${count(last)}`), error && h("p.failure", error),
      !session.read_only && h("button", { type: "button", onclick: async () => { try { await api("POST", `streams/${part(name)}/move`, { confirm: name, cancel: true }); } catch (e) { note(e.message, "bad"); } } }, "Give the move up")));
  };
  show(first);
  if (!first.moving) return [box, undefined];
  const timer = setInterval(async () => { try { const m = await api("GET", `streams/${part(name)}/move`); show(m); if (!m.moving) clearInterval(timer); } catch { clearInterval(timer); } }, 1000);
  return [box, () => clearInterval(timer)];
}

const duration = (ns) => (!ns ? "no limit" : `${ns / 1e9 >= 86400 ? `${+(ns / 864e11).toFixed(2)} d` : ns / 1e9 >= 3600 ? `${+(ns / 36e11).toFixed(2)} h` : `${+(ns / 1e9).toFixed(3)} s`}`);
const limited = (n, show) => (n === undefined || n < 0 || n === 0 ? "no limit" : show(n));

function facts(info, move) {
  const { config: c, state: s } = info;
  const row = (name, value) => [h("dt", name), h("dd", value)];
  const copy = (kind, x) => row(kind, [h("a.name", { href: link(["streams", x.name]) }, x.name), `, ${count(x.lag)} behind`, x.active > 0 ? `, heard from ${duration(x.active)} ago` : ", not heard from yet", x.error?.description && h("p.failure", x.error.description)]);
  return h("div.columns",
    h("section", h("h2", "State"), h("dl.facts",
      row("Messages", count(s.messages)), row("Size", bytes(s.bytes)), row("Subjects", count(s.num_subjects ?? 0)),
      row("First", [count(s.first_seq), " ", time(s.first_ts)]), row("Last", [count(s.last_seq), " ", time(s.last_ts)]),
      row("Deleted in between", count(s.num_deleted ?? 0)), row("Created", time(info.created)),
      info.mirror && copy("Mirror of", info.mirror),
      (info.sources ?? []).map((x) => copy("Source", x)))),
    h("section", h("h2", "Configuration"), h("dl.facts",
      row("Subjects", h("span.subjects", (c.subjects ?? []).join(", ") || "–")), row("Storage", move.log ? `${c.storage}, in the log ${move.log}` : c.storage), row("Retention", c.retention),
      row("Discards", c.discard === "new" ? "new messages" : "the oldest"), row("Messages", limited(c.max_msgs, count)), row("Per subject", limited(c.max_msgs_per_subject, count)),
      row("Size", limited(c.max_bytes, bytes)), row("Age", duration(c.max_age)), row("Message size", limited(c.max_msg_size, bytes)),
      row("Duplicates within", duration(c.duplicate_window)), row("Persist mode", c.persist_mode ?? "default"))));
}

async function one(content, name, query) {
  const [info, found, move] = await Promise.all([
    api("GET", `streams/${part(name)}`),
    api("GET", `streams/${part(name)}/consumers${params({ ...query, limit: LIMIT })}`),
    // Whoever may not ask for moves sees none.
    api("GET", `streams/${part(name)}/move`).catch(() => ({ moving: false })),
  ]);
  const [progress, ending] = moving(name, move);
  const again = () => window.dispatchEvent(new Event("console-refresh"));
  const act = (f, after) => async () => { if (await f(name)) after(); };
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/streams" }, "Streams"), " / "),
    h("div.title", h("h1", h("span.name", name), " ", info.config.sealed && badge("sealed", "warn")), h("div.tools",
      h("a.button", { href: link(["messages", name]) }, "Messages"),
      !session.read_only && [
        h("a.button", { href: link(["streams", name, "edit"]) }, "Edit"),
        h("button", { type: "button", onclick: act(purge, again) }, "Purge…"),
        h("button", { type: "button", onclick: act((n) => relocate(n).catch((e) => note(e.message, "bad")), again) }, "Move…"),
        !info.config.sealed && h("button", { type: "button", onclick: act(seal, again) }, "Seal…"),
        h("button.danger", { type: "button", onclick: act(remove, () => go(["streams"])) }, "Delete…"),
      ])),
    info.config.description ? h("p.lead", info.config.description) : "",
    progress,
    facts(info, move),
    h("section", h("h2", "Consumers"), consumerTable(found, query, false), pager(Number(query.offset ?? 0), LIMIT, found.total, (o) => adjust({ offset: o }))),
    h("details", h("summary", "As JSON"), h("pre.box", JSON.stringify(info, null, 2))));
  return ending;
}

export async function streams(content, [name, what], query) {
  if (name === "+create") return streamForm(content, null);
  if (name && what === "edit") return streamForm(content, name);
  if (name) return one(content, name, query);
  return list(content, query);
}
