// One delivery of a consumer by hand: fetched, shown, acknowledged.

import { api } from "./api.js";
import { clear, command, count, failure, h, note, asCommand } from "./dom.js";
import { body } from "./messages.js";

/** A section with a button that fetches. */
export function delivery(stream, name, path) {
  const box = h("div.result", { "aria-live": "polite" });
  const answer = async (m, ack, words) => {
    try {
      await api("POST", `${path}/ack`, { reply: m.reply, ack });
      clear(box, h("p.good", `Message ${m.seq} is ${words}.`));
    } catch (error) { note(error.message, "bad"); }
  };
  const fetch = async () => {
    try {
      const { message: m } = await api("POST", `${path}/next`, {});
      if (!m) { clear(box, h("p.dim", "It has no message now.")); return; }
      clear(box, h("p", "Message ", h("b", count(m.seq)), ` to `, h("span.name", m.subject), `, try ${count(m.deliveries)}. It waits for its answer as for any client.`), body(m, null),
        h("div.tools", h("button.primary", { type: "button", onclick: () => answer(m, "ack", "acknowledged") }, "Acknowledge"),
          h("button", { type: "button", onclick: () => answer(m, "nak", "refused: it comes again") }, "Refuse"),
          h("button.danger", { type: "button", onclick: () => answer(m, "term", "terminated") }, "Terminate")));
    } catch (error) { clear(box, failure(error)); }
  };
  return h("section", h("h2", "One delivery by hand"), h("div.result", h("div.tools", h("button", { type: "button", onclick: fetch }, "Fetch one")), asCommand(command("consumer", "next", stream, name, "--no-ack")), box));
}
