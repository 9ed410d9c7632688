"""The node of bench/ingest_search.py: one process that appends rows of vectors to its log, applies what it reads of the log to
its index, and answers searches and queries meanwhile. With the engine `embedded` the broker is in this process, too.

It takes commands from its standard input, one JSON object a line, and answers each with one; while it appends it tells `acked`.
"""

import functools
import json
import queue
import random
import socket
import struct
import sys
import threading
import time

import numpy
from ingest_logs import NatsLog, ProgramLog
from usearch.index import Index

DIMENSIONS, ROWS, NEIGHBOURS = 128, 100, 10
# Rows lie around so many points.
CENTRES, SPREAD = 2000, 0.4
# Every tenth record deletes a tenth of the rows of the nine before it.
CYCLE = 10
RECORDS_AN_APPEND = 4
# Records that may be in the log and not yet in the index: whoever inserts waits then.
AHEAD = 16
# Rows that go into the index between two answers: a search waits for at most so many.
SLICE = 10
PARAMETERS = {"ndim": DIMENSIONS, "metric": "l2sq", "dtype": "f32", "connectivity": 16, "expansion_add": 64, "expansion_search": 64}


def rows_of(number):
    """The vectors that record `number` inserts: points around some centres, as embeddings are. None if it deletes."""
    if number % CYCLE == CYCLE - 1:
        return None
    of_record = numpy.random.default_rng([2, number])
    near = centres()[of_record.integers(0, CENTRES, ROWS)]
    return near + SPREAD * of_record.standard_normal((ROWS, DIMENSIONS), dtype=numpy.float32)


@functools.cache
def centres():
    return numpy.random.default_rng(1).standard_normal((CENTRES, DIMENSIONS), dtype=numpy.float32)


def keys_of(number):
    if number % CYCLE == CYCLE - 1:
        first = (number - CYCLE + 1) * ROWS
        return numpy.arange(first, number * ROWS, CYCLE, dtype=numpy.uint64)
    return numpy.arange(number * ROWS, (number + 1) * ROWS, dtype=numpy.uint64)


def record(number):
    rows = rows_of(number)
    return struct.pack("<Q", number) + keys_of(number).tobytes() + (b"" if rows is None else rows.tobytes())


def live_keys(count):
    """Keys that are there after the first `count` records."""
    there = [keys_of(number) for number in range(count) if number % CYCLE != CYCLE - 1]
    gone = [keys_of(number) for number in range(CYCLE - 1, count, CYCLE)]
    none = numpy.zeros(0, dtype=numpy.uint64)
    return numpy.setdiff1d(numpy.concatenate(there or [none]), numpy.concatenate(gone or [none]))


class Table:
    """The index, which one thread has: it applies some rows, answers who asks, and so on. Nobody waits for another thread's turn."""

    def __init__(self):
        self.index, self.records = Index(**PARAMETERS), queue.Queue(AHEAD)
        self.applied, self.lost, self.doubled = 0, [], 0
        self.grown, self.asker = threading.Condition(), None

    def work(self, ended):
        while not ended.is_set():
            asker = self.asker
            try:
                body, arrived = self.records.get(block=not asker, timeout=0.1)
            except queue.Empty:
                if asker and self.applied:
                    asker.ask(self)
                continue
            self.apply(body, arrived, asker)
            self.records.task_done()

    def apply(self, body, arrived, asker):
        """Applies a record; those that were there before are passed over."""
        (number,) = struct.unpack_from("<Q", body)
        if number < self.applied:
            self.doubled += 1
            return
        # A log that loses what it has acknowledged has a gap here.
        self.lost += range(self.applied, number)
        deletes = number % CYCLE == CYCLE - 1
        count = (CYCLE - 1) * ROWS // CYCLE if deletes else ROWS
        keys = numpy.frombuffer(body, dtype=numpy.uint64, count=count, offset=8)
        if deletes:
            self.index.remove(keys)
        else:
            rows = numpy.frombuffer(body, dtype=numpy.float32, offset=8 + 8 * count).reshape(count, DIMENSIONS)
            for at in range(0, count, SLICE):
                self.index.add(keys[at : at + SLICE], rows[at : at + SLICE], threads=1, copy=True)
                if asker:
                    asker.ask(self)
        with self.grown:
            self.applied = number + 1
            self.grown.notify_all()
        arrived(number)

    def wait_for(self, count, seconds):
        with self.grown:
            return self.grown.wait_for(lambda: self.applied >= count, seconds)


class Asker:
    """A searcher: a search, then a query for the rows of ten keys, and so on, each as soon as the one before is answered."""

    def __init__(self):
        self.random, self.points = random.Random(4), numpy.random.default_rng(3)
        self.searched, self.queried, self.issued, self.searches = [], [], time.perf_counter(), True

    def ask(self, table):
        if self.searches:
            centre = centres()[self.random.randrange(CENTRES)]
            table.index.search(centre + SPREAD * self.points.standard_normal(DIMENSIONS, dtype=numpy.float32), NEIGHBOURS, threads=1)
        else:
            most = max(1, table.applied) * ROWS
            table.index.get(numpy.array([self.random.randrange(most) for _ in range(10)], dtype=numpy.uint64))
        now = time.perf_counter()
        (self.searched if self.searches else self.queried).append(now - self.issued)
        self.issued, self.searches = now, not self.searches


class Node:
    def __init__(self, options):
        self.broker, self.log = open_log(options)
        self.limit_s = options["limit_s"]
        self.table, self.ended, self.failure = Table(), threading.Event(), None
        self.appended_at, self.fresh, self.waited_s, self.idle = {}, [], 0.0, 0
        self.threads = []

    # What is read of the log.

    def follow(self):
        if self.threads:
            return
        for work in (self.read_on, lambda: self.table.work(self.ended)):
            self.threads.append(threading.Thread(target=self.guarded, args=(work,), daemon=True))
            self.threads[-1].start()

    def guarded(self, work):
        try:
            work()
        except BaseException as failure:  # told by the command that runs
            self.failure = self.failure or failure

    def read_on(self):
        reader, position = None, 0
        while not self.ended.is_set():
            began = time.perf_counter()
            try:
                reader = reader or self.log.reader(position)
                bodies = reader.read()
            except OSError:
                reader = reader and reader.close()
                time.sleep(0.02)
                continue
            finally:
                self.waited_s += time.perf_counter() - began
            position = reader.position
            self.idle = 0 if bodies else self.idle + 1
            for body in bodies:
                self.table.records.put((body, self.arrived))

    def arrived(self, number):
        """A record is in the index."""
        since = self.appended_at.pop(number, None)
        if since:
            self.fresh.append(time.perf_counter() - since)

    # What is appended to it.

    def append(self, begin, end):
        """Appends records, and gives how long each call took; what is not answered is appended again."""
        appender, took, until = None, [], time.perf_counter() + self.limit_s
        for first in range(begin, end, RECORDS_AN_APPEND):
            numbers = range(first, min(end, first + RECORDS_AN_APPEND))
            if first - AHEAD > begin and not self.table.wait_for(first - AHEAD, until - time.perf_counter()):
                raise self.failure or TimeoutError(f"record {first - AHEAD} is not in the index")
            bodies = [record(number) for number in numbers]
            began = time.perf_counter()
            self.appended_at |= dict.fromkeys(numbers, began)
            while True:
                try:
                    appender = appender or self.log.appender()
                    appender.append(bodies, numbers)
                    break
                except OSError:
                    appender = appender and appender.close()
                    if time.perf_counter() > until:
                        raise
                    time.sleep(0.01)
            took.append(time.perf_counter() - began)
            say({"acked": numbers[-1] + 1})
        appender and appender.close()
        return took

    # Commands.

    def create(self, _command):
        self.log.create()
        return {}

    def load(self, command):
        """Appends records, and searches until the index has all of them."""
        self.fresh = []
        self.follow()
        began = time.perf_counter()
        asker = self.table.asker = Asker()
        appended = self.append(command["from"], command["to"])
        if not self.table.wait_for(command["to"], self.limit_s) or self.failure:
            raise self.failure or TimeoutError(f"{self.table.applied} of {command['to']} records are in the index")
        self.table.asker = None
        seconds = time.perf_counter() - began
        rows = sum(ROWS for number in range(command["from"], command["to"]) if number % CYCLE != CYCLE - 1)
        return {
            "seconds": seconds, "rows": rows, "rows_per_s": rows / seconds, "appended_ms": shares(appended),
            "searched_ms": shares(asker.searched), "searches_per_s": len(asker.searched) / seconds, "queried_ms": shares(asker.queried),
            "queries_per_s": len(asker.queried) / seconds, "visible_ms": shares(self.fresh),
        }

    def recover(self, command):
        """Builds the index from the log, until everything that was acknowledged is in it, or nothing comes any more."""
        began = time.perf_counter()
        self.follow()
        while not self.table.wait_for(command["acked"], 0.2) and self.idle < 5:
            if self.failure or time.perf_counter() - began > self.limit_s:
                raise self.failure or TimeoutError(f"{self.table.applied} of {command['acked']} records were read")
        return {"seconds": time.perf_counter() - began, "waited_s": self.waited_s, "rows": len(self.table.index)}

    def verify(self, command):
        """Whether the index is what the acknowledged records make."""
        while self.idle < 1 and not self.failure:
            time.sleep(0.05)
        self.table.records.join()
        table, acked = self.table, command["acked"]
        lost = sorted({number for number in table.lost if number < acked} | set(range(table.applied, acked)))
        wanted = live_keys(table.applied)
        there = table.index.contains(wanted)
        wrong = int((~there).sum()) + abs(len(table.index) - int(there.sum()))
        for number in range(0, table.applied, max(1, table.applied // 50)):
            rows = rows_of(number)
            key = number * ROWS + 1
            if rows is not None and table.index.contains(key):
                wrong += int(not numpy.array_equal(table.index.get(key).reshape(-1), rows[1]))
        return {"lost": len(lost), "wrong": wrong, "doubled": table.doubled, "rows": len(table.index), "recall": self.recall(wanted)}

    def recall(self, live, count=50):
        """Which part of the true nearest neighbours searches find."""
        if len(live) == 0:
            return 0.0
        stored = numpy.asarray(self.table.index.get(live)).reshape(len(live), DIMENSIONS)
        asked = stored[:: max(1, len(live) // count)][:count] + 0.1
        squares, found = (stored**2).sum(axis=1), 0
        for row in asked:
            true = live[numpy.argpartition(squares - 2 * stored @ row, NEIGHBOURS)[:NEIGHBOURS]]
            found += len(numpy.intersect1d(true, self.table.index.search(row, NEIGHBOURS, threads=1).keys))
        return found / NEIGHBOURS / len(asked)

    def alone(self, command):
        """What the log takes by itself: the same records, nobody reads them."""
        log = type(self.log)(*self.alone_arguments(), "alone")
        log.create()
        appender, bodies, number, took = log.appender(), [record(at) for at in range(RECORDS_AN_APPEND)], 0, []
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < command["seconds"]:
            appender.append(bodies, [f"alone{number + at}" for at in range(len(bodies))])
            number += len(bodies)
            took.append(time.perf_counter() - now)
        return {"rows_per_s": number * ROWS / (time.perf_counter() - began), "appended_ms": shares(took)}

    def alone_arguments(self):
        return [self.log.path] if isinstance(self.log, ProgramLog) else [self.log.connect, "alone"]


def open_log(options):
    """The broker of this process, if it has one, and the log."""
    if options["kind"] == "program":
        return None, ProgramLog(options["socket"])
    if options["kind"] == "server":
        return None, NatsLog(lambda: connected(options["port"]))
    from nuthatch_embed import Broker

    broker = Broker(store_dir=options["dir"], initialize_timeout_s=60)
    return broker, NatsLog(broker.connect)


def connected(port):
    link = socket.create_connection(("127.0.0.1", port), 2)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def shares(seconds):
    """Milliseconds of some times: mean, p50, p99."""
    if not seconds:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0, "count": 0}
    ms = 1000 * numpy.sort(numpy.array(seconds))
    return {"mean": float(ms.mean()), "p50": float(ms[len(ms) // 2]), "p99": float(ms[int(0.99 * len(ms))]), "count": len(ms)}


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(options):
    # A thread that waits for the interpreter gets it soon: latencies are measured here.
    sys.setswitchinterval(0.0005)
    node = Node(json.loads(options))
    say({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        commands = {"create": node.create, "load": node.load, "recover": node.recover, "verify": node.verify, "alone": node.alone}
        say({"done": command["do"]} | commands[command["do"]](command))


if __name__ == "__main__":
    main(sys.argv[1])
