"""The logs of bench/ingest_search.py behind one interface: append some records, read on.

A record is bytes. `append` returns when all of them are safe as the engine says; `read` gives records in their order, from the
beginning of the log. Both raise OSError where the connection is gone; whoever has one opens another, and appends again what
was not answered.
"""

import json
import socket
import struct
import time

STREAM, SUBJECT = "vectors", "vectors.rows"
PULL, PULL_NS = 32, 1_000_000_000
# How long an answer may take: a server that was killed does not answer at all.
ANSWER_S = 60


class Wire:
    """A connection in the protocol of NATS, read by one thread."""

    def __init__(self, connect):
        self.socket, self.buffer, self.at = connect(), bytearray(), 0
        self.socket.settimeout(ANSWER_S)
        self.inbox = f"_INBOX.{time.monotonic_ns()}"
        self.line()
        options = {"verbose": False, "headers": True, "no_responders": True, "lang": "python", "version": "1"}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.> 1\r\nPING\r\n".encode())
        while (line := self.line()) != b"PONG":
            if line.startswith(b"-ERR"):
                raise OSError(f"refused: {line}")

    def send(self, data):
        self.socket.sendall(data)

    def fill(self):
        if self.at > 1 << 20:
            del self.buffer[: self.at]
            self.at = 0
        got = self.socket.recv(1 << 18)
        if not got:
            raise ConnectionError("the connection has ended")
        self.buffer += got

    def line(self):
        while (end := self.buffer.find(b"\r\n", self.at)) < 0:
            self.fill()
        line = bytes(self.buffer[self.at : end])
        self.at = end + 2
        return line

    def bytes(self, count):
        while len(self.buffer) < self.at + count + 2:
            self.fill()
        found = bytes(self.buffer[self.at : self.at + count])
        self.at += count + 2
        return found

    def message(self):
        """Subject, reply, headers and body of the next one."""
        while True:
            line = self.line()
            words = line.split()
            if words[0] == b"MSG":
                return words[1].decode(), words[3] if len(words) == 5 else b"", b"", self.bytes(int(words[-1]))
            if words[0] == b"HMSG":
                head, whole = int(words[-2]), self.bytes(int(words[-1]))
                return words[1].decode(), words[3] if len(words) == 6 else b"", whole[:head], whole[head:]
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise OSError(f"an error of the server: {line}")

    def request(self, subject, body):
        """The answer to a call of JetStream's API; nothing else may be on its way."""
        reply = f"{self.inbox}.api.{time.monotonic_ns()}"
        text = json.dumps(body).encode()
        self.send(f"PUB {subject} {reply} {len(text)}\r\n".encode() + text + b"\r\n")
        while True:
            to, _, head, answer = self.message()
            if to == reply:
                break
        if head.startswith(b"NATS/1.0 503"):
            raise OSError("JetStream does not answer yet")
        answer = json.loads(answer)
        if "error" in answer:
            # A server that has just started may say so, too: whoever asks tries again for a while.
            raise OSError(f"{subject}: {answer['error']}")
        return answer

    def close(self):
        self.socket.close()


class NatsLog:
    """A stream of a server that speaks NATS. `connect` gives a socket."""

    def __init__(self, connect, subject=SUBJECT, stream=STREAM):
        self.connect, self.subject, self.stream = connect, subject, stream

    def create(self):
        config = {"name": self.stream, "subjects": [self.subject], "storage": "file", "num_replicas": 1}
        wire = Wire(self.connect)
        wire.request(f"$JS.API.STREAM.CREATE.{self.stream}", config)
        wire.close()

    def appender(self):
        return NatsAppender(self)

    def reader(self, after=0):
        return NatsReader(self, after)


class NatsAppender:
    def __init__(self, log):
        self.log, self.wire = log, Wire(log.connect)

    def append(self, bodies, ids):
        """The same id is stored once, so records without an answer can be appended again."""
        out = bytearray()
        for at, (body, name) in enumerate(zip(bodies, ids, strict=True)):
            head = f"NATS/1.0\r\nNats-Msg-Id: {name}\r\n\r\n".encode()
            out += f"HPUB {self.log.subject} {self.wire.inbox}.{at} {len(head)} {len(head) + len(body)}\r\n".encode()
            out += head + body + b"\r\n"
        self.wire.send(out)
        for _ in bodies:
            _, _, head, answer = self.wire.message()
            if head or "error" in json.loads(answer):
                raise OSError(f"not stored: {head[:30]} {answer[:200]}")

    def close(self):
        self.wire.close()


class NatsReader:
    """A pull consumer without acknowledgements; what is read next is what follows `after`."""

    def __init__(self, log, after):
        self.log, self.wire, self.wanted = log, Wire(log.connect), 0
        last = self.wire.request(f"$JS.API.STREAM.INFO.{log.stream}", {})["state"]["last_seq"]
        # Of a log that has lost what was read of it, the rest is read.
        self.position = min(after, last)
        config = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.position + 1, "ack_policy": "none",
                  "inactive_threshold": 300 * PULL_NS}
        made = self.wire.request(f"$JS.API.CONSUMER.CREATE.{log.stream}", {"stream_name": log.stream, "config": config})
        self.next = f"$JS.API.CONSUMER.MSG.NEXT.{log.stream}.{made['name']}"

    def read(self):
        """Some records, none where none comes for a second."""
        if self.wanted <= 0:
            text = json.dumps({"batch": PULL, "expires": PULL_NS}).encode()
            self.wire.send(f"PUB {self.next} {self.wire.inbox}.pull {len(text)}\r\n".encode() + text + b"\r\n")
            self.wanted = PULL
        found = []
        while self.wanted > 0 and not found or self.wanted > 0 and len(self.wire.buffer) - self.wire.at > 1 << 16:
            _, reply, head, body = self.wire.message()
            if head.startswith(b"NATS/1.0 4"):
                self.wanted = 0
                break
            sequence = int(reply.split(b".")[5])
            if sequence != self.position + 1:
                raise RuntimeError(f"record {sequence} came after {self.position}")
            self.position, self.wanted = sequence, self.wanted - 1
            found.append(body)
        return found

    def close(self):
        self.wire.close()


HELLO, PREPARE, OPEN_SENDER, OPEN_RECEIVER, SEND, RECEIVE = 1, 2, 3, 4, 5, 6


class Program:
    """A connection to a program of bench/peers: see harness.go there."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def call(self, operation, body=b""):
        self.socket.sendall(struct.pack(">IB", len(body) + 1, operation) + body)
        head = self.file.read(5)
        if len(head) < 5:
            raise ConnectionError("the connection has ended")
        size, status = struct.unpack(">IB", head)
        answer = self.file.read(size - 1)
        if len(answer) < size - 1:
            raise ConnectionError("the connection has ended")
        if status:
            raise OSError(answer.decode(errors="replace"))
        return answer

    def close(self):
        self.file.close()
        self.socket.close()


class ProgramLog:
    """A topic of RocksMQ or Woodpecker."""

    def __init__(self, path, topic=STREAM):
        self.path, self.topic = path, topic

    def create(self):
        link = Program(self.path)
        link.call(PREPARE, self.topic.encode())
        link.close()

    def appender(self):
        return ProgramAppender(self)

    def reader(self, after=0):
        return ProgramReader(self)


class ProgramAppender:
    def __init__(self, log):
        self.link = Program(log.path)
        self.link.call(OPEN_SENDER, struct.pack(">I", 0) + log.topic.encode())

    def append(self, bodies, _ids):
        """There are no ids: what is appended again is there twice, and its reader passes over it."""
        body = struct.pack(">I", len(bodies)) + b"".join(struct.pack(">I", len(one)) + one for one in bodies)
        self.link.call(SEND, body)

    def close(self):
        self.link.close()


class ProgramReader:
    """From the beginning whenever the program has started anew."""

    position = 0

    def __init__(self, log):
        self.link = Program(log.path)
        self.link.call(OPEN_RECEIVER, struct.pack(">I", 0) + log.topic.encode())

    def read(self):
        answer = self.link.call(RECEIVE, struct.pack(">II", PULL, 1000))
        (count,), at, found = struct.unpack_from(">I", answer), 4, []
        for _ in range(count):
            (size,) = struct.unpack_from(">I", answer, at)
            found.append(answer[at + 4 : at + 4 + size])
            at += 4 + size
        return found

    def close(self):
        self.link.close()
