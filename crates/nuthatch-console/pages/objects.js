// Object buckets, and the objects in one.

import { adjust, api, link, params, part, session } from "./api.js";
import { ago, ask, badge, bytes, command, count, field, h, note, pager, payload, save, table } from "./dom.js";
import { search } from "./streams.js";
import { newBucket } from "./buckets.js";

const LIMIT = 50;
const UPLOAD_MAX = 8 * 1024 * 1024;
const DOWNLOAD_MAX = 512 * 1024 * 1024;
const again = () => window.dispatchEvent(new Event("console-refresh"));

async function buckets(content, query) {
  const found = await api("GET", `objects${params({ ...query, limit: LIMIT })}`);
  const columns = [
    { name: "Bucket", key: "name", wide: true, cell: (r) => [h("a.name", { href: link(["objects", r.name.slice(4)]) }, r.name.slice(4)), " ", r.storage === "memory" && badge("memory"), r.description && h("small.block", r.description)] },
    { name: "Size", key: "bytes", num: true, cell: (r) => bytes(r.bytes) },
    { name: "Last change", cell: (r) => h("span.nowrap", ago(r.last_time)) },
  ];
  content.append(h("div.title", h("h1", "Object buckets"), h("div.tools", search(query, "Search buckets"), !session.read_only && h("button.primary", { type: "button", onclick: async () => { const name = await newBucket("object"); if (name) location.hash = link(["objects", name]); } }, "Create bucket…"))),
    table(columns, found.rows, { sort: found.sorted_by, order: query.order ?? "asc", label: "Buckets", onsort: (sort, order) => adjust({ sort, order, offset: "" }), empty: query.search ? "No bucket has such a name." : "There are no object buckets yet." }),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })));
}

/** Bytes in base64; strings of megabytes are put together piece by piece. */
function base64(raw) {
  const parts = [];
  for (let at = 0; at < raw.length; at += 0x6000) parts.push(btoa(String.fromCharCode(...raw.subarray(at, at + 0x6000))));
  return parts.join("");
}

const upload = (bucket) => ask({
  title: "Upload", action: "Upload", text: `Up to ${bytes(UPLOAD_MAX)} here; the command takes any size.`,
  fields: [
    field("File", h("input", { name: "file", type: "file", required: true, onchange: (e) => { const name = e.target.form.elements.name; if (!name.value) name.value = e.target.files[0]?.name ?? ""; } })),
    field("Name", h("input", { name: "name", required: true, spellcheck: "false", autocomplete: "off" }), "An object of this name is replaced"),
    field("Description", h("input", { name: "description" })),
  ],
  line: (d) => command("object", "put", bucket, d.get("file")?.name || "FILE", "--name", d.get("name") || "NAME"),
  send: async (d) => {
    const file = d.get("file");
    if (file.size > UPLOAD_MAX) throw new Error(`${file.name} has ${bytes(file.size)}: use the command for more than ${bytes(UPLOAD_MAX)}`);
    const data = base64(new Uint8Array(await file.arrayBuffer()));
    await api("PUT", `objects/${part(bucket)}/file`, { name: d.get("name"), description: d.get("description"), data });
    note(`${d.get("name")} is there.`);
  },
});

async function download(bucket, row) {
  if (row.size > DOWNLOAD_MAX) throw new Error(`${bytes(row.size)} are more than a page can hold: use the command`);
  const parts = [];
  let after = 0;
  for (;;) {
    const found = await api("GET", `objects/${part(bucket)}/part${params({ name: row.name, after })}`);
    parts.push(payload(found.data));
    after = found.after;
    if (found.is_last) break;
  }
  const size = parts.reduce((sum, p) => sum + p.length, 0);
  if (size !== row.size) throw new Error(`${count(size)} of ${count(row.size)} bytes came: the object has changed meanwhile, or is damaged`);
  save(new Blob(parts), row.name.split("/").at(-1));
}

async function files(content, bucket, query) {
  const found = await api("GET", `objects/${part(bucket)}/files${params({ ...query, limit: LIMIT })}`);
  const remove = async (r) => {
    const done = await ask({
      title: "Delete object", action: "Delete object", danger: true, confirm: r.name, line: () => command("object", "rm", bucket, r.name, "--force"),
      send: async (d) => { await api("DELETE", `objects/${part(bucket)}/file`, { name: r.name, confirm: d.get("confirm") }); note(`${r.name} is deleted.`); },
    });
    if (done) again();
  };
  const get = (r) => async () => { try { await download(bucket, r); } catch (e) { note(e.message, "bad"); } };
  const usable = (r) => !r.deleted && !r.link && !r.error;
  const columns = [
    { name: "Object", wide: true, cell: (r) => [h("span.name", r.name), " ", r.deleted && badge("deleted", "warn"), r.link && badge("link"), r.error && badge("damaged", "warn"), r.description && h("small.block", r.description)] },
    { name: "Size", num: true, cell: (r) => bytes(r.size) },
    { name: "Chunks", num: true, cell: (r) => count(r.chunks) },
    { name: "Stored", cell: (r) => h("span.nowrap", { title: r.time }, ago(r.time)) },
    { name: "", cell: (r) => usable(r) && h("span.tools.end", h("button", { type: "button", onclick: get(r), "aria-label": `Download ${r.name}` }, "Download"), !session.read_only && h("button.danger", { type: "button", onclick: () => remove(r), "aria-label": `Delete ${r.name}` }, "Delete…")) },
  ];
  content.append(h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/objects" }, "Objects"), " / "),
    h("div.title", h("h1", h("span.name", bucket)), h("div.tools", search(query, "Search objects"), !session.read_only && h("button.primary", { type: "button", onclick: async () => { if (await upload(bucket)) again(); } }, "Upload…"))),
    found.more_than_looked_at ? h("p.hint", "There are more objects than are looked through.") : "",
    table(columns, found.rows, { label: "Objects", empty: query.search ? "No object has such a name." : "The bucket is empty." }),
    pager(Number(query.offset ?? 0), LIMIT, found.total, (offset) => adjust({ offset })));
}

export async function objects(content, [bucket], query) {
  if (bucket) await files(content, bucket, query);
  else await buckets(content, query);
}
