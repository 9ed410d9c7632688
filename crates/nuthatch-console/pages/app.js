// The frame of all pages: login, navigation, and which page an address shows.

import { api, link, place, session, whenExpired } from "./api.js";
import { clear, failure, field, h } from "./dom.js";
import { consumers } from "./consumers.js";
import { kv } from "./kv.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { publish } from "./publish.js";
import { streams } from "./streams.js";

const PAGES = [
  ["overview", "Overview", overview],
  ["streams", "Streams", streams],
  ["messages", "Messages", messages],
  ["consumers", "Consumers", consumers],
  ["publish", "Publish", publish],
  ["kv", "Key-value", kv],
];

const app = document.getElementById("app");
let stop = () => {};
let main = null;
let turn = 0;

/** A page may leave something running; it ends when the page is left. */
const leave = () => { stop(); stop = () => {}; };

const brand = () => h("a.brand", { href: "#/overview" }, h("img", { src: "/icon.svg", alt: "", width: 28, height: 28 }), "Nuthatch");

async function logIn(credentials) {
  Object.assign(session, await api("POST", "login", credentials));
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
      const data = Object.fromEntries(new FormData(form));
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
  h("details", h("summary", "Log in with a token"), field("Token", h("input", { name: "token", type: "password", autocomplete: "off" }))),
  problem);
  const button = h("button.primary", { type: "submit" }, "Log in");
  form.append(button);
  clear(app, h("main.login", { id: "main" }, form));
  user.focus();
}

function frame() {
  const nav = h("nav", { "aria-label": "Pages" }, PAGES.map(([id, name]) => h("a", { href: `#/${id}`, "data-page": id }, name)));
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
    h("div.who", session.read_only && h("span.badge.warn", "read-only"),
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
    if (a.dataset.page === id) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
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
    Object.assign(session, await api("GET", "session"));
    if (session.token) frame();
    else if (!session.needs_login) await logIn({});
    else loginPage();
  } catch (error) {
    clear(app, h("main.login", { id: "main" }, h("h1", "Nuthatch"), failure(error)));
  }
}
begin();
