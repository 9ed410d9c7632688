/** A page in a real Chromium, without a window, talks to the server over websocket. */
"use strict";

const { createServer } = require("node:http");
const { existsSync } = require("node:fs");
const esbuild = require("esbuild");
const puppeteer = require("puppeteer-core");

const [url, pagePort] = process.argv.slice(2);
const MESSAGES = 200;
/** Our exit code when the port for the page is in use. */
const PORT_TAKEN = 75;
const BROWSERS = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/usr/bin/google-chrome-stable",
];

async function bundle() {
  const built = await esbuild.build({
    entryPoints: [`${__dirname}/page.js`],
    bundle: true,
    format: "iife",
    platform: "browser",
    write: false,
    nodePaths: (process.env.NODE_PATH ?? "").split(":"),
  });
  return built.outputFiles[0].text;
}

function serve(script) {
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("Content-Type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script : '<!doctype html><script src="/page.js"></script>');
  });
  // Somebody else may have been quicker; whoever called us chooses another port then.
  server.on("error", (err) => {
    console.error(err);
    process.exit(err.code === "EADDRINUSE" ? PORT_TAKEN : 1);
  });
  return new Promise((resolve) => {
    server.listen(Number(pagePort), "127.0.0.1", () => resolve(server));
  });
}

async function main() {
  const executablePath = BROWSERS.find((path) => path && existsSync(path));
  if (!executablePath) {
    throw new Error("no Chromium: install the package chromium, or name one with CHROMIUM=…");
  }
  const server = await serve(await bundle());
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  const browser = await puppeteer.launch({ executablePath, headless: true, args, timeout: 120_000 });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(120_000);
    page.on("pageerror", (err) => console.error(`page: ${err.message}`));
    await page.goto(`http://127.0.0.1:${pagePort}/`);
    const found = await page.evaluate((servers) => window.run(servers), url);
    if (found.good !== MESSAGES || found.pending !== 0) {
      throw new Error(`the page has read ${JSON.stringify(found)}`);
    }
    // The same page under another name comes from an origin that is not allowed.
    await page.goto(`http://localhost:${pagePort}/`);
    if (!(await page.evaluate((target) => window.refused(target), url))) {
      throw new Error("a page from an origin that is not allowed was let in");
    }
    console.log(`ok ${await browser.version()}: ${found.good} messages`);
  } finally {
    await browser.close();
    server.close();
  }
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
