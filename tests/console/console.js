/** The web console in a real Chromium, without a window. */
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const { mkdirSync, readFileSync } = require("node:fs");
const http = require("node:http");
const puppeteer = require("puppeteer-core");
const others = require("./others.js");
const watching = require("./watching.js");

const [consoleUrl, readOnlyUrl, binary, natsAddress, readOnlyNats, serverLog, clusterUrl, lastNode, pictures] = process.argv.slice(2);
const PATIENCE_MS = 60_000;
const HOSTILE_STREAM = `x"&<img`;
const HOSTILE_SUBJECT = "hostile.<img/src=x/onerror=window.hacked=1>";
const HOSTILE_TEXT = `</pre><script>window.hacked=1</script><img src=x onerror="window.hacked=1">`;
const CONTROL = "a\u0000b\u001b[31mred\u0007\u202egnp.exe";

const cli = (address, ...args) => execFileSync(binary, ["--no-context", "-s", `nats://${address}`, ...args], { encoding: "utf8", env: { PATH: process.env.PATH } });
const ada = (...args) => cli(`ada:birds@${natsAddress}`, ...args);

/** What the pages show: a shop, some devices, and what somebody with bad intentions has left. */
function prepare() {
  ada("stream", "add", "ORDERS", "--subjects", "orders.>", "--description", "What customers have ordered", "--defaults");
  ada("stream", "add", "INVOICES", "--subjects", "invoices.>", "--max-age", "30d", "--defaults");
  ada("stream", "add", "SENSORS", "--subjects", "sensors.>", "--storage", "memory", "--max-msgs", "100000", "--defaults");
  ada("stream", "add", "TASKS", "--subjects", "tasks.*", "--retention", "work", "--defaults");
  for (let i = 0; i < 60; i += 1) ada("stream", "add", `TENANT-${String(i).padStart(3, "0")}`, "--subjects", `tenant.${i}.>`, "--defaults");
  for (let i = 1; i <= 40; i += 1) {
    const order = { id: 7000 + i, customer: ["Nilsson", "Okafor", "Tanaka", "Moreau"][i % 4], lines: [{ sku: "SEED-5KG", count: i % 5 + 1 }], total: 12.5 * i };
    ada("pub", `orders.${i % 3 ? "new" : "paid"}`, JSON.stringify(order), "-H", `Trace-Id:${(i * 7919).toString(16)}`, "-J");
  }
  ada("pub", "sensors.attic.temperature", "21.{{Random 1 2}}", "--count", "3000", "-J", "-q");
  ada("pub", "tasks.resize", "picture {{Count}}", "--count", "120", "-J", "-q");
  ada("consumer", "add", "ORDERS", "billing", "--pull", "--defaults");
  ada("consumer", "add", "ORDERS", "shipping", "--pull", "--filter", "orders.paid", "--defaults");
  ada("consumer", "add", "SENSORS", "archive", "--pull", "--defaults");
  ada("consumer", "add", "TASKS", "workers", "--pull", "--defaults");
  ada("consumer", "next", "ORDERS", "billing", "--count", "25");
  ada("consumer", "next", "ORDERS", "shipping", "--count", "4", "--no-ack");
  ada("kv", "add", "settings", "--history", "10");
  for (const [key, value] of [["shop.open", "true"], ["shop.currency", "EUR"], ["shop.motd", '{"text":"Fresh seeds","until":"2027-01-01"}'], ["mail.from", "shop@birds.example"]]) ada("kv", "put", "settings", key, value);
  for (const value of ["SEK", "NOK", "EUR"]) ada("kv", "put", "settings", "shop.currency", value);
  cli(readOnlyNats, "stream", "add", "KEPT", "--defaults");
  cli(readOnlyNats, "pub", "KEPT", "unchanged", "-J");
}

/** A request without a browser, whose headers are what the test says. */
function raw(base, method, path, headers = {}, body = undefined) {
  const { hostname, port } = new URL(base);
  return new Promise((resolve, reject) => {
    // Node gives the body of a DELETE no length by itself: it would be taken for another request.
    const length = body === undefined ? {} : { "Content-Length": Buffer.byteLength(body) };
    const request = http.request({ hostname, port, method, path, headers: { ...length, ...headers } }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }));
    });
    request.on("error", reject);
    request.end(body);
  });
}

class Visitor {
  constructor(page, base) { this.page = page; this.base = base; }

  /** Goes to a page and waits until it is there. */
  async open(hash, ready) {
    await this.page.goto("about:blank");
    await this.page.goto(`${this.base}/${hash}`);
    await this.see(ready);
  }
  /** Waits until the page shows a text. */
  async see(text) {
    await this.page.waitForFunction((t) => document.body.innerText.includes(t), { timeout: PATIENCE_MS }, text).catch(async () => {
      throw new Error(`${JSON.stringify(text)} is not on the page:\n${(await this.text()).slice(0, 3000)}`);
    });
  }
  async gone(text) {
    await this.page.waitForFunction((t) => !document.body.innerText.includes(t), { timeout: PATIENCE_MS }, text);
  }
  async text() { return this.page.evaluate(() => document.body.innerText); }
  /** Presses the button or follows the link with this text: within the dialog if one is open, else of the content first. */
  async press(text) {
    const find = (t) => {
      const dialog = document.querySelector("dialog[open]");
      const roots = dialog ? [dialog] : [document.querySelector("main"), document.body];
      const all = roots.flatMap((root) => [...(root?.querySelectorAll("button, a, summary") ?? [])]);
      return all.find((x) => x.innerText.trim() === t && !x.disabled);
    };
    await this.page.waitForFunction(find, { timeout: PATIENCE_MS }, text).catch(() => { throw new Error(`no button ${text}`); });
    const handle = await this.page.evaluateHandle(find, text);
    await handle.evaluate((x) => x.click());
  }
  /** Types into a field in place of what it holds. */
  async type(name, text) {
    const root = (await this.page.$("dialog[open]")) ? "dialog[open] " : "";
    const field = await this.page.waitForSelector(`${root}[name="${name}"]`, { timeout: PATIENCE_MS });
    await field.evaluate((x) => { x.value = ""; });
    await field.type(text);
  }
  /** Gives a field its value at once, as pasting does. */
  async paste(selector, text) {
    const field = await this.page.waitForSelector(selector, { timeout: PATIENCE_MS });
    await field.evaluate((x, t) => { x.value = t; x.dispatchEvent(new Event("input", { bubbles: true })); }, text);
  }
  async confirm(text, action) { await this.type("confirm", text); await this.press(action); }
  /** Asks the API as the page does. */
  async api(method, path, body) {
    return this.page.evaluate(async (m, p, b) => {
      const { session } = await import("/api.js");
      const headers = { "Content-Type": "application/json", "X-Console-Token": session.token };
      const response = await fetch(`/api/${p}`, { method: m, headers, body: m === "GET" ? undefined : JSON.stringify(b ?? {}) });
      return { status: response.status, body: await response.json() };
    }, method, path, body);
  }
  async logIn(user, password, ready = "Overview") {
    await this.open("", "Log in");
    await this.type("user", user);
    await this.type("password", password);
    await this.press("Log in");
    await this.see(ready);
  }
}

const VIEW = { width: 1240, height: 800 };
const { own, system } = watching({ ada, natsAddress, patience: PATIENCE_MS });

const STEPS = {
  async "who is not logged in is refused"() {
    for (const [method, path] of [["GET", "overview"], ["GET", "streams"], ["DELETE", "streams/ORDERS"], ["POST", "publish"], ["GET", "kv"], ["GET", "dead"], ["POST", "dead/retry"], ["GET", "history"], ["GET", "events"], ["GET", "connections"], ["POST", "connections/1/kick"], ["GET", "accounts"], ["GET", "users"], ["GET", "logs"], ["GET", "cluster"], ["GET", "findings"], ["GET", "streams/ORDERS/consumers/billing/listeners"], ["GET", "configuration"], ["PUT", "objects/b/file"]]) {
      const answer = await raw(consoleUrl, method, `/api/${path}`, { "Content-Type": "application/json" }, method === "GET" ? undefined : "{}");
      assert.equal(answer.status, 401, `${method} ${path}`);
    }
    const foreign = await raw(consoleUrl, "GET", "/", { Host: "evil.example" });
    assert.equal(foreign.status, 403);
  },

  async "wrong credentials are refused in words"({ page }) {
    await page.logIn("ada", "wrong", "the broker refuses these credentials");
  },

  async "a user logs in"({ page, shoot }) {
    await page.open("", "Log in");
    await shoot("login");
    await page.logIn("ada", "birds");
    await page.see("All is well.");
    await page.see("fsync before every acknowledgement");
    await page.see("SHOP");
    ada("pub", "sensors.attic.temperature", "21.5", "--count", "500", "-J", "-q");
    await page.page.waitForFunction(() => [...document.querySelectorAll(".tile b")].every((x) => x.innerText !== "–"), { timeout: PATIENCE_MS });
    const cookies = await page.page.browserContext().cookies();
    assert.equal(cookies.length, 1);
    assert.ok(cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
  },

  async "streams: list, search, sort, pages, deep links"({ page, shoot }) {
    await page.open("#/streams", "What customers have ordered");
    await shoot("streams");
    await page.see("of 65");
    await page.press("Next ›");
    await page.see("51–65 of 65");
    await page.open("#/streams?sort=messages&order=desc", "SENSORS");
    const first = await page.page.$eval("tbody tr td", (x) => x.innerText);
    assert.ok(first.startsWith("SENSORS"), first);
    await page.page.keyboard.press("/");
    await page.page.keyboard.type("tenant-05");
    await page.see("10 in all");
    await page.gone("SENSORS");
  },

  async "a stream is created, edited with a diff, purged and deleted"({ page, shoot }) {
    await page.open("#/streams/+create", "Create stream");
    await page.type("name", "RETURNS");
    await page.type("subjects", "returns.>, refunds.>");
    await page.type("max_msgs", "500");
    await page.see("+   \"max_msgs\": 500");
    await page.press("Show as command");
    await page.see("nuthatch stream add RETURNS --config stream.json");
    await page.page.evaluate(() => document.querySelector("form button[type=submit], .actions button.primary").click());
    await page.see("Stream RETURNS is there.");
    await page.see("returns.>, refunds.>");
    ada("pub", "returns.a", "one", "-J", "--count", "5", "-q");
    await page.press("Edit");
    await page.see("Nothing would change.");
    await page.type("max_msgs", "600");
    await page.type("description", "What came back");
    await page.see("-   \"max_msgs\": 500");
    await page.see("+   \"max_msgs\": 600");
    await shoot("edit");
    await page.press("Save changes");
    await page.see("The changes are in force.");
    await page.see("What came back");
    assert.ok(JSON.parse(ada("stream", "info", "RETURNS", "--json")).config.max_msgs === 600);
    await page.press("Purge…");
    await page.type("keep", "2");
    await page.press("Show as command");
    await page.see("nuthatch stream purge RETURNS --keep 2 --force");
    await shoot("purge");
    await page.confirm("RETURNS", "Purge");
    await page.see("3 messages are gone.");
    await page.press("Delete…");
    await page.type("confirm", "RETURN");
    assert.ok(await page.page.$eval("dialog button[type=submit]", (x) => x.disabled), "deletion without its name");
    await page.confirm("RETURNS", "Delete stream");
    await page.see("Stream RETURNS is deleted.");
    assert.ok(!ada("stream", "ls").includes("RETURNS"));
    const wrong = await page.api("DELETE", "streams/ORDERS", { confirm: "ORDER" });
    assert.equal(wrong.status, 400);
  },

  async "one stream"({ page, shoot }) {
    await page.open("#/streams/ORDERS", "billing");
    await page.see("shipping");
    await shoot("stream");
    await page.open("#/streams/NONE", "stream not found");
  },

  async "messages: both directions, sequence, time, filter, download, deletion"({ page, shoot }) {
    await page.open("#/messages/ORDERS", "1 to 40");
    const seqs = () => page.page.$$eval("details.message", (all) => all.map((x) => Number(x.dataset.seq)));
    assert.deepEqual(await seqs(), Array.from({ length: 25 }, (_, i) => 40 - i));
    await page.page.$eval("details.message", (x) => { x.open = true; });
    await page.see('"customer": "Nilsson"');
    await page.see("Trace-Id");
    await shoot("messages");
    await page.press("‹ Older");
    await page.page.waitForFunction(() => document.querySelectorAll("details.message").length === 15, { timeout: PATIENCE_MS });
    assert.deepEqual(await seqs(), Array.from({ length: 15 }, (_, i) => 15 - i));
    await page.type("seq", "10");
    await page.type("subject", "orders.paid");
    await page.press("Show");
    await page.page.waitForFunction(() => location.hash.includes("seq=10") && document.querySelector("details.message")?.dataset.seq === "39", { timeout: PATIENCE_MS });
    assert.deepEqual(await seqs(), [39, 36, 33, 30, 27, 24, 21, 18, 15, 12]);
    const twentieth = JSON.parse(ada("stream", "get", "ORDERS", "20", "--json"));
    await page.open(`#/messages/ORDERS?time=${encodeURIComponent(twentieth.time)}`, "Messages");
    await page.page.waitForFunction(() => document.querySelectorAll("details.message").length === 21, { timeout: PATIENCE_MS });
    assert.equal((await seqs()).at(-1), 20);
    const before = await page.api("GET", "streams/ORDERS/messages?seq=40&subject=orders.paid&limit=3");
    assert.deepEqual(before.body.messages.map((m) => m.seq), [33, 36, 39]);
    await page.open("#/messages/ORDERS?dir=forward", "Messages");
    await page.page.waitForSelector("details.message[data-seq='2']", { timeout: PATIENCE_MS });
    await page.page.$eval("details.message[data-seq='2']", (x) => { x.open = true; });
    await page.press("Delete…");
    await page.confirm("2", "Delete message");
    await page.see("Message 2 is deleted.");
    await page.page.waitForFunction(() => !document.querySelector("details.message[data-seq='2']"), { timeout: PATIENCE_MS });
    const consumers = await page.api("GET", "streams/ORDERS/consumers");
    assert.equal(consumers.body.total, 2, "looking at messages makes no consumer");
  },

  async "messages arrive live"({ page }) {
    await page.open("#/messages/INVOICES?live=1", "No message there.");
    const asked = (what) => page.page.evaluate((w) => performance.getEntriesByType("resource").filter((e) => e.name.includes(w)).length, what);
    await page.page.evaluate(() => performance.clearResourceTimings());
    for (const text of ["a fresh invoice", "another one", "and a third"]) {
      ada("pub", "invoices.new", text, "-J");
      await page.see(text);
    }
    assert.equal(await asked("/api/streams/"), 0, "messages come by themselves: nothing was asked for");
  },

  async "publish, with headers; a request and its reply"({ page, shoot }) {
    await page.open("#/publish", "Nothing sent yet.");
    await page.type("subject", "orders.new");
    await page.paste("textarea[name=data]", '{"id": 7041, "customer": "Lindqvist"}');
    await page.press("+ Add header");
    await page.type("header", "Trace-Id");
    await page.type("value", "it's here");
    await page.press("Show as command");
    await page.see(`nuthatch pub orders.new '{"id": 7041, "customer": "Lindqvist"}' -H 'Trace-Id:it'\\''s here' -J`);
    await page.press("Publish");
    await page.see("as message 41.");
    await shoot("publish");
    const stored = ada("stream", "get", "ORDERS", "41");
    assert.ok(stored.includes("it's here") && stored.includes("Lindqvist"), stored);
    await page.open("#/publish?subject=$JS.API.STREAM.NAMES", "Nothing sent yet.");
    await page.press("Send request");
    await page.see("io.nats.jetstream.api.v1.stream_names_response");
    await page.open("#/publish?subject=nobody.listens", "Nothing sent yet.");
    await page.press("Send request");
    await page.see('nobody listens on "nobody.listens"');
    const split = await page.api("POST", "publish", { subject: "a b\r\nPUB orders.new 0", data: "" });
    assert.equal(split.status, 400);
    const header = await page.api("POST", "publish", { subject: "a", data: "", headers: [["A", "b\r\nC: d"]] });
    assert.equal(header.status, 400);
  },

  async "many messages: published again elsewhere, deleted"({ page, shoot }) {
    for (const n of [1, 2, 3, 4]) ada("pub", "invoices.draft", JSON.stringify({ invoice: n }), "-H", `Part:${n}`, "-J");
    await page.open("#/messages/INVOICES?subject=invoices.draft", "Messages");
    const boxes = () => page.page.$$("details.message summary input[type=checkbox]");
    assert.equal((await boxes()).length, 4);
    const seqs = await page.page.$$eval("details.message", (all) => all.map((x) => Number(x.dataset.seq)));
    await (await boxes())[0].click();
    await (await boxes())[2].click();
    assert.equal(await page.page.$$eval("details.message[open]", (all) => all.length), 0, "choosing opens nothing");
    await page.see("2 chosen");
    await page.press("Publish again…");
    await page.type("subject", "invoices.copy");
    await shoot("many");
    await page.press("Publish again");
    await page.see("2 messages are published again.");
    const copies = (await page.api("GET", "streams/INVOICES/messages?subject=invoices.copy&dir=forward")).body.messages;
    assert.deepEqual(copies.map((m) => JSON.parse(atob(m.data)).invoice), [2, 4], "in their order");
    assert.deepEqual(copies[0].headers, [["Part", "2"]]);
    await page.page.waitForFunction(() => document.querySelectorAll("details.message summary input:checked").length === 0, { timeout: PATIENCE_MS });
    await page.page.click("input[name=all]");
    await page.see("4 chosen");
    await (await boxes())[3].click();
    await page.see("3 chosen");
    await page.press("Delete…");
    await page.confirm("delete", "Delete messages");
    await page.see("3 messages are deleted.");
    await page.page.waitForFunction(() => document.querySelectorAll("details.message").length === 1, { timeout: PATIENCE_MS });
    assert.equal(await page.page.$eval("details.message", (x) => Number(x.dataset.seq)), seqs[3]);
  },

  async "templates of messages stay in the browser, whatever their names"({ page, shoot }) {
    await page.open("#/publish", "None yet.");
    await page.type("subject", "orders.template");
    await page.paste("textarea[name=data]", HOSTILE_TEXT);
    await page.press("+ Add header");
    await page.type("header", "Kind");
    await page.type("value", "kept");
    await page.type("template", HOSTILE_TEXT);
    await page.press("Keep");
    await page.see("is kept in this browser.");
    await page.open("#/publish", "orders.template");
    await shoot("templates");
    await page.press(HOSTILE_TEXT);
    const filled = await page.page.evaluate(() => [...document.querySelectorAll("form.publish input[name=subject], form.publish input[name=header], form.publish input[name=value], form.publish textarea")].map((x) => x.value));
    assert.deepEqual(filled, ["orders.template", "Kind", "kept", HOSTILE_TEXT]);
    assert.equal(await page.page.evaluate(() => window.hacked), undefined);
    await page.page.evaluate(() => localStorage.setItem("nuthatch-templates", '[{"name":1},null,7,{"name":"half"}]'));
    await page.open("#/publish", "None yet.");
    await page.page.evaluate(() => localStorage.setItem("nuthatch-templates", "{nonsense"));
    await page.open("#/publish", "None yet.");
    await page.page.evaluate(() => localStorage.clear());
  },

  async "keys are watched, and one sees what has changed"({ page, shoot }) {
    await page.open("#/kv/settings?live=1", "shop.motd");
    ada("kv", "put", "settings", "shop.fresh", "just now there");
    await page.see("just now there");
    await page.open("#/kv/settings/shop.motd?live=1", "Fresh seeds");
    ada("kv", "put", "settings", "shop.motd", '{"text":"Sold out","until":"2027-01-01"}');
    await page.see("Sold out");
    await page.see("Since revision");
    const lines = (kind) => page.page.$$eval(`.changes .${kind}`, (all) => all.map((x) => x.innerText.trim()));
    assert.deepEqual(await lines("removed"), ['-   "text": "Fresh seeds",']);
    assert.deepEqual(await lines("added"), ['+   "text": "Sold out",']);
    await shoot("changes");
    ada("kv", "put", "settings", "shop.motd", '{"text":"Fresh seeds","until":"2027-01-01"}');
    ada("kv", "del", "settings", "shop.fresh", "--force");
  },

  async "consumers: sorted by lag, paused, resumed, deleted"({ page, shoot }) {
    await page.open("#/consumers", "archive");
    const rows = await page.page.$$eval("tbody tr", (all) => all.map((x) => x.innerText.split(/\s/)[0]));
    assert.deepEqual(rows, ["archive", "workers", "billing", "shipping"]);
    await shoot("consumers");
    await page.open("#/consumers/ORDERS/billing", "Outstanding");
    await shoot("consumer");
    await page.press("Pause…");
    await page.press("Pause");
    await page.see("Paused until");
    assert.equal(JSON.parse(ada("consumer", "info", "ORDERS", "billing", "--json")).paused, true);
    await page.press("Resume…");
    await page.press("Resume");
    await page.see("billing goes on.");
    await page.gone("Paused until");
    ada("consumer", "add", "ORDERS", "extra", "--pull", "--defaults");
    await page.open("#/consumers/ORDERS/extra", "Outstanding");
    await page.press("Delete…");
    await page.confirm("extra", "Delete consumer");
    await page.see("Consumer extra is deleted.");
    assert.ok(!ada("consumer", "ls", "ORDERS").includes("extra"));
  },

  async "key-value: buckets, keys, history, put, revert, delete"({ page, shoot }) {
    await page.open("#/kv", "settings");
    await page.open("#/kv/settings", "shop.currency");
    await page.see('{"text":"Fresh seeds"');
    await shoot("kv");
    await page.press("New key…");
    await page.type("key", "shop.phone");
    await page.type("value", "112");
    await page.press("Put");
    await page.see("shop.phone is at revision");
    await page.press("Put value…");
    await page.type("value", "113");
    await page.press("Put");
    await page.see("113");
    assert.equal(ada("kv", "get", "settings", "shop.phone", "--raw").trim(), "113");
    const stale = await page.api("PUT", "kv/settings/entry", { key: "shop.phone", data: "MTE0", revision: 1 });
    assert.equal(stale.status, 409, JSON.stringify(stale));
    await page.press("Delete…");
    await page.confirm("shop.phone", "Delete key");
    await page.see("deleted");
    await page.open("#/kv/settings/shop.currency", "NOK");
    await shoot("key");
    await page.page.$$eval("details.message", (all) => { all[1].open = true; });
    await page.press("Make it the newest…");
    await page.press("Put");
    await page.page.waitForFunction(() => document.querySelectorAll("details.message").length === 5, { timeout: PATIENCE_MS });
    assert.equal(ada("kv", "get", "settings", "shop.currency", "--raw").trim(), "NOK");
  },

  ...own,

  async "hostile names and payloads are text"({ page, shoot }) {
    const config = { name: HOSTILE_STREAM, subjects: ["hostile.>"], description: HOSTILE_TEXT, storage: "memory" };
    assert.equal((await page.api("POST", "streams", config)).status, 200);
    const encode = (text) => Buffer.from(text).toString("base64");
    const large = "<b>large</b> ".repeat(70_000);
    for (const [text, headers] of [[HOSTILE_TEXT, [["X-<b>", HOSTILE_TEXT]]], [CONTROL, []], [large, []], ["\ufffe\u202e{}", []], [JSON.stringify({ [HOSTILE_TEXT]: HOSTILE_TEXT, ["__proto__"]: 1 }), []]]) {
      const sent = await page.api("POST", "publish", { subject: HOSTILE_SUBJECT, data: encode(text), headers, stored: true });
      assert.equal(sent.status, 200, JSON.stringify(sent.body));
    }
    await page.api("POST", "publish", { subject: HOSTILE_SUBJECT, data: Buffer.from([0xff, 0xfe, 0, 1]).toString("base64"), stored: true });
    await page.open("#/streams?search=%3Cimg", HOSTILE_STREAM);
    await page.see("<script>window.hacked=1</script>");
    const name = encodeURIComponent(HOSTILE_STREAM);
    await page.open(`#/streams/${name}`, HOSTILE_STREAM);
    await page.open(`#/messages/${name}`, HOSTILE_SUBJECT);
    await page.page.$$eval("details.message", (all) => { for (const x of all) x.open = true; });
    await page.see("ff fe 00 01");
    await page.see("</pre><script>");
    await shoot("hostile");
    const shown = await page.text();
    assert.ok(!/[\u0000\u0007\u001b\u202e]/.test(shown), "control characters are shown as symbols");
    await page.press("Show all");
    await page.page.waitForFunction((n) => [...document.querySelectorAll("pre.box")].some((x) => x.innerText.length >= n), { timeout: PATIENCE_MS }, large.length);
    for (const hash of ["#/<img src=x onerror=window.hacked=1>", "#/streams/%3Cimg%20src=x%3E", "#/messages/%ff", "#/kv/<b>/<i>"]) {
      await page.page.goto("about:blank");
      await page.page.goto(`${consoleUrl}/${hash}`);
      await page.page.waitForFunction(() => document.querySelector("main h1, main .failure"), { timeout: PATIENCE_MS });
    }
    assert.equal(await page.page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.page.$$eval("main img, main script, main b:empty", (all) => all.length), 0);
  },

  async "what a browser cannot tell apart is not deleted on the page"({ page }) {
    const config = { name: "FAR", subjects: ["far"], storage: "memory", first_seq: 2 ** 53 + 8 };
    const made = await page.api("POST", "streams", config);
    assert.equal(made.status, 200, JSON.stringify(made.body));
    assert.equal((await page.api("POST", "publish", { subject: "far", data: "YQ==", stored: true })).status, 200);
    for (const [stream, expected] of [["FAR", 0], ["ORDERS", 1]]) {
      await page.open(`#/messages/${stream}`, stream === "FAR" ? "far" : "orders.");
      await page.page.$$eval("details.message", (all) => { all[0].open = true; });
      await page.see("Download");
      const offered = await page.page.$$eval("details.message button", (all) => all.filter((x) => x.textContent === "Delete…").length);
      assert.equal(offered, expected, stream);
    }
  },

  async "every page fits a narrow window"({ page }) {
    await page.page.setViewport({ width: 320, height: 700 });
    for (const hash of ["#/overview", "#/streams", "#/streams/ORDERS", "#/streams/ORDERS/edit", "#/messages/ORDERS", "#/consumers", "#/publish", "#/kv/settings", "#/kv/settings/shop.currency", "#/stuck", "#/events", "#/connections", "#/accounts", "#/objects", "#/objects/pictures", "#/consumers/JOBS/manual", `#/messages/${encodeURIComponent(HOSTILE_STREAM)}`]) {
      await page.open(hash, "Nuthatch");
      await page.page.waitForFunction(() => document.querySelector("main h1"), { timeout: PATIENCE_MS });
      const [wide, window] = await page.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= window, `${hash} is ${wide} wide in ${window}`);
    }
    await page.page.setViewport(VIEW);
  },

  async "keyboard and names for those who do not see"({ page }) {
    await page.open("#/streams", "ORDERS");
    await page.page.keyboard.press("4");
    await page.see("archive");
    assert.ok((await page.page.evaluate(() => location.hash)).startsWith("#/consumers"));
    for (const hash of ["#/overview", "#/streams", "#/streams/+create", "#/messages/ORDERS", "#/consumers", "#/publish", "#/kv/settings", "#/stuck", "#/events", "#/connections", "#/accounts", "#/objects/pictures", "#/consumers/JOBS/manual"]) {
      await page.open(hash, "Nuthatch");
      await page.page.waitForFunction(() => document.querySelector("main h1"), { timeout: PATIENCE_MS });
      const nameless = await page.page.evaluate(() => [...document.querySelectorAll("input, select, textarea, button, a")]
        .filter((x) => !(x.getAttribute("aria-label") || x.closest("label")?.innerText.trim() || x.innerText.trim() || x.title)).map((x) => x.outerHTML));
      assert.deepEqual(nameless, [], hash);
      assert.equal(await page.page.$$eval("h1", (all) => all.length), 1, `one heading on ${hash}`);
    }
  },

  async "nothing comes from elsewhere, and what is changed is in the log"({ page, requests }) {
    // The icons of Chromium's own controls are data.
    const elsewhere = requests.filter((url) => /^(https?|wss?|ftp|file):/.test(url) && new URL(url).origin !== new URL(consoleUrl).origin);
    assert.deepEqual(elsewhere, []);
    const cookies = await page.page.browserContext().cookies();
    const cookie = cookies.map((c) => `${c.name}=${c.value}`).join("; ");
    const headers = { Cookie: cookie, "Content-Type": "application/json" };
    const noToken = await raw(consoleUrl, "DELETE", "/api/streams/ORDERS", headers, '{"confirm":"ORDERS"}');
    assert.equal(noToken.status, 403, JSON.stringify(noToken));
    const foreign = await raw(consoleUrl, "GET", "/api/streams", { ...headers, Origin: "http://evil.example" });
    assert.equal(foreign.status, 403);
    const log = readFileSync(serverLog, "utf8");
    for (const line of ['"ada" of account "SHOP" from 127.0.0.1', 'create stream "RETURNS": done', 'delete stream "RETURNS": done', 'put key "shop.phone" of bucket "settings": done', 'login of "ada" from 127.0.0.1']) {
      assert.ok(log.includes(line), line);
    }
    assert.ok(!log.includes("birds"), "no password in the log");
  },

  async "a user sees his account and may do what he may, no more"({ page }) {
    await page.press("Log out");
    await page.see("Log in");
    await page.see("Log in as you would");
    await page.logIn("viewer", "birds");
    await page.open("#/streams/ORDERS", "billing");
    await page.press("Delete…");
    await page.confirm("ORDERS", "Delete stream");
    await page.see("your user may not do this");
    await page.press("Cancel");
    await page.open("#/messages/ORDERS", "Lindqvist");
    for (const [method, path, body] of [["POST", "publish", { subject: "orders.new", data: "" }], ["POST", "streams", { name: "X" }], ["DELETE", "streams/ORDERS/messages/1", { confirm: "1" }], ["DELETE", "streams/ORDERS/consumers/billing", { confirm: "billing" }], ["PUT", "kv/settings/entry", { key: "a", data: "" }], ["PUT", "objects/pictures/file", { name: "a", data: "" }], ["POST", "streams/ORDERS/consumers/billing/reset", { confirm: "billing" }], ["POST", "streams/ORDERS/consumers/billing/next", {}], ["POST", "streams/ORDERS/move", { confirm: "ORDERS", log: "spare" }], ["GET", "connections"], ["GET", "history"]]) {
      const answer = await page.api(method, path, body);
      assert.equal(answer.status, 403, `${method} ${path}: ${JSON.stringify(answer)}`);
    }
    await page.press("Log out");
    await page.see("Log in");
    await page.see("Log in as you would");
    await page.logIn("other", "birds");
    assert.equal((await page.api("GET", "dead")).body.total, 0, "nothing of another account");
    assert.deepEqual((await page.api("GET", "events")).body.rows, []);
    await page.open("#/streams", "There are no streams yet.");
    await page.press("Log out");
    await page.see("Log in");
    await page.see("Log in as you would");
    assert.equal(JSON.parse(ada("stream", "info", "ORDERS", "--json")).state.messages, 40);
  },

  ...system,

  async "a read-only console changes nothing, and lets everybody in where the server does"({ page }) {
    const reader = new Visitor(page.page, readOnlyUrl);
    await reader.open("#/streams/KEPT", "KEPT");
    await reader.see("read-only");
    const buttons = await page.page.$$eval("main button, main a.button", (all) => all.map((x) => x.innerText));
    assert.ok(!buttons.some((text) => /Edit|Purge|Delete/.test(text)), buttons.join());
    for (const [method, path, body] of [["DELETE", "streams/KEPT", { confirm: "KEPT" }], ["POST", "streams/KEPT/purge", { confirm: "KEPT" }], ["POST", "publish", { subject: "KEPT", data: "" }], ["POST", "request", { subject: "$JS.API.STREAM.DELETE.KEPT", data: "" }], ["POST", "dead/forget", { ids: [1] }], ["POST", "connections/1/kick", { confirm: "1" }], ["POST", "streams/KEPT/move", { confirm: "KEPT", log: "default" }], ["PUT", "objects/b/file", { name: "a", data: "" }]]) {
      const answer = await reader.api(method, path, body);
      assert.equal(answer.status, 403, `${method} ${path}`);
      assert.equal(answer.body.error, "this console is read-only");
    }
    assert.equal(JSON.parse(cli(readOnlyNats, "stream", "info", "KEPT", "--json")).state.messages, 1);
  },

  ...others({ at: (page, url) => new Visitor(page.page, url), readOnlyUrl, clusterUrl, lastNode, view: VIEW }),
};

/** Pictures of colours on their way from one to another would differ from run to run. */
const STILL = [{ name: "prefers-reduced-motion", value: "reduce" }];

async function main() {
  prepare();
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"];
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, headless: true, args, timeout: 120_000 });
  try {
    const tab = await browser.newPage();
    await tab.setViewport(VIEW);
    tab.setDefaultTimeout(PATIENCE_MS);
    const [requests, errors] = [[], []];
    tab.on("request", (request) => requests.push(request.url()));
    tab.on("pageerror", (error) => errors.push(error.message));
    tab.on("console", (message) => { if (message.type() === "error" && !/status of [45]/.test(message.text())) errors.push(message.text()); });
    await tab.emulateMediaFeatures(STILL);
    const shoot = async (name) => {
      if (!pictures) return;
      mkdirSync(pictures, { recursive: true });
      await tab.evaluate(() => document.getElementById("notes").replaceChildren());
      for (const scheme of ["light", "dark"]) {
        await tab.emulateMediaFeatures([...STILL, { name: "prefers-color-scheme", value: scheme }]);
        await tab.screenshot({ path: `${pictures}/${name}-${scheme}.png` });
      }
      await tab.emulateMediaFeatures(STILL);
    };
    const page = new Visitor(tab, consoleUrl);
    for (const [name, step] of Object.entries(STEPS)) {
      const begun = Date.now();
      await step({ page, shoot, requests }).catch((error) => { error.message = `${name}: ${error.message}`; throw error; });
      assert.deepEqual(errors, [], name);
      console.log(`ok ${name} (${Date.now() - begun} ms)`);
    }
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
