// Accounts with limits and use, users with permissions, and "may X publish Y?".

import { api, params, session } from "./api.js";
import { badge, bytes, clear, count, failure, field, h, table } from "./dom.js";

const of = (used, limit, show) => [show(used ?? 0), limit > 0 && h("small.block", `of ${show(limit)}`)];
const list = (rule) => {
  if (!rule) return h("span.dim", "everything");
  const allowed = rule.allow === null ? h("span.dim", "everything") : rule.allow.length ? h("span.subjects", rule.allow.join(", ")) : h("span.dim", "nothing");
  return [allowed, rule.deny.length > 0 && h("small.block", "not ", h("span.subjects", rule.deny.join(", ")))];
};

function accountTable(rows) {
  const js = (r) => r.jetstream ?? r.own;
  const columns = [
    { name: "Account", wide: true, cell: (r) => [h("span.name", r.name), " ", r.is_system && badge("system"), !js(r) && badge("no streams")] },
    { name: "Connections", num: true, cell: (r) => count(r.traffic?.conns ?? 0) },
    { name: "Messages in", num: true, cell: (r) => count(r.traffic?.received?.msgs ?? 0) },
    { name: "Messages out", num: true, cell: (r) => count(r.traffic?.sent?.msgs ?? 0) },
    { name: "On disk", num: true, cell: (r) => of(js(r)?.storage, r.own?.limits?.max_storage, bytes) },
    { name: "In memory", num: true, cell: (r) => of(js(r)?.memory, r.own?.limits?.max_memory, bytes) },
    ...(rows.some((r) => r.own) ? [
      { name: "Streams", num: true, cell: (r) => of(r.own?.streams, r.own?.limits?.max_streams, count) },
      { name: "Consumers", num: true, cell: (r) => of(r.own?.consumers, r.own?.limits?.max_consumers, count) },
    ] : []),
    { name: "Slow consumers", num: true, cell: (r) => count(r.traffic?.slow_consumers ?? 0) },
  ];
  return table(columns, rows, { label: "Accounts" });
}

function may(users) {
  const answer = h("p.answer", { "aria-live": "polite" });
  const form = h("form.jump", {
    onsubmit: async (event) => {
      event.preventDefault();
      const d = new FormData(form);
      const user = users[Number(d.get("who"))];
      try {
        const found = await api("GET", `may${params({ user: user?.name, account: user?.account, what: d.get("what"), subject: d.get("subject").trim() })}`);
        clear(answer, h(`b.${found.allowed ? "yes" : "no"}`, found.allowed ? "Yes" : "No"), `: ${found.because}.`);
      } catch (error) { clear(answer, failure(error)); }
    },
  },
  field("May", h("select", { name: "who" }, users.map((u, i) => h("option", { value: String(i) }, `${u.name || "you"} (${u.account})`)))),
  field("do", h("select", { name: "what" }, h("option", { value: "publish" }, "publish to"), h("option", { value: "subscribe" }, "subscribe to"))),
  field("this subject", h("input", { name: "subject", required: true, spellcheck: "false", placeholder: "orders.new" })),
  h("button.primary", { type: "submit" }, "Ask"));
  return [form, answer];
}

export async function accounts(content) {
  const [found, users] = await Promise.all([api("GET", "accounts"), api("GET", "users")]);
  const columns = [
    { name: "User", cell: (r) => [h("span.name", r.name || "–"), r.kind !== "password" && [" ", badge(r.kind)]] },
    { name: "Account", cell: (r) => h("span.name", r.account) },
    { name: "May publish", wide: true, cell: (r) => list(r.publish) },
    { name: "May subscribe to", wide: true, cell: (r) => list(r.subscribe) },
  ];
  content.append(h("h1", found.sees_server ? "Accounts and users" : "Account and user"),
    accountTable(found.rows),
    h("h2.apart", found.sees_server ? "Users" : "You"),
    users.is_open ? h("p.dim", "The server has no users: everybody may do everything.") : table(columns, users.rows, { label: "Users", empty: "Users come with signed tokens of their accounts, which only the accounts know." }),
    users.total > users.rows.length ? h("p.dim", `The first ${count(users.rows.length)} of ${count(users.total)}.`) : "",
    users.rows.length ? [h("h2.apart", "May a user do that?"), may(users.rows)].flat(2).reduce((box, node) => { box.append(node); return box; }, h("section.bare")) : "",
    found.sees_server ? "" : h("p.dim", `This is what ${session.account} may see; a user of the system account sees all accounts.`));
}
