"""What must be true of consumers whose messages are acknowledged, and of a work queue."""

import collections

from history import content_of

# By consumer: the stream, and what was published into it.
OF = {"workers": ("JOBS", "jobs"), "audit": ("RING", "publishes")}


def check_consumers(history):
    found = [f"{what} in the end: {count}" for what, count in history.left.items() if count]
    for consumer, (stream, published) in OF.items():
        deliveries = [one for one in history.deliveries if one.consumer == consumer]
        settled = [one for one in history.settled if one.consumer == consumer]
        floors = [one for one in history.floors if one.consumer == consumer]
        found += check_double_acks(consumer, deliveries, settled) + check_floors(consumer, floors)
        if consumer in history.drained:
            found += check_delivered(consumer, deliveries, getattr(history, published))
    return found + check_queue(history)


def check_double_acks(consumer, deliveries, settled):
    """What a server said it has the acknowledgement of is not brought to a fetch that comes later."""
    acked_at = {}
    for one in settled:
        if one.ended is not None:
            acked_at[one.seq] = min(one.ended, acked_at.get(one.seq, one.ended))
    return [
        f"{consumer}: {one.seq} was brought, attempt {one.attempt}, to a fetch that was begun {one.invoked - acked_at[one.seq]:.2f} s "
        "after its acknowledgement was confirmed"
        for one in deliveries if one.invoked > acked_at.get(one.seq, one.invoked)]


def check_floors(consumer, floors):
    found, ended, highest = [], sorted(floors, key=lambda one: one.ended), None
    waiting = collections.deque(ended)
    for floor in sorted(floors, key=lambda one: one.invoked):
        while waiting and waiting[0].ended < floor.invoked:
            earlier = waiting.popleft()
            highest = earlier if highest is None or earlier.seq > highest.seq else highest
        if highest and highest.seq > floor.seq:
            found.append(f"{consumer}: all was acknowledged up to {highest.seq}, and later up to {floor.seq}")
    return found


def check_delivered(consumer, deliveries, publishes):
    brought = {one.seq for one in deliveries}
    return [f"{consumer}: {one.key} was acknowledged at {one.seq} and never brought"
            for one in publishes if one.ended is not None and one.seq not in brought]


def check_queue(history):
    """A job is at one place, has its own content, and goes when somebody acknowledges it, not before."""
    found, places = [], {}
    contents = {seq: content for (stream, seq), (content, _) in history.seen.items() if stream == "JOBS"}
    for seq, content in contents.items():
        key = content.split()[0]
        if content != content_of(key):
            found.append(f"job {seq} has the content {content[:40]!r}")
        if places.setdefault(key, seq) != seq:
            found.append(f"the job {key} is there twice, at {places[key]} and {seq}")
    settled = {one.seq for one in history.settled if one.consumer == "workers"}
    for job in history.jobs:
        if job.ended is None:
            continue
        if job.seq in contents and contents[job.seq] != content_of(job.key):
            found.append(f"the job {job.key} was acknowledged at {job.seq}, where {contents[job.seq][:40]!r} is")
        if "workers" in history.drained and job.seq not in settled:
            found.append(f"the job {job.key} is gone, and nobody has acknowledged it")
    return found
