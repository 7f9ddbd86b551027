"""Loading a shared library from memory."""

import _ctypes
import ctypes
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_MFD_EXEC: Final = 0x10


def load_memory(data: bytes, name: str = "relaxir") -> ctypes.CDLL:
    """Load a shared library from its bytes and return its handle.

    The bytes go into an anonymous memory file that is opened as ``/proc/self/fd/N`` and closed again: the mapping
    keeps it alive, and no descriptor is held. The dynamic linker takes two libraries for one if their *paths* are
    equal, and descriptor numbers are reused, so the path carries a random token, spelt with ``/`` and ``./`` (which
    mean nothing to the kernel). Where memory files are missing or may not be executed, a temporary file is used and
    unlinked.

    Raises:
        OSError: the dynamic linker refused the library; the message is its own.
    """
    descriptor = _memory_file(name)
    if descriptor is None:
        return _load_temporary(data, name)
    try:
        _write_all(descriptor, data)
        token = "".join("./" if secrets.randbits(1) else "/" for _ in range(64))
        path = f"/proc/self/fd/{token}{descriptor}"
        if not os.path.exists(path):
            return _load_temporary(data, name)
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            if "Permission" not in str(error) and "not permitted" not in str(error):
                raise
            return _load_temporary(data, name)
    finally:
        os.close(descriptor)


def unload(library: ctypes.CDLL) -> None:
    """Drop one reference to a library; its code is gone when the last one goes, so nothing of it may be in use."""
    _ctypes.dlclose(library._handle)


def _memory_file(name: str) -> int | None:
    """Return a memory file that may be executed, or None where there is no such thing."""
    if not hasattr(os, "memfd_create"):
        return None
    for flags in (os.MFD_CLOEXEC | _MFD_EXEC, os.MFD_CLOEXEC):  # kernels before 6.3 do not know the first
        with suppress(OSError):
            return os.memfd_create(name, flags)
    return None


def _load_temporary(data: bytes, name: str) -> ctypes.CDLL:
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".so")
    try:
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        return ctypes.CDLL(path)
    finally:
        Path(path).unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
