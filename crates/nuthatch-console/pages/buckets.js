// Creating buckets: streams with the configuration that clients give them.

import { api } from "./api.js";
import { ask, command, field, h, note } from "./dom.js";

const whole = (text, none) => {
  if (!text.trim()) return none;
  const n = Number(text);
  if (!Number.isSafeInteger(n) || n < 1) throw new Error(`${text} is not a whole number above 0`);
  return n;
};

function config(kind, d) {
  const name = d.get("bucket").trim();
  if (!/^[A-Za-z0-9_-]+$/.test(name)) throw new Error("Letters, digits, - and _ make the name of a bucket.");
  const max_age = whole(d.get("age"), 0) * 1e9;
  const common = { storage: d.get("storage"), description: d.get("description") || undefined, max_bytes: whole(d.get("size"), -1), max_msgs: -1, max_consumers: -1, max_age, num_replicas: 1, discard: "new", allow_rollup_hdrs: true, allow_direct: true };
  if (kind === "object") return { ...common, name: `OBJ_${name}`, subjects: [`$O.${name}.C.>`, `$O.${name}.M.>`] };
  const window = Math.min(120e9, max_age || 120e9);
  return { ...common, name: `KV_${name}`, subjects: [`$KV.${name}.>`], max_msgs_per_subject: whole(d.get("history"), 1), deny_delete: true, duplicate_window: window };
}

/** Asks for a bucket and creates it: its name, or null. */
export function newBucket(kind) {
  let name = null;
  return ask({
    title: "Create bucket", action: "Create bucket",
    fields: [
      field("Name", h("input", { name: "bucket", required: true, autofocus: true, spellcheck: "false", autocomplete: "off" }), "Letters, digits, - and _"),
      field("Description", h("input", { name: "description" })),
      kind === "kv" && field("Values kept of each key", h("input", { name: "history", inputmode: "numeric", value: "1" }), "1 to 64"),
      field("Storage", h("select", { name: "storage" }, ["file", "memory"].map((o) => h("option", { value: o }, o)))),
      field("Most bytes", h("input", { name: "size", inputmode: "numeric", placeholder: "no limit" })),
      field("Oldest age, in seconds", h("input", { name: "age", inputmode: "numeric", placeholder: "no limit" })),
    ],
    line: (d) => command(kind, "add", d.get("bucket") || "BUCKET", ...(kind === "kv" && d.get("history") !== "1" ? ["--history", d.get("history")] : []), ...(d.get("storage") === "memory" ? ["--storage", "memory"] : []), ...(d.get("size") ? ["--max-bucket-size", d.get("size")] : []), ...(d.get("age") ? ["--ttl", `${d.get("age")}s`] : [])),
    send: async (d) => { await api("POST", "streams", config(kind, d)); name = d.get("bucket").trim(); note(`Bucket ${name} is there.`); },
  }).then((done) => (done ? name : null));
}
