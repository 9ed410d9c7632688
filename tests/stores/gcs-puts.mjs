// Stands before a fake-gcs-server and changes one thing: gcs-puts.mjs PORT http://127.0.0.1:PORT-OF-IT
//
// fake-gcs-server speaks Google's XML API for reading, listing and deleting, but takes uploads by the JSON API alone.
// A PUT of an object, with its precondition, becomes that API's upload; everything else passes as it is.
// With a third argument `unconditional` preconditions are left out, as by a store that does not know them.
import { createServer, request } from "node:http";

const [port, backend, mode] = process.argv.slice(2);
const target = new URL(backend);

/** PUT /bucket/key with x-goog-if-generation-match: upload with ifGenerationMatch. */
function uploadPath(incoming) {
    const [, bucket, key] = /^\/([^/?]+)\/([^?]+)/.exec(incoming.url);
    const condition = incoming.headers["x-goog-if-generation-match"];
    const query = new URLSearchParams({ uploadType: "media", name: decodeURIComponent(key) });
    if (condition !== undefined && mode !== "unconditional") query.set("ifGenerationMatch", condition);
    return `/upload/storage/v1/b/${bucket}/o?${query}`;
}

createServer((incoming, outgoing) => {
    const isUpload = incoming.method === "PUT";
    const options = {
        host: target.hostname,
        port: target.port,
        method: isUpload ? "POST" : incoming.method,
        path: isUpload ? uploadPath(incoming) : incoming.url,
        headers: { ...incoming.headers, host: target.host },
    };
    const onward = request(options, (answer) => {
        const parts = [];
        answer.on("data", (part) => parts.push(part));
        answer.on("end", () => {
            const body = Buffer.concat(parts);
            const headers = { ...answer.headers };
            delete headers["transfer-encoding"];
            if (incoming.method !== "HEAD") headers["content-length"] = body.length;
            if (isUpload && answer.statusCode === 200) {
                // Where the XML API says what the JSON API has in its body.
                const object = JSON.parse(body);
                headers.etag = `"${object.etag}"`;
                headers["x-goog-generation"] = object.generation;
            }
            outgoing.writeHead(answer.statusCode, headers);
            outgoing.end(incoming.method === "HEAD" ? undefined : body);
        });
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
}).listen(Number(port), "127.0.0.1");
