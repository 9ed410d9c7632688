// Building pages. Text always becomes text nodes: nothing that comes from the broker is ever read as HTML.

/** An element: `h("td.num", { title }, "text", child)`. Properties that begin with "on" are listeners. */
export function h(spec, ...rest) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  const [first] = rest;
  const isProps = first !== null && typeof first === "object" && !(first instanceof Node) && !Array.isArray(first);
  if (isProps) {
    rest.shift();
    for (const [key, value] of Object.entries(first)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") node.classList.add(...String(value).split(" ").filter(Boolean));
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "value" || key === "checked") node[key] = value;
      else node.setAttribute(key, value === true ? "" : String(value));
    }
  }
  append(node, rest);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Control characters would be invisible, and some turn text around: they are shown as symbols. */
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, (c) => {
    const code = c.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : "\ufffd";
  });
}

export function clear(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

const group = new Intl.NumberFormat("en");
export const count = (n) => (n === undefined || n === null ? "–" : group.format(n));

export function bytes(n) {
  if (n === undefined || n === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) { n /= 1024; at += 1; }
  return `${at === 0 ? n : n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1).replace(/\.0$/, "") : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`.replace(" 0 s", "");
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`.replace(" 0 min", "");
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`.replace(" 0 h", "");
}

const isTime = (text) => typeof text === "string" && text.length > 10 && !text.startsWith("0001-");

/** A time as local digits, with how long ago it was as its title. */
export function time(text) {
  if (!isTime(text)) return h("span.dim", "–");
  const at = new Date(text);
  const two = (n) => String(n).padStart(2, "0");
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return h("time", { datetime: text, title: `${text} (${ago(text)})` }, `${date} ${clock}`);
}

export function ago(text) {
  if (!isTime(text)) return "never";
  const ms = Date.now() - new Date(text).getTime();
  return ms < 1000 ? "just now" : `${span(ms)} ago`;
}

/** The bytes of a payload, and how best to read them. */
export function payload(base64) {
  const raw = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return raw;
}

export function encode(text) {
  const raw = new TextEncoder().encode(text);
  let out = "";
  for (let at = 0; at < raw.length; at += 0x8000) out += String.fromCharCode(...raw.subarray(at, at + 0x8000));
  return btoa(out);
}

export function kindOf(raw, truncated = false) {
  if (raw.length === 0) return { kind: "empty", text: "" };
  let text;
  try {
    // A preview may end within a character.
    text = new TextDecoder("utf-8", { fatal: true }).decode(raw, { stream: truncated });
  } catch {
    return { kind: "hex", text: hex(raw) };
  }
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u0008\u000e-\u001f]/.test(text)) return { kind: "hex", text: hex(raw) };
  if (!truncated && /^\s*[[{"]/.test(text)) {
    try {
      return { kind: "json", text: JSON.stringify(JSON.parse(text), null, 2), raw: text };
    } catch { /* text, then */ }
  }
  return { kind: "text", text };
}

export function hex(raw) {
  const lines = [];
  const max = Math.min(raw.length, 16 * 1024);
  for (let at = 0; at < max; at += 16) {
    const row = raw.subarray(at, Math.min(at + 16, max));
    const digits = Array.from(row, (b) => b.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(row, (b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${text}`);
  }
  if (max < raw.length) lines.push(`… ${count(raw.length - max)} more bytes`);
  return lines.join("\n");
}

/** A word for a shell, quoted where it has to be. */
export const quote = (word) => (/^[\w.,:/@%+=-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);
export const command = (...words) => ["nuthatch", ...words.map((w) => quote(String(w)))].join(" ");

/** "Show as command": a fold with the line that does the same. `line` may be a function. */
export function asCommand(line) {
  const code = h("code");
  const details = h("details.command", h("summary", "Show as command"), code);
  details.update = () => clear(code, typeof line === "function" ? line() : line);
  details.addEventListener("toggle", details.update);
  return details;
}

export const field = (label, input, hint) => h("label.field", h("span", label), input, hint && h("small", hint));

export const badge = (text, kind = "") => h(`span.badge${kind && "." + kind}`, text);

export function note(text, kind = "good") {
  const item = h(`div.note.${kind}`, text);
  document.getElementById("notes").append(item);
  setTimeout(() => item.remove(), kind === "bad" ? 9000 : 4000);
}

export const failure = (error) => h("p.failure", { role: "alert" }, error.message ?? String(error));

/** A dialog that asks; `send` gets the form's data and may throw. Resolves when it was done or given up. */
export function ask({ title, text, fields = [], action, danger = false, confirm, line, send }) {
  return new Promise((resolve) => {
    const problem = h("div");
    const button = h(`button.primary${danger ? ".danger" : ""}`, { type: "submit" }, action);
    const typed = confirm && h("input", { name: "confirm", autocomplete: "off", spellcheck: "false" });
    if (typed) {
      button.disabled = true;
      typed.addEventListener("input", () => { button.disabled = typed.value !== confirm; });
    }
    let form;
    const shown = line && asCommand(() => line(new FormData(form)));
    form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          await send(new FormData(form));
          dialog.close("done");
        } catch (error) {
          clear(problem, failure(error));
          button.disabled = Boolean(typed) && typed.value !== confirm;
        }
      },
      oninput: () => shown?.update(),
    },
    h("h2", title), text && h("p", text), fields,
    typed && field(["Type ", h("b.name", confirm), " to confirm"], typed),
    shown, problem,
    h("div.actions", h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "done"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Where one is in a list. `go` gets the new offset. */
export function pager(offset, limit, total, go) {
  if (total === 0) return "";
  if (total <= limit && offset === 0) return h("p.pager", `${count(total)} in all`);
  return h("nav.pager", { "aria-label": "Pages" },
    h("button", { type: "button", disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit)) }, "‹ Previous"),
    h("span", `${count(Math.min(offset + 1, total))}–${count(Math.min(offset + limit, total))} of ${count(total)}`),
    h("button", { type: "button", disabled: offset + limit >= total, onclick: () => go(offset + limit) }, "Next ›"));
}

/** A table. A column: { name, key (if one can sort by it), num, cell(row) }. */
export function table(columns, rows, { sort, order, onsort, empty = "Nothing here.", label } = {}) {
  const head = columns.map((column) => {
    const cls = column.num ? "th.num" : "th";
    if (!column.key || !onsort) return h(cls, { scope: "col" }, column.name);
    const isBy = sort === column.key;
    const next = isBy ? (order === "asc" ? "desc" : "asc") : (column.num ? "desc" : "asc");
    return h(cls, { scope: "col", "aria-sort": isBy ? (order === "asc" ? "ascending" : "descending") : "none" },
      h("button.sort", { type: "button", onclick: () => onsort(column.key, next) }, column.name,
        h("span.arrow", { "aria-hidden": "true" }, isBy && order === "desc" ? "↓" : "↑")));
  });
  const body = rows.map((row) => h("tr", columns.map((column) =>
    h(column.num ? "td.num" : column.wide ? "td.wide" : "td", { "data-label": column.name }, column.cell(row)))));
  return h("div.table", { tabindex: "0", role: "region", "aria-label": label ?? "Table" },
    h("table", h("thead", h("tr", head)), h("tbody", body.length ? body : h("tr", h("td.empty", { colspan: columns.length }, empty)))));
}

/** Downloads bytes under a name. */
export function save(raw, name) {
  const url = URL.createObjectURL(raw instanceof Blob ? raw : new Blob([raw], { type: "application/octet-stream" }));
  h("a", { href: url, download: name.replace(/[^\w.-]/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
