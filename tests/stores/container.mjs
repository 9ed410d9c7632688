// Makes a container in an Azurite: container.mjs http://127.0.0.1:PORT NAME
// Account and key are the ones that every Azurite has and its documentation names.
import { createHmac } from "node:crypto";

const [endpoint, container] = process.argv.slice(2);
const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const date = new Date().toUTCString();
const version = "2021-12-02";
// The twelve standard headers of a Shared Key signature; none of them is sent.
const standard = "\n".repeat(11);
const signed = `PUT\n${standard}x-ms-date:${date}\nx-ms-version:${version}\n/${account}/${account}/${container}\nrestype:container`;
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed, "utf8").digest("base64");
const answer = await fetch(`${endpoint}/${account}/${container}?restype=container`, {
    method: "PUT",
    headers: { "x-ms-date": date, "x-ms-version": version, authorization: `SharedKey ${account}:${signature}` },
});
if (answer.status !== 201) {
    console.error(`container.mjs: ${answer.status}: ${await answer.text()}`);
    process.exit(1);
}
