"""From what a caller passes to DLTensor records: names, dtypes and ranks checked, memory made compact and aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.types import describe
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.dtypes import info
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
