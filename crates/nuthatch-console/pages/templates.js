// Messages that one sends again and again: kept in this browser, never by the server.

import { clear, field, h, note } from "./dom.js";

const KEY = "nuthatch-templates";
/** So many are kept, each of so many characters. */
const KEPT_MAX = 50;
const LENGTH_MAX = 64 * 1024;

const isTemplate = (t) => t !== null && typeof t === "object" && [t.name, t.subject, t.text].every((x) => typeof x === "string")
  && Array.isArray(t.headers) && t.headers.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((x) => typeof x === "string"));

/** What the browser has; whatever else stands there is passed over. */
function load() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isTemplate).slice(0, KEPT_MAX) : [];
  } catch { return []; }
}

function store(all) {
  try { localStorage.setItem(KEY, JSON.stringify(all)); return true; } catch { note("This browser keeps nothing.", "bad"); return false; }
}

/** The part of a page that keeps templates: `read` tells what would be kept (null: it cannot be), `use` fills one in. */
export function templates({ read, use }) {
  const list = h("ul.templates");
  const name = h("input", { name: "template", placeholder: "Name", maxlength: 100, spellcheck: "false", autocomplete: "off" });
  const show = () => {
    const all = load();
    clear(list, all.length ? all.map((t) => h("li",
      h("button.quiet.name", { type: "button", onclick: () => use(t) }, t.name), h("small.name", t.subject),
      h("button.quiet", { type: "button", "aria-label": `Forget ${t.name}`, onclick: () => { if (store(load().filter((other) => other.name !== t.name))) show(); } }, "×"))) : h("li.dim", "None yet."));
  };
  const keep = (event) => {
    event.preventDefault();
    const now = read();
    const called = name.value.trim();
    if (!called) { name.focus(); return; }
    if (!now) { note("A binary payload is not kept.", "bad"); return; }
    const template = { name: called, ...now };
    const others = load().filter((t) => t.name !== called);
    if (others.length >= KEPT_MAX) { note(`At most ${KEPT_MAX} are kept: forget one first.`, "bad"); return; }
    if (JSON.stringify(template).length > LENGTH_MAX) { note("It is too large to be kept.", "bad"); return; }
    if (!store([...others, template].sort((a, b) => (a.name < b.name ? -1 : 1)))) return;
    name.value = "";
    note(`${called} is kept in this browser.`);
    show();
  };
  show();
  return h("section", h("h2.apart", "Templates"), h("p.dim", "Kept in this browser, with their payloads; nobody else sees them."), list,
    h("form.inline", { onsubmit: keep }, field("Keep this message as", name), h("button", { type: "submit" }, "Keep")));
}
