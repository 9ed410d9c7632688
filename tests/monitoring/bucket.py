"""A bucket with the part of the S3 API that the server uses, in memory; it can be slow, refuse, or have lost what it held.

Objects below a prefix share their troubles: `Bucket.troubles["slow"] = Trouble(delay_s=3)`.
"""

import dataclasses
import email.utils
import hashlib
import http.server
import re
import threading
import time
import urllib.parse
import xml.sax.saxutils

BODY_BYTES_MAX = 128 << 20
PAGE_MAX = 1000


@dataclasses.dataclass
class Trouble:
    """What happens to requests for objects below a prefix."""

    # Before each change is answered, of a key with this text in it.
    delay_s: float = 0
    of: str = ""
    # Every request is answered with this status.
    refuse: int = 0
    # Objects are there, and reading one finds nothing.
    is_lost: bool = False


class Bucket(http.server.ThreadingHTTPServer):
    """Listens on a free port from the start on; `address` is its URL."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.objects, self.lock, self.troubles = {}, threading.Lock(), {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def environment(self):
        """For a server that is to find it as the bucket "shop"."""
        return {
            "AWS_ENDPOINT_URL": self.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "here",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def handle_error(self, *_):
        """Clients that go away are part of the test."""


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def take(self):
        """Reads the request; gives its key, parameters, body and troubles."""
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX))
        # /BUCKET/PREFIX/…
        key = urllib.parse.unquote(url.path).strip("/").partition("/")[2]
        parameters = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        prefix = (key or parameters.get("prefix", "")).partition("/")[0]
        return key, parameters, body, self.server.troubles.get(prefix) or Trouble()

    def do_PUT(self):
        key, _, body, trouble = self.take()
        time.sleep(trouble.delay_s if trouble.of in key else 0)
        if trouble.refuse:
            return self.fail(trouble.refuse, "SlowDown")
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        with self.server.lock:
            if self.headers.get("If-None-Match") == "*" and key in self.server.objects:
                return self.fail(412, "PreconditionFailed")
            known = self.server.objects.get(key)
            if (expected := self.headers.get("If-Match")) and (not known or known[1] != expected):
                return self.fail(412, "PreconditionFailed")
            self.server.objects[key] = (body, tag, time.time())
        self.answer(200, ETag=tag)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        key, parameters, _, trouble = self.take()
        if trouble.refuse:
            return self.fail(trouble.refuse, "SlowDown")
        if not key:
            return self.list(parameters)
        with self.server.lock:
            found = self.server.objects.get(key)
        if not found or trouble.is_lost:
            return self.fail(404, "NoSuchKey")
        body, tag, at = found
        headers = {"ETag": tag, "Last_Modified": email.utils.formatdate(at, usegmt=True), "Accept_Ranges": "bytes"}
        wanted = (self.headers.get("Range") or "").removeprefix("bytes=")
        if not wanted:
            return self.answer(200, body, **headers)
        first, _, last = wanted.partition("-")
        first, last = (int(first), int(last or len(body) - 1)) if first else (max(0, len(body) - int(last)), len(body) - 1)
        if first >= len(body):
            return self.fail(416, "InvalidRange")
        part = body[first:last + 1]
        self.answer(206, part, Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(body)}", **headers)

    def do_DELETE(self):
        key, _, _, trouble = self.take()
        if trouble.refuse:
            return self.fail(trouble.refuse, "SlowDown")
        with self.server.lock:
            self.server.objects.pop(key, None)
        self.answer(204)

    def do_POST(self):
        """Deletes many at once."""
        _, _, body, _ = self.take()
        keys = [xml.sax.saxutils.unescape(key, {"&quot;": '"'}) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        with self.server.lock:
            for key in keys:
                self.server.objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode(), Content_Type="application/xml")

    def list(self, parameters):
        """A page of ListObjectsV2."""
        prefix, delimiter = parameters.get("prefix", ""), parameters.get("delimiter", "")
        after = parameters.get("continuation-token") or parameters.get("start-after", "")
        rows, groups, last, is_cut = [], set(), "", False
        with self.server.lock:
            found = sorted(key for key in self.server.objects if key.startswith(prefix) and key > after)
            objects = {key: self.server.objects[key] for key in found}
        for key in found:
            if len(rows) + len(groups) >= PAGE_MAX:
                is_cut = True
                break
            inner, is_group, _ = key[len(prefix):].partition(delimiter) if delimiter else (key, "", "")
            if is_group:
                groups.add(prefix + inner + delimiter)
            else:
                body, tag, at = objects[key]
                when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
                rows.append(f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
                            f"<ETag>{escape(tag)}</ETag><Size>{len(body)}</Size></Contents>")
            last = key
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_cut else ""
        common = "".join(f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>" for group in sorted(groups))
        body = (f"<ListBucketResult><Name>shop</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount>"
                f"<MaxKeys>{PAGE_MAX}</MaxKeys><IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}{''.join(rows)}{common}</ListBucketResult>")
        self.answer(200, body.encode(), Content_Type="application/xml")

    def log_message(self, *_):
        pass


def escape(text):
    return xml.sax.saxutils.escape(text, {'"': "&quot;"})
