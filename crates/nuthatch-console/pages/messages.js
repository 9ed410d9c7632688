// Messages of a stream: read by sequence or time, in both directions, without a consumer.

import { api, follow, go, link, params, part, session } from "./api.js";
import { ask, badge, bytes, clear, command, count, failure, field, h, hex, kindOf, note, payload, save, time } from "./dom.js";

const LIMIT = 25;

/** What a message holds, in full or as far as it was sent, with ways to read it. */
export function body(message, whole) {
  const box = h("pre.box", { tabindex: "0" });
  const raw = payload(message.data);
  const seen = kindOf(raw, message.truncated);
  const views = seen.kind === "json" ? ["json", "text", "hex"] : seen.kind === "hex" ? ["hex"] : seen.kind === "empty" ? [] : ["text", "hex"];
  const buttons = views.map((view) => h("button.tab", { type: "button", onclick: () => pick(view) }, view === "json" ? "JSON" : view === "hex" ? "Hex" : "Text"));
  const pick = (view) => {
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(views[i] === view)));
    clear(box, view === "hex" ? hex(raw) : view === "json" ? seen.text : seen.raw ?? seen.text);
  };
  if (views.length) pick(views[0]);
  return h("div.payload",
    message.headers.length > 0 && h("dl.facts.headers", message.headers.map(([k, v]) => [h("dt", k), h("dd", v)])),
    message.headers_truncated && h("p.dim", "It has more headers."),
    seen.kind === "empty" ? h("p.dim", "No payload.") : [h("div.tabs", buttons, message.truncated && h("span.dim", `the first ${bytes(raw.length)} of ${bytes(message.size)}`), whole), box]);
}

function preview(message) {
  const seen = kindOf(payload(message.data), message.truncated);
  if (seen.kind === "empty") return h("span.dim", "empty");
  if (seen.kind === "hex") return [badge("binary"), " ", bytes(message.size)];
  return (seen.raw ?? seen.text).replace(/\s+/g, " ").slice(0, 160);
}

function item(stream, message, open, changed) {
  const path = `streams/${part(stream)}/messages/${message.seq}`;
  const inner = h("div.message-body");
  let filled = false;
  const fill = () => {
    if (filled) return;
    filled = true;
    const whole = async () => api("GET", path);
    const tools = h("div.tools",
      (message.truncated || message.headers_truncated) && h("button", { type: "button", onclick: async () => { try { const m = await whole(); clear(inner, body(m, null), tools); } catch (e) { note(e.message, "bad"); } } }, "Show all"),
      h("button", { type: "button", onclick: async () => { try { save(payload((await whole()).data), `${stream}-${message.seq}.bin`); } catch (e) { note(e.message, "bad"); } } }, "Download"),
      h("a.button", { href: link(["publish"], { from: stream, seq: message.seq }) }, "Publish again…"),
      canChoose(message) && h("button.danger", {
        type: "button",
        onclick: async () => {
          const done = await ask({
            title: "Delete message", text: `Message ${count(message.seq)} of ${stream} is erased.`, action: "Delete message", danger: true, confirm: String(message.seq),
            line: () => command("stream", "rmm", stream, message.seq, "--force"),
            send: async (d) => { await api("DELETE", path, { confirm: d.get("confirm") }); note(`Message ${message.seq} is deleted.`); },
          });
          if (done) changed();
        },
      }, "Delete…"));
    clear(inner, body(message, null), tools, h("p.dim", h("code", command("stream", "get", stream, message.seq))));
  };
  const chosen = canChoose(message) && h("input", { type: "checkbox", "aria-label": `Choose message ${message.seq}`, onclick: (e) => e.stopPropagation() });
  const details = h("details.message", { open, ontoggle: fill, "data-seq": message.seq },
    h("summary", h("span.seq", chosen, count(message.seq)), h("span.subject", message.subject), h("span.when", time(message.time)),
      h("span.size", bytes(message.size)), h("span.preview", preview(message))), inner);
  if (open) fill();
  return details;
}

// A browser's numbers do not tell larger sequences apart.
const canChoose = (message) => !session.read_only && Number.isSafeInteger(message.seq);

/** Does it to one after the other, and stops at the first that fails. */
async function each(seqs, does) {
  for (const [at, seq] of seqs.entries()) {
    try { await does(seq); } catch (error) { throw new Error(`${at} of ${seqs.length} done; message ${seq}: ${error.message}`); }
  }
}

/** What can be done to the chosen messages of a page. */
function many(stream, box, again) {
  const boxes = () => [...box.querySelectorAll("summary input[type=checkbox]")];
  const seqs = () => boxes().filter((b) => b.checked).map((b) => Number(b.closest("details").dataset.seq)).sort((x, y) => x - y);
  const words = h("span.dim");
  const some = () => { const n = seqs().length; return `${count(n)} ${n === 1 ? "message" : "messages"}`; };
  const path = (seq) => `streams/${part(stream)}/messages/${seq}`;
  const erase = () => ask({
    title: `Delete ${some()}`, text: `They are erased from ${stream}.`, action: "Delete messages", danger: true, confirm: "delete",
    line: () => seqs().map((seq) => command("stream", "rmm", stream, seq, "--force")).join("\n"),
    send: async () => { const all = seqs(); await each(all, (seq) => api("DELETE", path(seq), { confirm: String(seq) })); note(`${count(all.length)} messages are deleted.`); },
  });
  const repeat = () => ask({
    title: `Publish ${some()} again`, action: "Publish again", text: "In their order, without the headers that begin with Nats-.",
    fields: [field("Publish to", h("input", { name: "subject", placeholder: "their own subjects", spellcheck: "false" }), "Another subject moves copies there")],
    line: (d) => seqs().map((seq) => `${command("stream", "get", stream, seq, "--raw")} | ${command("pub", d.get("subject") || "SUBJECT", "-", "-J")}`).join("\n"),
    send: async (d) => {
      const all = seqs();
      const to = d.get("subject").trim();
      await each(all, async (seq) => {
        const m = await api("GET", path(seq));
        await api("POST", "publish", { subject: to || m.subject, headers: m.headers.filter(([k]) => !/^nats-/i.test(k)), data: m.data, stored: true });
      });
      note(`${count(all.length)} messages are published again.`);
    },
  });
  const buttons = [
    h("button", { type: "button", onclick: async () => { if (await repeat()) again(); } }, "Publish again…"),
    h("button.danger", { type: "button", onclick: async () => { if (await erase()) again(); } }, "Delete…"),
  ];
  const all = h("input", { type: "checkbox", name: "all", onchange: () => { boxes().forEach((b) => { b.checked = all.checked; }); update(); } });
  const update = () => {
    const chosen = seqs().length;
    words.textContent = chosen ? `${count(chosen)} chosen` : "";
    buttons.forEach((b) => { b.disabled = chosen === 0; });
    all.checked = chosen > 0 && chosen === boxes().length;
  };
  box.addEventListener("change", update);
  update();
  return h("div.bar", h("label.check", all, "All on this page"), words, h("div.tools", buttons));
}

async function choose(content) {
  const found = await api("GET", "streams?limit=200");
  content.append(h("h1", "Messages"), h("p.lead", "Choose a stream."),
    found.rows.length ? h("ul.choices", found.rows.map((r) => h("li", h("a.name", { href: link(["messages", r.name]) }, r.name), h("small", `${count(r.messages)} messages`)))) : h("p.dim", "There are no streams yet."),
    found.total > found.rows.length ? h("p.dim", "And more: ", h("a", { href: "#/streams" }, "search the streams"), ".") : "");
}

/** A time as one types it, in local time, as RFC 3339 in UTC. */
function utc(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) throw new Error(`${text} is no time`);
  return at.toISOString();
}

export async function messages(content, [stream], query) {
  if (!stream) return choose(content);
  const found = await api("GET", `streams/${part(stream)}/messages${params({ ...query, limit: LIMIT, live: "" })}`);
  const again = () => window.dispatchEvent(new Event("console-refresh"));
  const jump = h("form.jump", {
    onsubmit: (event) => {
      event.preventDefault();
      const d = new FormData(jump);
      try {
        const where = d.get("seq") ? { seq: String(Number(d.get("seq"))), dir: "forward" } : d.get("time") ? { time: utc(d.get("time")) } : {};
          const sought = d.get("text").trim();
        const path = d.get("how") === "path";
        const [name, ...value] = sought.split("=");
        go(["messages", stream], { subject: d.get("subject"), ...(path && sought ? { path: name.trim(), value: value.join("=").trim() } : { text: sought }), ...where });
      } catch (error) { note(error.message, "bad"); }
    },
  },
  field("Subject", h("input", { name: "subject", value: query.subject ?? "", placeholder: "all, or such as orders.*", spellcheck: "false" })),
  field("From sequence", h("input", { name: "seq", inputmode: "numeric", value: query.dir === "forward" ? query.seq ?? "" : "", placeholder: "newest" })),
  field("From time", h("input", { name: "time", type: "datetime-local", step: "1" })),
  h("div.field.broad", h("span", "Payload"), h("div.pair", h("select", { name: "how", "aria-label": "How to search" }, [["text", "contains"], ["path", "JSON has"]].map(([value, text]) => h("option", { value, selected: (value === "path") === Boolean(query.path) }, text))),
    h("input", { name: "text", "aria-label": "What to search for", value: query.path ? `${query.path}${query.value ? `=${query.value}` : ""}` : query.text ?? "", placeholder: "anything; JSON: customer.name=Tanaka", spellcheck: "false" }))),
  h("button.primary", { type: "submit" }, "Show"));
  const only = { subject: query.subject, text: query.text, path: query.path, value: query.value };
  const isNewest = !query.seq && !query.time && query.dir !== "forward";
  const box = h("div.messages");
  const fill = (page) => clear(box, page.messages.length ? [...page.messages].reverse().map((m) => item(stream, m, false, again)) : h("p.empty", page.is_whole ? "No message there." : "No message in the part that was looked at. Look on."));
  fill(found);
  const live = h("input", { type: "checkbox", name: "live", checked: query.live === "1", onchange: () => go(["messages", stream], { ...only, live: live.checked ? "1" : "" }) });
  const to = (text, where, off) => h("button", { type: "button", disabled: off, onclick: () => go(["messages", stream], { ...only, ...where }) }, text);
  const atEnd = found.after > found.last;
  content.append(
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/streams" }, "Streams"), " / ", h("a.name", { href: link(["streams", stream]) }, stream), " / "),
    h("div.title", h("h1", "Messages"), h("div.tools", isNewest && h("label.check", live, "Live"), h("span.dim", found.last ? `${count(found.first)} to ${count(found.last)}` : "empty"))),
    jump, !session.read_only && found.messages.length > 0 ? many(stream, box, again) : "", box,
    h("nav.pager", { "aria-label": "Pages" },
      to("⇤ Oldest", { dir: "forward" }, found.before <= found.first), to("‹ Older", { seq: found.before }, found.before <= found.first),
      to("Newer ›", { seq: found.after, dir: "forward" }, atEnd), to("Newest ⇥", {}, isNewest)),
    found.is_whole ? "" : h("p.hint", "Not everything was looked at: a page reads up to 5,000 messages or 16 MiB. The buttons look on from there."));
  if (!(isNewest && query.live === "1")) return undefined;
  let last = found.last;
  const add = (page) => {
    const fresh = page.messages.filter((m) => m.seq > last);
    if (fresh.length) { box.querySelector(".empty")?.remove(); box.prepend(...fresh.reverse().map((m) => item(stream, m, false, again))); }
    last = Math.max(last, page.after - 1);
    while (box.children.length > LIMIT * 8) box.lastChild.remove();
  };
  return follow(() => `streams/${part(stream)}/messages${params({ ...only, dir: "forward", seq: last + 1, limit: LIMIT })}`,
    add, (error) => box.prepend(failure(error)), () => document.querySelector("dialog"));
}
