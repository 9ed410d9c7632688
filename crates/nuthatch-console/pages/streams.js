// Streams: the list, and one stream with its consumers.

import { adjust, api, go, link, params, part, session } from "./api.js";
import { ago, ask, badge, bytes, command, count, field, h, note, pager, table, time } from "./dom.js";
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

const duration = (ns) => (!ns ? "no limit" : `${ns / 1e9 >= 86400 ? `${+(ns / 864e11).toFixed(2)} d` : ns / 1e9 >= 3600 ? `${+(ns / 36e11).toFixed(2)} h` : `${+(ns / 1e9).toFixed(3)} s`}`);
const limited = (n, show) => (n === undefined || n < 0 || n === 0 ? "no limit" : show(n));

function facts(info) {
  const { config: c, state: s } = info;
  const row = (name, value) => [h("dt", name), h("dd", value)];
  return h("div.columns",
    h("section", h("h2", "State"), h("dl.facts",
      row("Messages", count(s.messages)), row("Size", bytes(s.bytes)), row("Subjects", count(s.num_subjects ?? 0)),
      row("First", [count(s.first_seq), " ", time(s.first_ts)]), row("Last", [count(s.last_seq), " ", time(s.last_ts)]),
      row("Deleted in between", count(s.num_deleted ?? 0)), row("Created", time(info.created)),
      info.mirror && row("Mirror", [`${info.mirror.name}, ${count(info.mirror.lag)} behind`]),
      (info.sources ?? []).map((x) => row("Source", `${x.name}, ${count(x.lag)} behind`)))),
    h("section", h("h2", "Configuration"), h("dl.facts",
      row("Subjects", h("span.subjects", (c.subjects ?? []).join(", ") || "–")), row("Storage", c.storage), row("Retention", c.retention),
      row("Discards", c.discard === "new" ? "new messages" : "the oldest"), row("Messages", limited(c.max_msgs, count)), row("Per subject", limited(c.max_msgs_per_subject, count)),
      row("Size", limited(c.max_bytes, bytes)), row("Age", duration(c.max_age)), row("Message size", limited(c.max_msg_size, bytes)),
      row("Duplicates within", duration(c.duplicate_window)), row("Persist mode", c.persist_mode ?? "default"))));
}

async function one(content, name, query) {
  const [info, found] = await Promise.all([
    api("GET", `streams/${part(name)}`),
    api("GET", `streams/${part(name)}/consumers${params({ ...query, limit: LIMIT })}`),
  ]);
  const again = () => window.dispatchEvent(new Event("console-refresh"));
  const act = (f, after) => async () => { if (await f(name)) after(); };
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/streams" }, "Streams"), " / "),
    h("div.title", h("h1", h("span.name", name)), h("div.tools",
      h("a.button", { href: link(["messages", name]) }, "Messages"),
      !session.read_only && [
        h("a.button", { href: link(["streams", name, "edit"]) }, "Edit"),
        h("button", { type: "button", onclick: act(purge, again) }, "Purge…"),
        h("button.danger", { type: "button", onclick: act(remove, () => go(["streams"])) }, "Delete…"),
      ])),
    info.config.description ? h("p.lead", info.config.description) : "",
    facts(info),
    h("section", h("h2", "Consumers"), consumerTable(found, query, false), pager(Number(query.offset ?? 0), LIMIT, found.total, (o) => adjust({ offset: o }))),
    h("details", h("summary", "As JSON"), h("pre.box", JSON.stringify(info, null, 2))));
}

export async function streams(content, [name, what], query) {
  if (name === "+create") return streamForm(content, null);
  if (name && what === "edit") return streamForm(content, name);
  if (name) await one(content, name, query);
  else await list(content, query);
}
