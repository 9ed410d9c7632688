"""A collector that takes OTLP over HTTP and keeps the newest body of each path: collector.py DIRECTORY

Writes its port to DIRECTORY/port. Names are plain bytes in protobuf, so whoever reads the bodies needs no decoder;
crates/nuthatch-otlp/tests decodes them.
"""

import http.server
import pathlib
import sys

directory = pathlib.Path(sys.argv[1])
BODY_BYTES_MAX = 16 << 20


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(min(length, BODY_BYTES_MAX))
        is_right = self.headers["Content-Type"] == "application/x-protobuf" and len(body) == length
        if is_right:
            name = self.path.strip("/").replace("/", "-")
            # All spans, but only the newest metrics.
            with open(directory / name, "ab" if name == "v1-traces" else "wb") as file:
                file.write(body)
        self.send_response(200 if is_right else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
(directory / "port.new").write_text(str(server.server_port))
(directory / "port.new").rename(directory / "port")
server.serve_forever()
