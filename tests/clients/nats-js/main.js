/** Runs the shared scenario list (../SCENARIOS.md) with the unmodified nats.js packages. */
"use strict";

const { parseArgs } = require("node:util");
const { runAll } = require("./harness");

for (const part of ["core", "streams", "limits", "pull", "redelivery", "push", "kv", "objects"]) {
  require(`./${part}`);
}

const { values } = parseArgs({ options: { url: { type: "string" }, only: { type: "string", default: "" } } });
runAll(values.url, values.only.split(",").filter(Boolean)).then(
  (good) => process.exit(good ? 0 : 1),
  (err) => {
    console.error(err);
    process.exit(1);
  },
);
