"""From what a caller passes to DLTensor records: names, dtypes and ranks checked, memory made compact and aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.types import describe
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.dtypes import info
from relaxir.support.errors import ArgumentError

CPU: Final = 1  # DLPack: kDLCPU
WORDS: Final = 6  # 64-bit words of a DLTensor: data, device, ndim and dtype, shape, strides, byte offset


def match_names(signature: Signature, args: Sequence[object], feeds: Mapping[str, object]) -> list[object]:
    """Values in the order of the inputs.

    Raises:
        ArgumentError: too many, missing, unknown or doubly given arguments.
    """
    names = [i.name for i in signature.inputs]
    if not feeds and len(args) == len(names):
        return list(args)
    if len(args) > len(names):
        raise ArgumentError(
            f"{signature.name}: takes {len(names)} arguments, got {len(args)}", notes=(f"signature: {signature}",)
        )
    values = dict(zip(names, args, strict=False))
    for name, value in feeds.items():
        if name not in names:
            raise ArgumentError(
                f"{signature.name}: no argument `{name}`", notes=(f"signature: {signature}",), help="see input_names"
            )
        if name in values:
            raise ArgumentError(f"{signature.name}: argument `{name}` is given twice")
        values[name] = value
    missing = [n for n in names if n not in values]
    if missing:
        shown = ", ".join(f"`{n}`" for n in missing)
        raise ArgumentError(f"{signature.name}: missing argument {shown}", notes=(f"signature: {signature}",))
    return [values[n] for n in names]


def as_array(value: object, function: str, spec: TensorSpec) -> Array:
    """A compact, aligned array of the declared dtype and rank over the caller's memory where possible.

    NumPy arrays and DLPack producers are taken as they are; Python numbers and lists are converted to the declared
    dtype.

    Raises:
        ArgumentError: for another dtype, rank or kind of value.
    """
    wanted = info(spec.type.dtype).numpy
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(value, function, spec)
    elif isinstance(value, int | float | bool | list | tuple):
        array = np.asarray(value, dtype=wanted)
    else:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` is a {type(value).__name__}, expected an array",
            help="pass a NumPy array or any object with __dlpack__",
        )
    if array.dtype != wanted:
        if array.dtype.newbyteorder("=") != wanted:
            raise ArgumentError(
                f"{function}: argument `{spec.name}` has dtype {array.dtype.name}, expected {spec.type.dtype}",
                notes=(f"declared {describe(spec.type)}",),
                help=f'convert it: {spec.name}.astype("{wanted.name}")',
            )
        array = array.astype(wanted)
    if array.ndim != spec.type.rank:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` has rank {array.ndim}, expected rank {spec.type.rank}",
            notes=(f"declared {describe(spec.type)}", f"got shape {array.shape}"),
        )
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def _from_dlpack(value: object, function: str, spec: TensorSpec) -> Array:
    try:
        return np.from_dlpack(value)  # type: ignore[arg-type]  # anything with __dlpack__
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` cannot be read through DLPack: {error}",
            help="copy it to the host first",
        ) from error


def dtype_word(spec: TensorSpec) -> int:
    """Word 2 of a DLTensor: rank in the low half, type code, bits and lanes above."""
    row = info(spec.type.dtype)
    return spec.type.rank | row.dlpack << 32 | row.bits << 40 | 1 << 48


class TensorRecords:
    """An array of DLTensor records for one call, with the memory they point to."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.words = np.zeros((len(specs), WORDS), np.int64)
        self.words[:, 1] = CPU
        ranks = [s.type.rank for s in specs]
        self.shapes = np.zeros(sum(ranks) + 1, np.int64)
        base = self.shapes.__array_interface__["data"][0]
        self.starts: list[int] = []
        start = 0
        for i, s in enumerate(specs):
            self.words[i, 2] = dtype_word(s)
            self.words[i, 3] = base + 8 * start
            self.starts.append(start)
            start += ranks[i]
        self.address: int = self.words.__array_interface__["data"][0]

    def set(self, index: int, array: Array) -> None:
        """Point record ``index`` at an array, which the caller keeps alive."""
        self.words[index, 0] = array.__array_interface__["data"][0]
        start = self.starts[index]
        self.shapes[start : start + array.ndim] = array.shape

    def shape(self, index: int, rank: int) -> tuple[int, ...]:
        """Shape that the library wrote into record ``index``."""
        start = self.starts[index]
        return tuple(self.shapes[start : start + rank].tolist())
