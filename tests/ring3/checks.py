"""What must be true of a history and of what is there in the end. Exact, since sequences are unique."""

import bisect

from consumer_checks import check_consumers
from history import content_of


def check(history, stream, keys):
    """Findings. `stream`: [(seq, id, content)] in the end, in the order read; `keys`: [(revision, key, value)]."""
    found = check_stream(history, stream) + check_order(history) + check_stamps(history) + check_consumers(history)
    for key in {operation.key for operation in (*history.writes, *history.reads)} | {key for _, key, _ in keys}:
        writes = [write for write in history.writes if write.key == key]
        reads = [read for read in history.reads if read.key == key]
        found += check_key(key, writes, reads, sorted((revision, value) for revision, of, value in keys if of == key))
    # With what the final read shows to be another content than somebody saw.
    return history.findings + found


def check_stream(history, stream):
    found = []
    for number, (seq, key, content) in enumerate(stream, 1):
        if seq != number:
            found.append(f"after sequence {number - 1} comes {seq}")
            break
        if content != content_of(key):
            found.append(f"sequence {seq} has the id {key} and the content {content[:40]!r}")
        history.see(seq, content, "the final read")
    last = len(stream)
    there = {}
    for seq, key, _ in stream:
        if key in there:
            found.append(f"{key} is there twice, at {there[key]} and {seq}")
        there[key] = seq
    asked = {publish.key for publish in history.publishes}
    found += [f"{key} at {seq} was never published" for key, seq in there.items() if key not in asked]
    for publish in history.publishes:
        if publish.ended is not None and there.get(publish.key) != publish.seq:
            where = f"is at {there[publish.key]}" if publish.key in there else "is not there"
            found.append(f"{publish.key} was acknowledged at {publish.seq} and {where} in the end")
    beyond = [seq for of, seq in history.seen if of == "RING" and seq > last]
    if beyond:
        found.append(f"sequences {min(beyond)} to {max(beyond)} were seen, and the log ends with {last}")
    return found


def check_stamps(history):
    """Times do not go back, whose clock they may be of."""
    return [f"the time of sequence {number + 1} is before that of {number}"
            for number, (one, other) in enumerate(zip(history.stamps, history.stamps[1:]), 1) if other < one]


def check_order(history):
    """What was acknowledged before another one was begun comes first; and a look shows what was acknowledged before."""
    found = []
    acked = sorted((publish for publish in history.publishes if publish.ended is not None), key=lambda one: one.ended)
    ends = [publish.ended for publish in acked]
    highest = highest_until(acked, lambda publish: publish.seq)
    for publish in acked:
        earlier = bisect.bisect_left(ends, publish.invoked)
        if earlier and highest[earlier - 1].seq > publish.seq:
            other = highest[earlier - 1]
            found.append(f"{publish.key} at {publish.seq} was begun after {other.key} was acknowledged at {other.seq}")
    for look in history.looks:
        earlier = bisect.bisect_left(ends, look.invoked)
        if earlier and highest[earlier - 1].seq > look.last:
            other = highest[earlier - 1]
            found.append(f"the log's end was told as {look.last} after {other.key} was acknowledged at {other.seq}")
    return found


def highest_until(sorted_operations, number):
    """For each operation the one with the greatest number among it and those before it."""
    best, found = None, []
    for operation in sorted_operations:
        best = operation if best is None or number(operation) > number(best) else best
        found.append(best)
    return found


def check_key(key, writes, reads, final):
    """Linear: the writes that are there, in the order of revisions, and everything else fits between them."""
    found = []
    by_value = {}
    for revision, value in final:
        if value in by_value:
            found.append(f"{key}: {value} is there twice, as {by_value[value]} and {revision}")
        by_value[value] = revision
    known = {write.value for write in writes}
    found += [f"{key}: {value} was never written" for value in by_value if value not in known]
    revisions = [revision for revision, _ in final]
    invoked = {write.value: write.invoked for write in writes}
    for write in writes:
        at = by_value.get(write.value)
        if write.revision is not None and at != write.revision:
            found.append(f"{key}: {write.value} was acknowledged as {write.revision} and is {at or 'not there'} in the end")
        if write.refused and at:
            found.append(f"{key}: {write.value} was refused and is there as {at}")
        if write.refused:
            found += check_refused(key, write, final, invoked)
        elif at and write.expected is not None:
            before = bisect.bisect_left(revisions, at)
            current = revisions[before - 1] if before else 0
            if current != write.expected:
                found.append(f"{key}: {write.value} asked for {write.expected} and was set as {at}, behind {current}")
    return found + check_times(key, writes, reads, by_value)


def check_refused(key, write, final, invoked):
    """The refusal is right unless the key had the expected revision all the time."""
    later = [value for revision, value in final if revision > write.expected]
    if not later or invoked.get(later[0], 0) > write.ended:
        return [f"{key}: {write.value} asked for {write.expected}, which the key had, and was refused"]
    return []


def check_times(key, writes, reads, by_value):
    """Revisions in the order of real time, of writes and reads."""
    found = []
    # (from, to, revision, is a read, what): an unknown write that is there has no end.
    points = [(write.invoked, write.ended if write.revision else None, by_value[write.value], False, write.value)
              for write in writes if write.value in by_value]
    for read in reads:
        if read.revision and by_value.get(read.value) != read.revision:
            found.append(f"{key}: {read.value} was read as {read.revision}, and is {by_value.get(read.value) or 'not there'} in the end")
        points.append((read.invoked, read.ended, read.revision, True, f"a read of {read.revision}"))
    ended = sorted((point for point in points if point[1] is not None), key=lambda point: point[1])
    ends = [point[1] for point in ended]
    highest = highest_until(ended, lambda point: point[2])
    for begin, _, revision, is_read, what in points:
        earlier = bisect.bisect_left(ends, begin)
        if not earlier:
            continue
        other = highest[earlier - 1]
        if other[2] > revision or (other[2] == revision and not is_read):
            found.append(f"{key}: {what} (revision {revision}) began after {other[4]} (revision {other[2]}) had ended")
    return found
