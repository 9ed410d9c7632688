/** nats.js over TLS: before and after INFO, and as the user that its certificate names. */
"use strict";

const { connect } = require("@nats-io/transport-node");

const [url, certs, want, when] = process.argv.slice(2);

async function main() {
  const tls = {
    caFile: `${certs}/ca.pem`,
    certFile: `${certs}/ada.pem`,
    keyFile: `${certs}/ada.key`,
    handshakeFirst: when === "first",
  };
  const nc = await connect({ servers: url, tls, timeout: 60_000 });
  const info = (await nc.request("$SYS.REQ.USER.INFO", "", { timeout: 60_000 })).json();
  if (info.data.user !== want) throw new Error(`${info.data.user} instead of ${want}`);
  await nc.close();
  console.log(`ok nats.js ${when} as ${want}`);
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
