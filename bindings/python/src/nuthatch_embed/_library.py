"""The C library and its functions (nuthatch.h)."""

import ctypes
import os
from pathlib import Path

ABI_VERSION = 1
NO_LISTENER = 1
LOG_STDERR = 2


def _load():
    path = os.environ.get("NUTHATCH_LIBRARY") or str(Path(__file__).with_name("libnuthatch.so.1"))
    library = ctypes.CDLL(path)
    number, text = ctypes.c_uint64, ctypes.c_char_p
    library.nuthatch_abi_version.restype = ctypes.c_uint32
    library.nuthatch_version.restype = text
    library.nuthatch_last_error.restype = ctypes.c_size_t
    arguments = {
        "nuthatch_open": [text, ctypes.c_uint32, ctypes.POINTER(number)],
        "nuthatch_connect": [number, ctypes.POINTER(ctypes.c_int)],
        "nuthatch_client_url": [number, text, ctypes.c_size_t],
        "nuthatch_check": [number],
        "nuthatch_close": [number],
        "nuthatch_last_error": [text, ctypes.c_size_t],
    }
    for name, types in arguments.items():
        getattr(library, name).argtypes = types
    found = library.nuthatch_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{path} has version {found} of the C interface, and not {ABI_VERSION}")
    return library


library = _load()


def last_error():
    """The words of this thread's last error."""
    size = library.nuthatch_last_error(None, 0) + 1
    buffer = ctypes.create_string_buffer(size)
    library.nuthatch_last_error(buffer, size)
    return buffer.value.decode("utf-8", "replace")
