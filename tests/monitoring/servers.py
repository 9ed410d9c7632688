"""Servers for tests of monitoring, and a client that speaks just enough of the protocol to trouble them."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port

READY_S = 120
PATIENCE_S = 60


class Client:
    """A connection. What is not asked for is not read."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.reader = self.socket.makefile("rb")
        self.inbox, self.calls = f"_INBOX.{os.urandom(8).hex()}", 0
        assert self.reader.readline().startswith(b"INFO ")
        self.send('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB %s.* 1\r\nPING\r\n' % self.inbox)
        while not (line := self.reader.readline()).startswith(b"PONG"):
            assert line and not line.startswith(b"-ERR"), line

    def send(self, text):
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def publish(self, subject, body=b"", reply=""):
        body = body.encode() if isinstance(body, str) else body
        self.send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(body), body))

    def ask(self, subject, body=""):
        """Sends a request, gives the reply's body."""
        self.calls += 1
        reply = f"{self.inbox}.{self.calls}"
        self.publish(subject, body, reply)
        while True:
            to, payload = self.next()
            if to == reply:
                return payload

    def next(self):
        """The next message: subject and body."""
        while True:
            line = self.reader.readline()
            assert line and not line.startswith(b"-ERR"), line
            if line.startswith(b"PING"):
                self.send("PONG\r\n")
            if line.startswith((b"MSG", b"HMSG")):
                words = line.split()
                payload = self.reader.read(int(words[-1]) + 2)[:-2]
                return words[1].decode(), payload[int(words[-2]):] if words[0] == b"HMSG" else payload

    def call(self, what, tolerated=(), **body):
        """A call of the JetStream API."""
        answer = json.loads(self.ask(f"$JS.API.{what}", json.dumps(body) if body else ""))
        error = answer.get("error")
        assert not error or error["err_code"] in tolerated, (what, error)
        return answer

    def add_stream(self, name, subjects=(), **config):
        self.call(f"STREAM.CREATE.{name}", **{"name": name, "subjects": list(subjects) or [f"{name.lower()}.>"], **config})

    def store(self, subject, body, count=1):
        """Publishes with acknowledgements, one after the other."""
        for _ in range(count):
            answer = json.loads(self.ask(subject, body))
            assert "error" not in answer, answer


class Server:
    """A server with a store, and ports that stay the same when it is started again."""

    all = []

    def __init__(self, binary, work, name, config="", inside=(), limits=None, environment=None):
        self.name, self.dir, self.process = name, pathlib.Path(work) / name, None
        Server.all.append(self)
        self.port, self.monitor = free_port(), free_port()
        self.instance = f"127.0.0.1:{self.monitor}"
        self.environment, self.limits = environment or {}, limits
        (self.dir / "store").mkdir(parents=True)
        (self.dir / "server.conf").write_text(f'server_name: {name}\nhttp: "{self.instance}"\n{config}\n')
        self.command = [*inside, binary, "serve", "-js", "-c", "server.conf", "-sd", "store", "-a", "127.0.0.1", "-p", str(self.port),
                        "--console", "off"]

    def start(self):
        with open(self.dir / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.dir, stdout=log, stderr=log, preexec_fn=self.limits,
                env={**os.environ, **self.environment})
        deadline = time.monotonic() + READY_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} does not start:\n{self.log()}")
            time.sleep(0.2)
        return self

    def is_ready(self):
        try:
            return "ok" in self.get("/healthz")
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.instance}{path}", timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def log(self):
        return "\n".join((self.dir / "server.log").read_text(errors="replace").splitlines()[-20:])

    def stop(self, kill=False):
        if self.process is None or self.process.poll() is not None:
            return
        (self.process.kill if kill else self.process.terminate)()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def client(self):
        return Client(self.port)

    def metric(self, name):
        """The sum over all series of this name."""
        lines = (line.rpartition(" ") for line in self.get("/metrics?streams=0&consumers=0").splitlines())
        return sum(float(value) for series, _, value in lines if series.partition("{")[0] == name)

    def wait_for(self, metric, least):
        deadline = time.monotonic() + PATIENCE_S
        while self.metric(metric) < least:
            assert time.monotonic() < deadline, f"{self.name}: {metric} stays at {self.metric(metric)}"
            time.sleep(0.2)

    def files(self, pattern):
        """Of its default log, oldest first; seen from the namespace of the server."""
        return sorted((self.root() / "nuthatch/default").glob(pattern))

    def root(self):
        return pathlib.Path(f"/proc/{self.innermost()}/root{self.dir}/store")

    def innermost(self):
        """The server itself, where a program that makes its surroundings was started for it."""
        pid = self.process.pid
        while children := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        return pid
