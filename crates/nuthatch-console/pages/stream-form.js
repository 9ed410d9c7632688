// Creating and editing a stream: a form for what is usual, the whole configuration as JSON, and what would change.

import { api, go, link, part } from "./api.js";
import { asCommand, clear, command, failure, field, h, note } from "./dom.js";

/** Line by line: the longest run of common lines, kept small by cutting what is alike at both ends. */
export function diff(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const out = [];
  if (x.length * y.length > 250000) {
    out.push(...x.map((t) => ["-", t]), ...y.map((t) => ["+", t]));
  } else {
    const rows = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i -= 1) for (let j = y.length - 1; j >= 0; j -= 1) rows[i][j] = x[i] === y[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
    let [i, j] = [0, 0];
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) { out.push([" ", x[i]]); i += 1; j += 1; }
      else if (i < x.length && (j === y.length || rows[i + 1][j] >= rows[i][j + 1])) { out.push(["-", x[i]]); i += 1; }
      else { out.push(["+", y[j]]); j += 1; }
    }
  }
  return out.filter(([sign]) => sign !== " ");
}

const NEW = { name: "", subjects: [], storage: "file", retention: "limits", discard: "old", max_msgs: -1, max_bytes: -1, max_age: 0, max_msgs_per_subject: -1, allow_direct: true };
const SECOND = 1e9;

const select = (name, options, value) => h("select", { name }, options.map((o) => h("option", { value: o, selected: o === value }, o)));
const integer = (text, none) => (text.trim() === "" ? none : Number(text));

export async function streamForm(content, name) {
  const isNew = name === null;
  const old = isNew ? NEW : (await api("GET", `streams/${part(name)}`)).config;
  const show = (config) => JSON.stringify(config, null, 2);
  let config = structuredClone(old);
  const shown = (n) => (n === undefined || n <= 0 ? "" : String(n));

  const json = h("textarea.code", { rows: 18, spellcheck: "false", "aria-label": "Configuration as JSON" });
  const changes = h("div.diff", { "aria-live": "polite" });
  const problem = h("div");
  const button = h("button.primary", { type: "submit" }, isNew ? "Create stream" : "Save changes");
  const form = h("form.grid",
    isNew && field("Name", h("input", { name: "name", required: true, autofocus: true, spellcheck: "false", autocomplete: "off" }), "No spaces, dots or wildcards"),
    field("Subjects", h("input", { name: "subjects", value: (old.subjects ?? []).join(", "), placeholder: "orders.>", spellcheck: "false" }), "Several with commas; without any, its name"),
    field("Description", h("input", { name: "description", value: old.description ?? "" })),
    field("Storage", select("storage", ["file", "memory"], old.storage)),
    field("Retention", select("retention", ["limits", "interest", "workqueue"], old.retention)),
    field("When full, discard", select("discard", ["old", "new"], old.discard)),
    field("Most messages", h("input", { name: "max_msgs", inputmode: "numeric", value: shown(old.max_msgs), placeholder: "no limit" })),
    field("Most bytes", h("input", { name: "max_bytes", inputmode: "numeric", value: shown(old.max_bytes), placeholder: "no limit" })),
    field("Most messages per subject", h("input", { name: "max_msgs_per_subject", inputmode: "numeric", value: shown(old.max_msgs_per_subject), placeholder: "no limit" })),
    field("Oldest age, in seconds", h("input", { name: "max_age", inputmode: "decimal", value: shown(old.max_age / SECOND), placeholder: "no limit" })));

  const fromForm = () => {
    const d = new FormData(form);
    const text = (key) => String(d.get(key) ?? "").trim();
    config = { ...config };
    if (isNew) config.name = text("name");
    const subjects = text("subjects").split(",").map((s) => s.trim()).filter(Boolean);
    if (subjects.length || config.subjects) config.subjects = subjects;
    if (text("description")) config.description = text("description"); else delete config.description;
    for (const key of ["storage", "retention", "discard"]) config[key] = text(key);
    for (const key of ["max_msgs", "max_bytes", "max_msgs_per_subject"]) config[key] = integer(text(key), -1);
    config.max_age = Math.round(integer(text("max_age"), 0) * SECOND);
    json.value = show(config);
    review();
  };
  const line = asCommand(() => `echo ${`'${JSON.stringify(config).replaceAll("'", "'\\''")}'`} > stream.json\n${command("stream", isNew ? "add" : "edit", config.name || "NAME", "--config", "stream.json")}`);
  const review = () => {
    clear(problem);
    button.disabled = false;
    try { config = JSON.parse(json.value); } catch (error) { clear(problem, failure(error)); button.disabled = true; return; }
    // A comma that comes or goes is no change.
    const plain = (c) => show(c).replace(/,$/gm, "");
    const lines = diff(plain(old), plain(config));
    clear(changes, lines.length ? lines.map(([sign, text]) => h(`div.${sign === "+" ? "added" : "removed"}`, `${sign} ${text}`)) : h("p.dim", "Nothing would change."));
    if (!isNew) button.disabled = lines.length === 0;
    line.update();
  };
  form.addEventListener("input", fromForm);
  json.addEventListener("input", review);
  json.value = show(config);
  review();
  const save = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const found = await api(isNew ? "POST" : "PUT", "streams", config);
      note(isNew ? `Stream ${found.config.name} is there.` : "The changes are in force.");
      go(["streams", found.config.name]);
    } catch (error) {
      clear(problem, failure(error));
      button.disabled = false;
    }
  };
  form.addEventListener("submit", save);
  button.addEventListener("click", save);
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/streams" }, "Streams"), " / ", !isNew && [h("a.name", { href: link(["streams", name]) }, name), " / "]),
    h("h1", isNew ? "Create stream" : "Edit stream"),
    h("div.columns.wide-left", h("section", form, h("details", h("summary", "Everything, as JSON"), json)),
      h("section", h("h2", isNew ? "Differs from an empty one" : "What would change"), changes, line, problem,
        h("div.actions", h("a.button", { href: isNew ? "#/streams" : link(["streams", name]) }, "Cancel"), button))));
}
