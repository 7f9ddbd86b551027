"""The memory that one native call reads and writes: DLTensor records of inputs and outputs, and what points to them.

A record is made once per function and concurrent caller, then reused: a call fills in addresses and extents only.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.dtypes import info

CPU: Final = 1  # DLPack: kDLCPU
WORDS: Final = 6  # 64-bit words of a DLTensor: data, device, ndim and dtype, shape, strides, byte offset
HEAD: Final = 6  # words of a call: context, function, inputs, their count, outputs, their count


def dtype_word(spec: TensorSpec) -> int:
    """Word 2 of a DLTensor: rank in the low half, type code, bits and lanes above."""
    row = info(spec.type.dtype)
    return spec.type.rank | row.dlpack << 32 | row.bits << 40 | 1 << 48


def _data_offset() -> int:
    """Where a NumPy array object holds the address of its data; 0 if that is not where it has always been."""
    probe = np.arange(3)
    offset = 2 * ctypes.sizeof(ctypes.c_void_p)
    found = ctypes.c_void_p.from_address(id(probe) + offset).value
    return offset if found == probe.__array_interface__["data"][0] else 0


DATA_OFFSET: Final = _data_offset()


def data_address(a: Array) -> int:
    """Address of an array's first element (the attribute of NumPy costs more than a small call)."""
    if DATA_OFFSET:
        return ctypes.c_void_p.from_address(id(a) + DATA_OFFSET).value or 0
    address: int = a.__array_interface__["data"][0]
    return address


class CallRecord:
    """Everything one call of a function passes to native code, in one block of 64-bit words.

    Attributes:
        address: of the block, which starts with the six arguments of ``rx_call``.
    """

    __slots__ = ("_shapes", "_spots", "address", "words")

    def __init__(self, signature: Signature, context: int, index: int) -> None:
        specs = (*signature.inputs, *signature.outputs)
        count = len(signature.inputs)
        ranks = [s.type.rank for s in specs]
        first = HEAD + WORDS * len(specs)
        self.words = array("q", bytes(8 * (first + sum(ranks))))
        self.address = self.words.buffer_info()[0]
        self._spots = tuple(HEAD + WORDS * i for i in range(len(specs)))
        self._shapes = tuple((first + sum(ranks[:i]), first + sum(ranks[: i + 1])) for i in range(len(specs)))
        tensors = self.address + 8 * HEAD
        outputs = tensors + 8 * WORDS * count
        self.words[:HEAD] = array("q", (context, index, tensors, count, outputs, len(specs) - count))
        for spot, (start, _), spec in zip(self._spots, self._shapes, specs, strict=True):
            self.words[spot + 1] = CPU
            self.words[spot + 2] = dtype_word(spec)
            self.words[spot + 3] = self.address + 8 * start

    def set(self, index: int, a: Array) -> None:
        """Point tensor ``index`` (outputs follow inputs) at an array, which the caller keeps alive."""
        words = self.words
        words[self._spots[index]] = data_address(a)
        place = self._shapes[index][0]
        for extent in a.shape:
            words[place] = extent
            place += 1

    def clear(self, first: int) -> None:
        """Leave the memory of tensors from ``first`` on to the library."""
        for spot in self._spots[first:]:
            self.words[spot] = 0

    def data(self, index: int) -> int:
        """Address in tensor ``index``."""
        return self.words[self._spots[index]]

    def shape(self, index: int) -> tuple[int, ...]:
        """Extents in tensor ``index``."""
        start, stop = self._shapes[index]
        return tuple(self.words[start:stop])


class Marshal:
    """Fills records for one function; ready-made records wait for the next call."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.dtypes: tuple[np.dtype[np.generic], ...] = tuple(info(s.type.dtype).numpy for s in signature.inputs)
        self.ranks = tuple(s.type.rank for s in signature.inputs)
        self._free: list[CallRecord] = []

    def take(self, context: int, index: int) -> CallRecord:
        """A record that nobody else uses; list operations are atomic, so threads never share one."""
        try:
            return self._free.pop()
        except IndexError:
            return CallRecord(self.signature, context, index)

    def give(self, record: CallRecord) -> None:
        """Keep a record for later calls."""
        self._free.append(record)

    def ready(self, values: Sequence[object]) -> bool:
        """Whether all values are arrays that native code can read as they are."""
        for value, dtype, rank in zip(values, self.dtypes, self.ranks, strict=True):
            if type(value) is not np.ndarray or value.dtype is not dtype or value.ndim != rank:
                return False
            if value.flags.num & READABLE != READABLE:
                return False
        return True


READABLE: Final = 0x101  # NumPy's flags C_CONTIGUOUS and ALIGNED
