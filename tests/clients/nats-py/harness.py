"""Scenario registry, bounded runner and small assertions shared by the nats-py scenarios."""

import asyncio
import sys
import time

import nats
from nats.js import api
from nats.js.errors import APIError

# How long anything may take that must come, and a scenario: machines may be slow. What comes late does not make a scenario
# fail unless it says so; what must not come, or not too soon, does.
TIMEOUT_S = 60
DEFAULT_LIMIT_S = 180
SCENARIOS = []


class Skip(Exception):
    """Raised by a scenario whose heart this client cannot do."""


class Failed(Exception):
    """An observation that differs from the list."""


def scenario(sid, limit_s=DEFAULT_LIMIT_S):
    """Registers a coroutine `fn(ctx)` under its id of SCENARIOS.md."""

    def register(fn):
        SCENARIOS.append((sid, limit_s, fn))
        return fn

    return register


def check(cond, what):
    if not cond:
        raise Failed(what)


def equal(got, want, what):
    if got != want:
        raise Failed(f"{what}: got {short(got)}, want {short(want)}")


def short(value):
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


async def expect_code(awaitable, code):
    """The call must fail with this JetStream err_code."""
    try:
        result = await awaitable
    except APIError as err:
        equal(err.err_code, code, f"err_code of {err}")
        return
    raise Failed(f"error {code} expected, got {short(result)}")


async def expect_raises(awaitable, *kinds):
    """The call must raise one of these exception classes."""
    try:
        result = await awaitable
    except kinds:
        return
    raise Failed(f"{kinds} expected, got {short(result)}")


async def flush(nc):
    """Waits until the server has taken all that this connection has sent.

    nats-py writes the PING at once, in front of what still waits in its buffer; a second one is behind that.
    """
    for _ in range(2):
        await nc.flush(TIMEOUT_S)


async def until(probe, what, within_s=TIMEOUT_S):
    """Polls an async predicate until it is true."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if await probe():
            return
        await asyncio.sleep(0.05)
    raise Failed(f"not within {within_s} s: {what}")


class Ctx:
    """One scenario's connections, and the streams to delete at its end."""

    def __init__(self, url, sid):
        self.url = url
        self.sid = sid
        self.low = sid.lower()
        self._conns = []
        self._streams = []

    async def open(self):
        self.nc = await self.connect()
        self.js = self.nc.jetstream(timeout=TIMEOUT_S)

    async def connect(self, **options):
        nc = await nats.connect(self.url, allow_reconnect=False, connect_timeout=TIMEOUT_S, **options)
        self._conns.append(nc)
        return nc

    def sub(self, tail):
        """A subject of this scenario."""
        return f"{self.low}.{tail}"

    async def stream(self, suffix="", subjects=None, **config):
        """Creates a stream of this scenario and returns its name."""
        name = self.sid + suffix
        subjects = subjects or [f"{name.lower()}.>"]
        self.owns(name)
        await self.js.add_stream(name=name, subjects=subjects, **config)
        return name

    def owns(self, stream):
        if stream not in self._streams:
            self._streams.append(stream)

    async def consumer(self, stream, name="c", **config):
        """Creates a durable pull consumer and binds to it."""
        await self.js.add_consumer(stream, durable_name=name, **config)
        return await self.bind(stream, name)

    async def bind(self, stream, name="c"):
        return await self.js.pull_subscribe_bind(durable=name, stream=stream)

    async def state(self, stream):
        return (await self.js.stream_info(stream)).state

    async def publish_many(self, subject, count, payload=lambda i: str(i).encode()):
        """Publishes synchronously, in order."""
        for i in range(count):
            await self.js.publish(subject, payload(i))

    async def close(self):
        for name in self._streams:
            try:
                await asyncio.wait_for(self.js.delete_stream(name), TIMEOUT_S)
            except Exception:
                pass
        for nc in self._conns:
            try:
                await asyncio.wait_for(nc.close(), TIMEOUT_S)
            except Exception:
                pass


async def nothing_more(sub, within_s):
    """No further message arrives on a pull subscription."""
    try:
        msgs = await sub.fetch(1, timeout=within_s)
    except asyncio.TimeoutError:
        return
    raise Failed(f"unexpected message {msgs[0].metadata}")


async def run_one(url, sid, limit_s, fn):
    """Runs one scenario and prints its line; returns ok, FAIL or skip."""
    ctx = Ctx(url, sid)
    began = time.monotonic()
    try:
        await asyncio.wait_for(ctx.open(), 2 * TIMEOUT_S)
        await asyncio.wait_for(fn(ctx), limit_s)
        verdict, tail = "ok", f"{(time.monotonic() - began) * 1000:.0f}"
    except Skip as why:
        verdict, tail = "skip", str(why)
    except asyncio.TimeoutError:
        took = time.monotonic() - began
        verdict, tail = "FAIL", f"timeout after {took:.1f} s (limit {limit_s} s)"
    except Exception as err:  # every failure becomes one line
        verdict, tail = "FAIL", f"{type(err).__name__}: {err}".replace("\n", " ")
    await ctx.close()
    print(verdict, sid, tail, flush=True)
    return verdict


async def create_keeper(url):
    """One stream stays throughout the run; SCENARIOS.md says why."""
    nc = await nats.connect(url, allow_reconnect=False, connect_timeout=TIMEOUT_S)
    try:
        await nc.jetstream(timeout=TIMEOUT_S).add_stream(name="KEEPER", subjects=["keeper"])
    except Exception as err:  # the scenarios that need JetStream will say the same
        print(f"no stream KEEPER: {err}", file=sys.stderr)
    await nc.close()


async def run_all(url, only):
    await create_keeper(url)
    tally = {"ok": 0, "FAIL": 0, "skip": 0}
    for sid, limit_s, fn in SCENARIOS:
        if only and sid not in only:
            continue
        tally[await run_one(url, sid, limit_s, fn)] += 1
    print(f"{tally['ok']} passed, {tally['FAIL']} failed, {tally['skip']} skipped")
    return tally["FAIL"] == 0 and tally["ok"] > 0


__all__ = [
    "TIMEOUT_S", "Ctx", "Failed", "Skip", "api", "check", "equal", "expect_code", "expect_raises",
    "nothing_more", "run_all", "scenario", "until",
]
