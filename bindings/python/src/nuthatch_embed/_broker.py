"""The broker as an object, and its settings."""

import ctypes
import enum
import os
import re
import socket
from dataclasses import dataclass
from typing import Optional

from . import _library
from ._library import library


class Code(enum.IntEnum):
    """The codes of nuthatch.h."""

    NULL = 1
    UTF8 = 2
    CONFIG = 3
    OPEN = 4
    NOT_READY = 5
    HANDLE = 6
    CLOSED = 7
    DEAD = 8
    FORKED = 9
    SYSTEM = 10
    NO_LISTENER = 11
    ROOM = 12
    NOT_CLEAN = 13
    FLAGS = 14
    PANIC = 15


class BrokerError(Exception):
    """What the library refused: a code, and words."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = Code(code)


@dataclass
class Retention:
    """How long a stream keeps messages; None is no bound, and the oldest go first."""

    max_age_s: Optional[float] = None
    max_bytes: Optional[int] = None
    max_msgs: Optional[int] = None

    def stream_config(self):
        """The arguments of nats-py's StreamConfig and add_stream."""
        named = {"max_age": self.max_age_s, "max_bytes": self.max_bytes, "max_msgs": self.max_msgs}
        return {name: value for name, value in named.items() if value is not None}


def version():
    """The version of the library."""
    return library.nuthatch_version().decode()


def _quote(text):
    escaped = re.sub(r'["\\]', lambda found: "\\" + found[0], os.fspath(text))
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", escaped) + '"'


def configuration(
    *,
    port=None,
    host=None,
    store_dir=None,
    max_file_store=None,
    max_payload=None,
    max_pending=None,
    initialize_timeout_s=None,
    log_file=None,
    log_size_limit=None,
    log_time=None,
    debug=None,
    trace=None,
    extra="",
):
    """The configuration file that settings stand for. Sizes are bytes; `extra` is more of its text."""

    def switch(value):
        return None if value is None else str(bool(value)).lower()

    timeout = None if initialize_timeout_s is None else f'"{round(initialize_timeout_s * 1e6)}us"'
    settings = {
        "port": port,
        "host": None if host is None else _quote(host),
        "max_payload": max_payload,
        "max_pending": max_pending,
        "ready_timeout": timeout,
        "log_file": None if log_file is None else _quote(log_file),
        "logfile_size_limit": log_size_limit,
        "logtime": switch(log_time),
        "debug": switch(debug),
        "trace": switch(trace),
    }
    store = {"store_dir": None if store_dir is None else _quote(store_dir), "max_file_store": max_file_store}
    lines = [f"{key}: {value}" for key, value in settings.items() if value is not None]
    lines.append("jetstream {")
    lines += [f"  {key}: {value}" for key, value in store.items() if value is not None]
    return "\n".join([*lines, "}", extra, ""])


class Broker:
    """A broker in this process, open until `close` or the end of its `with` block.

    `port`: None: clients of this process only; -1: a free one, which `url` tells. The rest is as for `configuration`.
    `log_stderr`: without a log file, lines go to the standard error stream, not nowhere.
    """

    def __init__(self, *, log_stderr=False, **settings):
        text = configuration(**settings).encode()
        if b"\0" in text:
            raise BrokerError(Code.CONFIG, "the configuration holds a zero byte")
        has_port = settings.get("port") is not None
        flags = (0 if has_port else _library.NO_LISTENER) | (_library.LOG_STDERR if log_stderr else 0)
        handle = ctypes.c_uint64()
        _check(library.nuthatch_open(text, flags, ctypes.byref(handle)))
        self._handle = handle.value
        self.url = None
        if has_port:
            buffer = ctypes.create_string_buffer(512)
            try:
                _check(library.nuthatch_client_url(self._handle, buffer, len(buffer)))
            except BrokerError:
                self.close()
                raise
            self.url = buffer.value.decode()

    def connect(self):
        """A socket of this process to the broker, which speaks the protocol of NATS."""
        fd = ctypes.c_int(-1)
        _check(library.nuthatch_connect(self._handle, ctypes.byref(fd)))
        return socket.socket(fileno=fd.value)

    def check(self):
        """Raises BrokerError if it is closed, or has ended by itself (Code.DEAD, with the reason)."""
        _check(library.nuthatch_check(self._handle))

    def close(self):
        """Stops it, and waits until nothing of it runs any more. A second call does nothing."""
        code = library.nuthatch_close(self._handle)
        if code != Code.CLOSED:
            _check(code)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _check(code):
    if code != 0:
        raise BrokerError(code, _library.last_error())
