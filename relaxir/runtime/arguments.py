"""From what a caller passes to DLTensor records: names, dtypes and ranks checked, memory made compact and aligned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.types import describe
from relaxir.runtime.dlpack import from_dlpack
from relaxir.runtime.records import data_address
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.arrays import array_of
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.support.elements import SMALL_INTEGERS, held
from relaxir.support.errors import ArgumentError


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
            f"{signature.name}: takes {len(names)} argument{'s' * (len(names) != 1)}, got {len(args)}",
            code="argument-count",
            notes=(f"signature: {signature}",),
        )
    values = dict(zip(names, args, strict=False))
    for name, value in feeds.items():
        if name not in names:
            raise ArgumentError(
                f"{signature.name}: no argument `{name}`",
                code="argument-name",
                notes=(f"signature: {signature}",),
                help="see input_names",
            )
        if name in values:
            raise ArgumentError(f"{signature.name}: argument `{name}` is given twice", code="argument-name")
        values[name] = value
    missing = [n for n in names if n not in values]
    if missing:
        shown = ", ".join(f"`{n}`" for n in missing)
        raise ArgumentError(
            f"{signature.name}: missing argument {shown}",
            code="argument-count",
            notes=(f"signature: {signature}",),
        )
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
        array = array_of(f"{function}: argument `{spec.name}`", value)
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(value, function, spec)
    elif isinstance(value, int | float | bool | list | tuple):
        array = _converted(value, function, spec)
    else:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` is a {type(value).__name__}, expected an array",
            code="argument-type",
            help="a compiled function has all of its inputs, optional ones too: pass an array"
            if value is None
            else "pass a NumPy array or any object with __dlpack__",
        )
    array = stored(array, spec)
    if array.dtype != wanted:
        if array.dtype.newbyteorder("=") != wanted:
            raise ArgumentError(
                f"{function}: argument `{spec.name}` has dtype {array.dtype.name}, expected {spec.type.dtype}",
                code="argument-dtype",
                notes=(f"declared {describe(spec.type)}",),
                help="pass an array of ml_dtypes.bfloat16, or its bits as uint16"
                if spec.type.dtype == "bfloat16"
                else f'convert it: {spec.name}.astype("{wanted.name}")',
            )
        array = array.astype(wanted)
    if array.ndim != spec.type.rank:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` has rank {array.ndim}, expected rank {spec.type.rank}",
            code="argument-rank",
            notes=(f"declared {describe(spec.type)}", f"got shape {array.shape}"),
        )
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def stored(array: Array, spec: TensorSpec) -> Array:
    """What tensors of the IR hold for an array of a type of ml_dtypes; any other array as it is."""
    return held(array, spec.element or spec.type.dtype, info(spec.type.dtype).numpy)


def as_outputs(outputs: Sequence[Array], signature: Signature) -> list[Array]:
    """The caller's arrays for the results.

    Raises:
        ArgumentError: another number of them, or one of the wrong dtype or rank, not compact, or read-only.
    """
    name, specs = signature.name, signature.outputs
    if not isinstance(outputs, list | tuple):
        raise ArgumentError(
            f"{name}: the outputs are a {type(outputs).__name__}, not a list of arrays",
            code="argument-type",
            help="pass a list with one array for each result",
        )
    if len(outputs) != len(specs):
        raise ArgumentError(
            f"{name}: gives {len(specs)} results, got {len(outputs)} arrays for them",
            code="argument-count",
            help="see output_names",
        )
    found = []
    for spec, given in zip(specs, outputs, strict=True):
        if not isinstance(given, np.ndarray):
            raise ArgumentError(
                f"{name}: output `{spec.name}` is a {type(given).__name__}, not an array",
                code="argument-type",
                help="pass a NumPy array",
            )
        if spec.element in SMALL_INTEGERS and given.dtype.name == spec.element:
            raise ArgumentError(
                f"{name}: output `{spec.name}` cannot be written as {spec.element}",
                help=f"pass an array of {spec.type.dtype}",
            )
        out = stored(given, spec)
        if out.dtype != info(spec.type.dtype).numpy or out.ndim != spec.type.rank:
            raise ArgumentError(
                f"{name}: output `{spec.name}` must be an array of {spec.type}", help="make one with np.empty"
            )
        if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
            raise ArgumentError(
                f"{name}: output `{spec.name}` must be compact, aligned and writable", help="make one with np.empty"
            )
        found.append(out)
    return found


def check_apart(signature: Signature, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Refuse outputs in memory that is read or written besides: all arrays are compact, so their bounds tell.

    Raises:
        ArgumentError: naming both.
    """
    spans = sorted(_spans(signature.outputs, outputs, "output"))
    reads = sorted(_spans(signature.inputs, inputs, "input"))
    for (_, end, one), (start, _, other) in pairwise(spans):
        if start < end:
            raise _shared(signature, one, other)
    for start, end, other in reads:
        place = bisect_left(spans, end, key=lambda s: s[0])  # outputs from here on start behind it
        if place and spans[place - 1][1] > start:
            raise _shared(signature, spans[place - 1][2], other)


def reused(signature: Signature, arrays: Sequence[Array], donated: Collection[int]) -> dict[int, Array]:
    """The donated inputs that hold results, by the result's place: those that can be written and lie apart."""
    found: dict[int, Array] = {}
    taken: set[int] = set()
    for i, j in signature.reuse:
        if i in donated and i not in taken and j not in found and _private(i, arrays):
            found[j] = arrays[i]
            taken.add(i)
    return found


def _private(place: int, arrays: Sequence[Array]) -> bool:
    """Whether an input may be written without changing another."""
    a = arrays[place]
    return bool(a.flags.writeable) and not any(np.may_share_memory(a, b) for n, b in enumerate(arrays) if n != place)


def _spans(specs: Sequence[TensorSpec], arrays: Sequence[Array], role: str) -> list[tuple[int, int, str]]:
    """First and end address of the arrays that have elements, with what messages call them."""
    return [
        (address, address + a.nbytes, f"{role} `{spec.name}`")
        for spec, a in zip(specs, arrays, strict=True)
        if a.nbytes
        for address in (data_address(a),)
    ]


def _shared(signature: Signature, one: str, other: str) -> ArgumentError:
    return ArgumentError(
        f"{signature.name}: {one} shares memory with {other}", help="give each output an array of its own"
    )


def _converted(value: object, function: str, spec: TensorSpec) -> Array:
    """An array of Python numbers."""
    try:
        if spec.type.dtype == "bfloat16":
            return float32_to_bfloat16(np.asarray(value, np.float32))
        return np.asarray(value, info(spec.type.dtype).numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` does not make an array of {spec.type.dtype}: {error}",
            code="argument-type",
            notes=(f"declared {describe(spec.type)}",),
            help="pass a NumPy array",
        ) from error


def _from_dlpack(value: object, function: str, spec: TensorSpec) -> Array:
    try:
        return from_dlpack(value, spec.type.dtype == "bfloat16")
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(
            f"{function}: argument `{spec.name}` cannot be read through DLPack: {error}",
            help="pass a tensor on the CPU that needs no gradient (x.detach().cpu()), or a NumPy array",
        ) from error
