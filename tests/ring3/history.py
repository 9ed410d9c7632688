"""What clients did and saw: invocations, answers, and contents by sequence."""

import dataclasses
import hashlib
import time


def content_of(key):
    """The content of the message with this id: of 20 to 2,000 bytes, the same for everybody."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    length = 20 + int(digest[:4], 16) % 1000 * (2 if digest[4] == "0" else 1) // (1 if digest[5] == "0" else 8)
    return f"{key} {(digest * 32)[:length]}"


@dataclasses.dataclass
class Publish:
    """A message with an id. `ended` is none where its fate is unknown."""

    key: str
    invoked: float
    ended: float | None = None
    seq: int | None = None


@dataclasses.dataclass
class Write:
    """A put, a compare-and-set (`expected` is a revision, 0 for "no such key"), or a delete, with a unique value."""

    key: str
    value: str
    invoked: float
    expected: int | None = None
    ended: float | None = None
    revision: int | None = None
    # A compare-and-set that was told that the revision is another one.
    refused: bool = False


@dataclasses.dataclass
class Read:
    """What was read of a key; revision 0 is "no such key"."""

    key: str
    invoked: float
    ended: float
    revision: int
    value: str | None


@dataclasses.dataclass
class Delivery:
    """A message that a consumer brought to a fetch."""

    consumer: str
    seq: int
    attempt: int
    # When the fetch was sent, and when the message came.
    invoked: float
    ended: float


@dataclasses.dataclass
class Settled:
    """An acknowledgement of a delivery. `ended` is when the server said that it has it, or none: its fate is unknown."""

    consumer: str
    seq: int
    invoked: float
    ended: float | None = None


@dataclasses.dataclass
class Floor:
    """How far all was acknowledged at a consumer, as it was answered."""

    consumer: str
    invoked: float
    ended: float
    seq: int


@dataclasses.dataclass
class Look:
    """The last sequence of the stream, as it was answered."""

    invoked: float
    ended: float
    last: int


class History:
    def __init__(self):
        self.publishes, self.writes, self.reads, self.looks = [], [], [], []
        # Publishes into the work queue; what its workers and those of the stream's consumer did.
        self.jobs, self.deliveries, self.settled, self.floors = [], [], [], []
        # What is left in the work queue, and what its consumers still have, when nobody brings anything more.
        self.left = {}
        # Consumers that have brought everything.
        self.drained = set()
        # What faults have done, by what it is; which were left out, by why.
        self.effects, self.left_out = {}, {}
        # Times of the stream's messages in the end, in its order.
        self.stamps = []
        # Contents of a stream by its name and sequence, as anybody saw them, with who saw it first.
        self.seen = {}
        # What nothing has to be compared with to be wrong.
        self.findings = []
        self.acked_at = []

    def see(self, seq, content, by, stream="RING"):
        known = self.seen.setdefault((stream, seq), (content, by))
        if known[0] != content:
            self.findings.append(
                f"sequence {seq} of {stream} is {content[:40]!r} for {by}, and was {known[0][:40]!r} for {known[1]}")

    def ack(self, operation, seq):
        operation.ended = time.monotonic()
        operation.seq = seq
        self.acked_at.append(operation.ended)
