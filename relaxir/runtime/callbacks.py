"""Foreign functions for compiled code: Python callables and library symbols as native addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from relaxir.ir.expr import Array
from relaxir.support.dtypes import DTYPES
from relaxir.support.errors import LoadError

Library = Callable[..., object] | ctypes.CDLL | str | Path
"""A Python callable (inputs, then outputs to fill), or a shared library that has the symbol."""


class DLTensor(ctypes.Structure):
    """A tensor as compiled code passes it (DLPack)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )

    def array(self) -> Array:
        """The tensor's memory as an array, valid during the call."""
        shape = tuple(self.shape[i] for i in range(self.ndim))
        row = next(d for d in DTYPES.values() if (d.dlpack, d.bits) == (self.code, self.bits))
        count = int(np.prod(shape))
        if not count:
            return np.empty(shape, row.numpy)
        memory = (ctypes.c_char * (count * row.bytes)).from_address(self.data + self.byte_offset)
        values: Array = np.frombuffer(memoryview(memory), row.numpy)
        return values.reshape(shape)


class Imports:
    """Addresses for the symbols that a library imports; keeps callbacks alive, and an exception that one raised.

    A host program calls them in the thread of its caller, so each thread finds its own exception.
    """

    def __init__(self, symbols: Mapping[str, int], libraries: Mapping[str, Library]) -> None:
        self.symbols = dict(symbols)
        self.libraries = dict(libraries)
        self._raised = threading.local()
        self._kept: list[object] = []

    def resolve(self, cdll: ctypes.CDLL, slot: Callable[[str], str]) -> None:
        """Write the addresses into a loaded library; symbols not given stay what the process has.

        Raises:
            LoadError: a library without the symbol.
        """
        for name, count in self.symbols.items():
            source = self.libraries.get(name)
            if source is not None:
                ctypes.c_void_p.in_dll(cdll, slot(name)).value = self._address(name, count, source)

    def take_raised(self) -> BaseException | None:
        """The exception that ended the calling thread's latest call, once."""
        error: BaseException | None = getattr(self._raised, "error", None)
        self._raised.error = None
        return error

    def _address(self, name: str, count: int, source: Library) -> int:
        if callable(source) and not isinstance(source, ctypes.CDLL):
            return self._callback(source, count)
        try:
            library = source if isinstance(source, ctypes.CDLL) else ctypes.CDLL(str(source))
            self._kept.append(library)
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except (OSError, AttributeError) as error:
            raise LoadError(f"library function `{name}`: {error}", code="load-path") from error
        assert address is not None
        return address

    def _callback(self, function: Callable[..., object], count: int) -> int:
        def run(*pointers: int) -> int:
            try:
                status = function(*(DLTensor.from_address(p).array() for p in pointers))
            except BaseException as error:  # must not pass through native frames; raised again after the call
                self._raised.error = error
                return 1
            return status if isinstance(status, int) else 0

        native = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * count)(run)
        self._kept.append(native)
        address = ctypes.cast(native, ctypes.c_void_p).value
        assert address is not None
        return address
