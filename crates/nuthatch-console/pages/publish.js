// Publish and request.

import { api, part, session } from "./api.js";
import { asCommand, bytes, clear, count, encode, failure, field, h, payload, quote } from "./dom.js";
import { body } from "./messages.js";
import { templates } from "./templates.js";

function headerRow(name = "", value = "") {
  const row = h("div.header-row",
    h("input", { name: "header", value: name, placeholder: "Header", "aria-label": "Header name", spellcheck: "false" }),
    h("input", { name: "value", value, placeholder: "Value", "aria-label": "Header value" }),
    h("button.quiet", { type: "button", "aria-label": "Remove header", onclick: () => { const { form } = row.querySelector("input"); row.remove(); form?.dispatchEvent(new Event("input")); } }, "×"));
  return row;
}

const words = (text) => quote(text === "" ? "" : text) || "''";

export async function publish(content, _rest, query) {
  if (session.read_only) {
    content.append(h("h1", "Publish"), h("p.lead", "This console is read-only: it sends nothing."));
    return;
  }
  let start = { subject: query.subject ?? "", headers: [], text: "", raw: null };
  if (query.from && query.seq) {
    const m = await api("GET", `streams/${part(query.from)}/messages/${part(query.seq)}`);
    const raw = payload(m.data);
    let text = "";
    let keep = null;
    try { text = new TextDecoder("utf-8", { fatal: true }).decode(raw); } catch { keep = m.data; }
    start = { subject: m.subject, headers: m.headers.filter(([k]) => !/^nats-/i.test(k)), text, raw: keep };
  }
  const headers = h("div.headers-in", start.headers.map(([k, v]) => headerRow(k, v)));
  const data = h("textarea.code", { name: "data", rows: 10, value: start.text, spellcheck: "false", "aria-label": "Payload", disabled: start.raw !== null });
  const result = h("div.result", { "aria-live": "polite" });
  const size = h("small");
  const subject = h("input", { name: "subject", required: true, autofocus: true, value: start.subject, spellcheck: "false", autocomplete: "off", placeholder: "orders.new" });
  const stored = h("input", { type: "checkbox", name: "stored", checked: true });
  const wait = h("input", { name: "wait", inputmode: "decimal", value: "5" });
  const pairs = () => [...headers.children].map((row) => [...row.querySelectorAll("input")].map((i) => i.value)).filter(([k]) => k !== "");
  const line = (verb) => ["nuthatch", verb, words(subject.value || "SUBJECT"), start.raw === null ? words(data.value) : "- < FILE", ...pairs().map(([k, v]) => `-H ${quote(`${k}:${v}`)}`), verb === "pub" && stored.checked ? "-J" : ""].filter(Boolean).join(" ");
  const command = asCommand(() => `${line("pub")}\n${line("request")}`);
  const message = () => ({ subject: subject.value.trim(), headers: pairs(), data: start.raw ?? encode(data.value) });
  const update = () => { clear(size, start.raw === null ? bytes(new TextEncoder().encode(data.value).length) : "binary, sent as it is"); command.update(); };
  const buttons = [];
  const send = async (what) => {
    if (!form.reportValidity()) return;
    buttons.forEach((b) => { b.disabled = true; });
    const begun = performance.now();
    try {
      if (what === "publish") {
        const ack = await api("POST", "publish", { ...message(), stored: stored.checked });
        clear(result, h("p.good", stored.checked ? ["Stored in ", h("b.name", ack.stream), " as message ", h("b", count(ack.seq)), ack.duplicate ? ": a duplicate, not stored again." : "."] : "Sent."));
      } else {
        const reply = await api("POST", "request", { ...message(), wait_ms: Math.round(Number(wait.value) * 1000) || 5000 });
        clear(result, h("p.good", `A reply of ${bytes(reply.size)} after ${Math.round(performance.now() - begun)} ms.`), body(reply, null));
      }
    } catch (error) { clear(result, failure(error)); }
    buttons.forEach((b) => { b.disabled = false; });
  };
  buttons.push(h("button", { type: "button", onclick: () => send("request") }, "Send request"), h("button.primary", { type: "submit" }, "Publish"));
  const form = h("form.publish", { onsubmit: (event) => { event.preventDefault(); send("publish"); }, oninput: update },
    field("Subject", subject),
    h("div.field", h("span", "Headers"), headers, h("button.quiet", { type: "button", onclick: () => headers.append(headerRow()) }, "+ Add header")),
    h("label.field", h("span", "Payload ", size), data),
    h("div.inline", h("label.check", stored, "Wait until a stream has stored it"), h("label.check", "Wait for a reply ", wait, " s")),
    command, h("div.actions", buttons));
  const kept = templates({
    read: () => (start.raw === null ? { subject: subject.value, headers: pairs(), text: data.value } : null),
    use: (template) => {
      subject.value = template.subject;
      data.value = template.text;
      clear(headers, template.headers.map(([k, v]) => headerRow(k, v)));
      update();
    },
  });
  content.append(h("h1", "Publish"), h("p.lead", "Send a message as your user, or a request whose reply comes back here."), h("div.columns.wide-left", h("section", form), h("section", h("h2", "Result"), result, kept)));
  clear(result, h("p.dim", "Nothing sent yet."));
  update();
}
