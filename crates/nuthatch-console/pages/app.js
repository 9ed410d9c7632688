// The frame of all pages: login, navigation, and which page an address shows.

import { api, link, place, session, whenExpired } from "./api.js";
import { clear, failure, field, h } from "./dom.js";
import { accounts } from "./accounts.js";
import { cluster } from "./cluster.js";
import { connections } from "./connections.js";
import { consumers } from "./consumers.js";
import { dead } from "./dead.js";
import { kv } from "./kv.js";
import { messages } from "./messages.js";
import { objects } from "./objects.js";
import { overview } from "./overview.js";
import { publish } from "./publish.js";
import { events, server, storage } from "./server.js";
import { streams } from "./streams.js";

/** Pages in their groups; the last column: for whoever sees the whole server. */
const PAGES = [
  ["overview", "Overview", overview],
  ["streams", "Streams", streams],
  ["messages", "Messages", messages],
  ["consumers", "Consumers", consumers],
  ["publish", "Publish", publish],
  ["kv", "Key-value", kv],
  ["objects", "Objects", objects],
  ["stuck", "Stuck messages", dead],
  ["events", "Events", events],
  ["connections", "Connections", connections],
  ["accounts", "Accounts", accounts],
  ["storage", "Storage", storage, true],
  ["cluster", "Cluster", cluster, true],
  ["server", "Server", server, true],
];
const GROUPS = [["Data", PAGES.slice(0, 7)], ["Watch", PAGES.slice(7, 10)], ["Server", PAGES.slice(10)]];

const KEY_FILE_MAX = 8 * 1024;
const app = document.getElementById("app");
let stop = () => {};
let main = null;
let turn = 0;

/** A page may leave something running; it ends when the page is left. */
const leave = () => { stop(); stop = () => {}; };

const brand = () => h("a.brand", { href: "#/overview" }, h("img", { src: "/icon.svg", alt: "", width: 28, height: 28 }), "Nuthatch");

/** A session that may only look is as read-only as a console that changes nothing. */
function adopt(told) {
  Object.assign(session, told);
  if (session.role === "read") session.read_only = true;
}

async function logIn(credentials) {
  session.read_only = session.server_read_only;
  adopt(await api("POST", "login", credentials));
  frame();
}

function loginPage(message) {
  leave();
  main = null;
  const problem = h("div");
  const user = h("input", { name: "user", autocomplete: "username", autofocus: true, spellcheck: "false" });
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      const { file, ...data } = Object.fromEntries(new FormData(form));
      if (file?.size > KEY_FILE_MAX) { clear(problem, failure(new Error("A file of credentials is smaller."))); return; }
      if (file?.size) data.key_text = await file.text();
      button.disabled = true;
      clear(problem);
      try { await logIn(data); } catch (error) { clear(problem, failure(error)); button.disabled = false; }
    },
  },
  h("h1", h("img", { src: "/icon.svg", alt: "", width: 40, height: 40 }), "Nuthatch"),
  h("p.dim", "Log in as you would with a client of ", h("b", session.server || "this server"), "."),
  message && h("p.hint", message),
  field("User", user),
  field("Password", h("input", { name: "password", type: "password", autocomplete: "current-password" })),
  h("details", h("summary", "Token, nkey or credentials file"), field("Token", h("input", { name: "token", type: "password", autocomplete: "off" })),
    field("Seed of an nkey", h("input", { name: "key_text", type: "password", autocomplete: "off" })), field("File of credentials or nkey", h("input", { name: "file", type: "file" }))),
  field("Role", h("select", { name: "role" }, [["admin", "all that the user may do"], ["operate", "operate: messages, keys, pauses"], ["read", "read: look only"]].map(([value, text]) => h("option", { value }, text)))),
  problem);
  const button = h("button.primary", { type: "submit" }, "Log in");
  form.append(button);
  clear(app, h("main.login", { id: "main" }, form));
  user.focus();
}

function frame() {
  const visible = (group) => group.filter(([, , , whole]) => !whole || session.sees_server);
  const nav = h("nav", { "aria-label": "Pages" }, GROUPS.map(([title, group]) => h("div.group", h("small", { "aria-hidden": "true" }, title),
    visible(group).map(([id, name]) => h("a", { href: `#/${id}`, "data-page": id }, name)))));
  main = h("main", { id: "main", tabindex: "-1" });
  const out = h("button.quiet", {
    type: "button",
    onclick: async () => {
      await api("POST", "logout").catch(() => {});
      Object.assign(session, { user: null, token: null });
      loginPage();
    },
  }, "Log out");
  const who = session.user || "anonymous";
  clear(app, h("header.top", brand(), nav,
    h("div.who", session.read_only ? h("span.badge.warn", "read-only") : session.role === "operate" && h("span.badge", "operate"),
      h("span.user", { title: `account ${session.account}` }, who, session.account && h("small", session.account)), out)), main);
  show();
}

async function show() {
  if (!main) return;
  const { parts, query } = place();
  const [id = "overview", ...rest] = parts;
  const found = PAGES.find(([known]) => known === id);
  leave();
  turn += 1;
  const mine = turn;
  for (const a of document.querySelectorAll("header nav a")) {
    if (a.dataset.page === id) { a.setAttribute("aria-current", "page"); a.scrollIntoView({ block: "nearest", inline: "center" }); } else a.removeAttribute("aria-current");
  }
  document.title = `${rest[0] ? `${rest.join(" ")} · ` : ""}${found ? found[1] : "Not found"} · Nuthatch`;
  if (!found) { clear(main, h("h1", "Not found"), h("p", "There is no such page. ", h("a", { href: "#/overview" }, "Overview"))); return; }
  main.setAttribute("aria-busy", "true");
  const content = h("div.page");
  try {
    const ending = await found[2](content, rest, query);
    if (mine !== turn) { ending?.(); return; }
    stop = ending ?? (() => {});
    clear(main, content);
  } catch (error) {
    if (mine === turn) clear(main, h("h1", found[1]), failure(error));
  }
  main.removeAttribute("aria-busy");
}

window.addEventListener("hashchange", show);
window.addEventListener("console-refresh", show);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main")?.focus(); });
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); }
  }
  const page = PAGES[Number(event.key) - 1];
  if (page && main) location.hash = link([page[0]]);
});
whenExpired(() => loginPage("The session has ended."));

async function begin() {
  try {
    const told = await api("GET", "session");
    session.server_read_only = told.read_only;
    adopt(told);
    if (session.token) frame();
    else if (!session.needs_login) await logIn({});
    else loginPage();
  } catch (error) {
    clear(app, h("main.login", { id: "main" }, h("h1", "Nuthatch"), failure(error)));
  }
}
begin();
