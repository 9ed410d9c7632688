/** Steps about what is watched: history, stuck messages, deliveries by hand, connections, accounts, objects, logs, events. */
"use strict";

const assert = require("node:assert/strict");
const { existsSync, mkdtempSync, readFileSync, writeFileSync } = require("node:fs");
const net = require("node:net");
const { tmpdir } = require("node:os");
const { join } = require("node:path");

const HOSTILE = `<img src=x onerror="window.hacked=1">`;
const HOSTILE_OBJECT = `covers/"><script>window.hacked=1</script>\u202e.txt`;
const SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

/** A client that says nothing but who it is, what it listens on, and what else it is given to say. */
function listener(address, name, subject, more = "") {
  const [host, port] = address.split(":");
  const socket = net.connect(Number(port), host);
  const ready = new Promise((resolve, reject) => {
    socket.on("error", reject);
    let heard = "";
    socket.on("data", (data) => {
      heard += data;
      if (/^INFO[^\n]*\n$/.test(heard)) socket.write(`CONNECT ${JSON.stringify({ user: "ada", pass: "birds", name, verbose: false, lang: "test" })}\r\nSUB ${subject} 1\r\n${more}PING\r\n`);
      if (heard.includes("PONG")) resolve();
    });
  });
  const closed = new Promise((resolve) => { socket.on("close", resolve); });
  return { ready, closed, socket };
}

module.exports = ({ ada, natsAddress, patience }) => {
  const wait = (page, f, ...args) => page.page.waitForFunction(f, { timeout: patience }, ...args);
  const choose = (page, name, value) => page.page.select(`select[name="${name}"]`, value);
  const holding = { pub: (subject, text, ...more) => ada("pub", subject, text, "-J", "-q", ...more) };
  const listening = { client: null };
  const state = (stream) => JSON.parse(ada("stream", "info", stream, "--json")).state;

  const own = {
    async "stuck messages: seen in place, tried again, taken off the list"({ page, shoot }) {
      ada("stream", "add", "JOBS", "--subjects", "jobs.>", "--defaults");
      holding.pub("jobs.resize", '{"picture": "nuthatch.jpg", "width": 640}', "-H", "Nats-Msg-Id:once", "-H", "Trace-Id:4d558");
      holding.pub("jobs.resize", '{"picture": "crow.jpg", "width": -1}');
      holding.pub("jobs.mail", HOSTILE);
      ada("consumer", "add", "JOBS", "worker", "--pull", "--max-deliver", "1", "--wait", "100ms", "--defaults");
      ada("consumer", "next", "JOBS", "worker", "--count", "3", "--no-ack");
      await wait(page, async () => {
        const response = await fetch("/api/dead");
        return (await response.json()).total === 3;
      });
      await page.open("#/stuck", "delivered too often");
      await page.see("begins with the server's start");
      await page.see("jobs.mail");
      await shoot("stuck");
      await page.page.click("input[name=all]");
      await page.see("3 chosen");
      await page.press("Try again…");
      await page.press("Show as command");
      await page.see("nuthatch stream get JOBS 1 --raw | nuthatch pub jobs.resize - -J && nuthatch stream rmm JOBS 1 --force");
      await shoot("retry");
      await page.press("Try again");
      await page.see("3 messages: published again.");
      await page.see("Nothing is stuck");
      const { first_seq: first, last_seq: last, messages } = state("JOBS");
      assert.deepEqual([first, last, messages], [4, 6, 3], "published again, and the originals are gone");
      const again = [4, 5, 6].map((seq) => ada("stream", "get", "JOBS", String(seq))).join("\n");
      assert.ok(again.includes("4d558") && !again.includes("once"), "its headers, but none that would make it a duplicate");
      ada("consumer", "next", "JOBS", "worker", "--count", "3", "--no-ack");
      await page.open("#/stuck", "delivered too often");
      await wait(page, () => document.querySelectorAll("tbody input").length === 3);
      await page.page.click("tbody input");
      await page.press("Discard…");
      await page.confirm("discard", "Discard");
      await page.see("1 message: discarded.");
      assert.equal(state("JOBS").messages, 2);
      await wait(page, () => document.querySelectorAll("tbody input").length === 2 && !document.querySelector("dialog"));
      await page.page.click("input[name=all]");
      await page.see("2 chosen");
      await page.press("Take off the list");
      await page.see("Nothing is stuck");
      assert.equal(state("JOBS").messages, 2, "only the list is shorter");
      assert.equal((await page.api("POST", "dead/retry", { ids: [] })).status, 400);
      assert.equal((await page.api("POST", "dead/discard", { ids: [1] })).status, 400, "without a word");
      assert.equal(await page.page.evaluate(() => window.hacked), undefined);
    },

    async "a delivery by hand: refused, acknowledged, terminated"({ page, shoot }) {
      ada("consumer", "add", "JOBS", "manual", "--pull", "--wait", "10m", "--defaults");
      await page.open("#/consumers/JOBS/manual", "One delivery by hand");
      await page.press("Fetch one");
      await page.see("try 1");
      await page.see("Acknowledge");
      await shoot("delivery");
      await page.press("Refuse");
      await page.see("refused: it comes again");
      await page.press("Fetch one");
      await page.see("try 2");
      await page.press("Acknowledge");
      await page.see("is acknowledged.");
      await page.press("Fetch one");
      await page.see("try 1");
      await page.open("#/consumers/JOBS/manual", "Oldest outstanding");
      await page.see("Acknowledged up to");
      const reply = (await page.api("POST", "streams/JOBS/consumers/manual/next")).body;
      assert.equal(reply.message, null, "no more");
      const foreign = await page.api("POST", "streams/JOBS/consumers/manual/ack", { reply: "$JS.ACK.ORDERS.billing.1.1.1.1.0", ack: "ack" });
      assert.equal(foreign.status, 400, "of another consumer");
      const anywhere = await page.api("POST", "streams/JOBS/consumers/manual/ack", { reply: "orders.new", ack: "term" });
      assert.equal(anywhere.status, 400);
    },

    async "who pulls from a consumer is shown"({ page, shoot }) {
      ada("consumer", "add", "JOBS", "idle", "--pull", "--filter", "jobs.never", "--defaults");
      await page.open("#/consumers/JOBS/idle", "nobody now");
      const pull = '{"batch":10,"expires":600000000000}';
      const pulls = ["1", "2"].map((n) => `PUB $JS.API.CONSUMER.MSG.NEXT.JOBS.idle _INBOX.hands.${n} ${pull.length}\r\n${pull}\r\n`);
      const worker = listener(natsAddress, "label printer", "_INBOX.hands.*", pulls.join(""));
      await worker.ready;
      await page.open("#/consumers/JOBS/idle", "label printer");
      await page.see(", 2 pulls");
      await shoot("pullers");
      worker.socket.destroy();
    },

    async "a consumer is reset, and one sees before what that does"({ page, shoot }) {
      await page.open("#/consumers/ORDERS/billing", "Outstanding");
      await page.press("Reset…");
      await page.type("seq", "5");
      await page.see("It goes on at 5:");
      await page.see("were acknowledged and come again");
      await page.press("Show as command");
      await page.see(`nuthatch request '$JS.API.CONSUMER.RESET.ORDERS.billing' '{"seq":5}'`);
      await shoot("reset");
      await page.confirm("billing", "Reset");
      await page.see("billing goes on at 5.");
      const info = JSON.parse(ada("consumer", "info", "ORDERS", "billing", "--json"));
      assert.equal(info.ack_floor.stream_seq, 4);
    },

    async "messages are searched by text and by a path of JSON"({ page, shoot }) {
      const seqs = () => page.page.$$eval("details.message", (all) => all.map((x) => Number(x.dataset.seq)));
      await page.open("#/messages/ORDERS", "1 to ");
      await page.paste("input[name=text]", "tanaka");
      await page.press("Show");
      await wait(page, () => location.hash.includes("text=tanaka") && document.querySelectorAll("details.message").length === 9);
      assert.deepEqual(await seqs(), [38, 34, 30, 26, 22, 18, 14, 10, 6]);
      await choose(page, "how", "path");
      await page.paste("input[name=text]", "lines[0].count = 3");
      await page.press("Show");
      await wait(page, () => location.hash.includes("path=") && document.querySelectorAll("details.message").length === 7);
      assert.deepEqual(await seqs(), [37, 32, 27, 22, 17, 12, 7]);
      await shoot("search");
      const page2 = await page.api("GET", "streams/SENSORS/messages?dir=forward&text=nothing");
      assert.equal(page2.body.messages.length, 0);
      assert.equal((await page.api("GET", `streams/ORDERS/messages?text=${"x".repeat(300)}`)).status, 400);
      assert.equal((await page.api("GET", "streams/ORDERS/messages?time=2026-01-01T00:00:00%2B01:00")).status, 400);
    },

    async "a stream moves to another log, and is sealed"({ page, shoot }) {
      ada("stream", "add", "ARCHIVE", "--subjects", "archive.>", "--defaults");
      holding.pub("archive.a", "something old", "--count", "500");
      await page.open("#/streams/ARCHIVE", "in the log default");
      await page.press("Move…");
      await page.see("It is in the log default.");
      await choose(page, "log", "spare");
      await shoot("move");
      await page.confirm("ARCHIVE", "Move");
      await page.see("ARCHIVE is moving to spare.");
      await wait(page, async () => {
        const response = await fetch("/api/streams/ARCHIVE/move");
        return (await response.json()).log === "spare";
      });
      await page.open("#/streams/ARCHIVE", "in the log spare");
      await page.press("Seal…");
      await page.press("Show as command");
      await page.see("nuthatch stream seal ARCHIVE --force");
      await page.confirm("ARCHIVE", "Seal");
      await page.see("ARCHIVE is sealed.");
      assert.equal(JSON.parse(ada("stream", "info", "ARCHIVE", "--json")).config.sealed, true);
      assert.equal(state("ARCHIVE").messages, 500);
      const wrong = await page.api("POST", "streams/ORDERS/move", { confirm: "ORDERS", log: "nowhere" });
      assert.equal(wrong.status, 409, JSON.stringify(wrong));
      assert.equal((await page.api("POST", "streams/ORDERS/move", { log: "spare" })).status, 400, "unconfirmed");
    },

    async "buckets are created; objects uploaded, downloaded, replaced, deleted"({ page, shoot }) {
      await page.open("#/kv", "Create bucket…");
      await page.press("Create bucket…");
      await page.type("bucket", "flags");
      await page.type("history", "3");
      await page.press("Show as command");
      await page.see("nuthatch kv add flags --history 3");
      await page.press("Create bucket");
      await page.see("The bucket is empty.");
      ada("kv", "put", "flags", "dark", "on");
      assert.equal(JSON.parse(ada("stream", "info", "KV_flags", "--json")).config.max_msgs_per_subject, 3);
      await page.open("#/objects", "There are no object buckets yet.");
      await page.press("Create bucket…");
      await page.type("bucket", "pictures");
      await page.press("Create bucket");
      await page.see("The bucket is empty.");
      const dir = mkdtempSync(join(tmpdir(), "nuthatch-console-"));
      const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7919) % 251));
      const file = join(dir, "nuthatch.jpg");
      writeFileSync(file, bytes);
      for (const description of ["The bird on the cover", "The bird, again"]) {
        await page.press("Upload…");
        const input = await page.page.waitForSelector("dialog input[type=file]");
        await input.uploadFile(file);
        await page.type("name", "covers/nuthatch.jpg");
        await page.type("description", description);
        await page.press("Upload");
        await page.see("covers/nuthatch.jpg is there.");
        await page.see(description);
      }
      assert.ok(bytes.equals(readObject(ada, "pictures", "covers/nuthatch.jpg", dir)), "the same bytes by the command");
      assert.equal(state("OBJ_pictures").messages, 4, "three chunks and what is known; the replaced ones are gone");
      const put = await page.api("PUT", "objects/pictures/file", { name: HOSTILE_OBJECT, data: "", description: HOSTILE });
      assert.equal(put.status, 200, JSON.stringify(put.body));
      await page.open("#/objects/pictures", "covers/nuthatch.jpg");
      await page.see("<script>");
      await shoot("objects");
      const cdp = await page.page.createCDPSession();
      const downloads = mkdtempSync(join(dir, "downloads-"));
      await cdp.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads });
      await page.page.click('[aria-label="Download covers/nuthatch.jpg"]');
      const target = join(downloads, "nuthatch.jpg");
      const deadline = Date.now() + patience;
      while (!existsSync(target) || readFileSync(target).length < bytes.length) {
        assert.ok(Date.now() < deadline, "nothing was downloaded");
        await new Promise((resolve) => { setTimeout(resolve, 20); });
      }
      assert.ok(bytes.equals(readFileSync(target)), "the same bytes by the page");
      await page.page.click('[aria-label="Delete covers/nuthatch.jpg"]');
      await page.confirm("covers/nuthatch.jpg", "Delete object");
      await page.see("covers/nuthatch.jpg is deleted.");
      await page.see("deleted");
      assert.equal((await page.api("GET", "objects/pictures/part?name=covers/nuthatch.jpg")).status, 404);
      assert.equal(await page.page.evaluate(() => window.hacked), undefined);
    },

    async "events are there as they happen"({ page, shoot }) {
      await page.open("#/events", "stream created");
      await page.see("max deliveries");
      ada("stream", "add", "BRAND-NEW", "--subjects", "brand.new", "--defaults");
      await page.see("BRAND-NEW");
      await shoot("events");
    },

    async "connections of the account: rates, who listens, subscriptions"({ page, shoot }) {
      listening.client = listener(natsAddress, HOSTILE, "birds.>");
      await listening.client.ready;
      await page.open("#/connections", "nuthatch console");
      await wait(page, () => [...document.querySelectorAll("tbody td.num")].some((x) => /\d/.test(x.innerText)));
      await shoot("connections");
      await page.open("#/connections?subject=birds.nuthatch", HOSTILE);
      assert.equal(await page.page.$$eval("tbody tr", (all) => all.length), 1);
      await page.press(HOSTILE);
      await page.see("Waiting to be read");
      await page.see("birds.>");
      assert.ok(!(await page.text()).includes("Close connection"), "not for everybody");
      assert.equal((await page.api("POST", "connections/1/kick", { confirm: "1" })).status, 403);
      await page.open("#/connections?subject=nobody.listens", "No client listens on nobody.listens.");
      assert.equal(await page.page.evaluate(() => window.hacked), undefined);
    },

    async "the account, and what one may do"({ page, shoot }) {
      await page.open("#/accounts", "May a user do that?");
      await page.see("of 10.0 GiB");
      await page.type("subject", "orders.new");
      await page.press("Ask");
      await page.see("Yes: nothing is forbidden to this user.");
      await shoot("account");
      for (const path of ["logs", "leafs", "cluster", "findings", "configuration"]) assert.equal((await page.api("GET", path)).status, 403, path);
    },

    async "an hour of history is kept and drawn"({ page, shoot }) {
      // The second point comes ten seconds after the server's start.
      await wait(page, async () => {
        const response = await fetch("/api/history");
        return (await response.json()).ages_ms.length > 0;
      });
      await page.open("#/overview", "The last hour");
      await wait(page, () => document.querySelectorAll(".chart path[d^=M]").length === 6);
      const label = await page.page.$eval(".chart svg", (x) => x.getAttribute("aria-label"));
      assert.match(label, /^Messages per second: in now .*, at most .*; out now/);
      await page.page.hover(".chart svg");
      await shoot("overview");
    },
  };

  const system = {
    async "roles: who only looks changes nothing, who operates destroys nothing"({ page }) {
      await page.open("", "Log in");
      await choose(page, "role", "read");
      await page.type("user", "ada");
      await page.type("password", "birds");
      await page.press("Log in");
      await page.page.waitForSelector("header.top", { timeout: patience });
      await page.see("read-only");
      assert.equal((await page.api("GET", "streams/ORDERS")).status, 200);
      for (const [method, path, body] of [["POST", "publish", { subject: "a", data: "" }], ["DELETE", "streams/ORDERS", { confirm: "ORDERS" }], ["POST", "dead/forget", { ids: [1] }]]) {
        const answer = await page.api(method, path, body);
        assert.equal(answer.status, 403, `${method} ${path}`);
      }
      await page.open("#/streams/ORDERS", "billing");
      assert.ok(!/Delete|Purge|Move/.test(await page.page.$eval("main .title", (x) => x.innerText)));
      await page.press("Log out");
      await page.see("Log in");
      await page.open("", "Log in");
      await choose(page, "role", "operate");
      await page.type("user", "ada");
      await page.type("password", "birds");
      await page.press("Log in");
      await page.page.waitForSelector("header.top", { timeout: patience });
      await page.see("operate");
      assert.equal((await page.api("POST", "publish", { subject: "nobody.cares", data: "" })).status, 200);
      const refused = await page.api("DELETE", "streams/ORDERS", { confirm: "ORDERS" });
      assert.equal(refused.status, 403);
      assert.ok(refused.body.error.includes("with the role operate, this needs admin"), refused.body.error);
    },

    async "an nkey logs in, by its seed"({ page }) {
      await page.press("Log out");
      await page.see("Log in");
      await page.open("", "Log in");
      await page.press("Token, nkey or credentials file");
      await page.type("key_text", SEED);
      await page.press("Log in");
      await page.see("Overview");
      await page.see("UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4");
      await page.press("Log out");
      await page.see("Log in");
      await page.open("", "Log in");
      await page.press("Token, nkey or credentials file");
      await page.type("key_text", "SUNOTASEED");
      await page.press("Log in");
      await page.page.waitForSelector(".failure", { timeout: patience });
    },

    async "the system account sees the server, and closes connections"({ page, shoot }) {
      await page.logIn("root", "birds");
      await page.open("#/storage", "Live of what is stored");
      await page.see("99 % below");
      await page.see("spare");
      await shoot("storage");
      await page.open("#/cluster", "This server is alone");
      await page.open("#/server", "Configuration in force");
      await page.see("max_payload");
      await page.see("No leaf node is connected.");
      await page.see("Nothing: the file says what is in force.");
      const rows = () => page.page.$$eval("[aria-label='Settings of the file'] tbody tr", (all) => all.map((x) => [...x.children].map((y) => y.innerText)));
      const [users] = (await rows()).filter(([key]) => key === "accounts.SHOP.users");
      assert.equal(users[1], "not shown");
      assert.ok((await rows()).some(([key, value, where]) => key === "accounts.SHOP.jetstream.max_streams" && value === "1000" && /server\.conf:3:\d+$/.test(where)), JSON.stringify(await rows()));
      const conf = users[2].replace(/:\d+:\d+$/, "");
      const before = readFileSync(conf, "utf8");
      writeFileSync(conf, `${before}\nmax_payload: 2MB\n`);
      await page.open("#/server", "It would change at once: max_payload");
      await shoot("server");
      writeFileSync(conf, `${before}\nhttp: "127.0.0.1:-1"\n`);
      await page.open("#/server", "It would be refused: http needs a restart.");
      writeFileSync(conf, `${before}\nnonsense: 1\n`);
      await page.open("#/server", 'unknown field "nonsense"');
      writeFileSync(conf, before);
      await page.open("#/accounts", "Accounts and users");
      await page.see("viewer");
      await page.page.select("select[name=who]", await page.page.$$eval("select[name=who] option", (all) => all.find((x) => x.innerText.startsWith("viewer")).value));
      await page.type("subject", "orders.new");
      await page.press("Ask");
      await page.see("No: no allowed subject covers it.");
      await page.type("subject", "$JS.API.STREAM.INFO.ORDERS");
      await page.press("Ask");
      await page.see("Yes: $JS.API.STREAM.INFO.> is allowed.");
      await shoot("accounts");
      assert.ok(!(await page.text()).includes("birds"), "no password");
      await page.open("#/connections?search=onerror", HOSTILE);
      await page.press(HOSTILE);
      await page.press("Close connection…");
      await shoot("kick");
      const cid = await page.page.$eval("dialog b.name", (x) => x.innerText);
      await page.confirm(cid, "Close connection");
      await page.see(`Connection ${cid} is closed.`);
      await listening.client.closed;
      await page.open("#/connections?closed=1", HOSTILE);
      await page.see("Kicked");
      assert.equal((await page.api("GET", "dead")).body.total, 0, "of its own account only");
    },
  };
  return { own, system };
};

function readObject(ada, bucket, name, dir) {
  const target = join(dir, "by-command");
  ada("object", "get", bucket, name, "-O", target, "-f");
  return readFileSync(target);
}
