"""Reading and making inputs; parsing of ``NAME=VALUE`` options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path

import numpy as np

import relaxir as rx
from relaxir.ir.expr import Array
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.arrays import DAMAGE
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import Kind, info
from relaxir.support.errors import ArgumentError, LoadError
from relaxir.sym import Dim, DimLike, SymError, evaluate, free_dims


def parse_dims(options: Sequence[str]) -> dict[str, DimLike]:
    """``batch=1..64`` gives a range, ``batch=8`` a value, ``batch=1..`` no upper bound."""
    dims: dict[str, DimLike] = {}
    for option in options:
        name, _, value = option.partition("=")
        low, dots, high = value.partition("..")
        if not name or not low.isdecimal() or (high and not high.isdecimal()):
            raise ArgumentError(f"--dim {option}: expected NAME=MIN..MAX or NAME=VALUE", help="for example batch=1..64")
        if name in dims:
            raise ArgumentError(f"--dim {option}: `{name}` is given twice", code="argument-name")
        try:
            dims[name] = rx.dim(symbol(name), min=int(low), max=int(high) if high else None) if dots else int(low)
        except SymError as error:
            raise ArgumentError(f"--dim {option}: {error.message}") from error
    return dims


def symbol(name: str) -> str:
    """A name for a dimension as models write it: ``batch size`` becomes ``batch_size``."""
    cleaned = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if iskeyword(cleaned):
        return f"{cleaned}_"
    return cleaned if cleaned.isidentifier() else f"d{cleaned}"


def parse_sizes(options: Sequence[str]) -> dict[str, int]:
    """``n=8`` gives a symbol's size."""
    sizes: dict[str, int] = {}
    for option in options:
        name, _, value = option.partition("=")
        if not name or not value.isdecimal():
            raise ArgumentError(f"--size {option}: expected NAME=N", help="for example batch=8")
        sizes[name] = int(value)
    return sizes


def read_inputs(options: Sequence[str], signature: Signature) -> dict[str, Array]:
    """Arrays from .npy files (in order, or ``name=file``) and .npz files (by the names inside).

    Raises:
        LoadError: a file that is missing (load-path), pickled or damaged (load-malformed).
        ArgumentError: more files than inputs, or an input given twice.
    """
    feeds: dict[str, Array] = {}
    names = [i.name for i in signature.inputs]
    for option in options:
        name, equals, file = option.partition("=")
        named = bool(equals) and name in names
        for inside, array in read_arrays(Path(file if named else option)):
            key = name if named else inside or next((n for n in names if n not in feeds), "")
            if not key:
                raise ArgumentError(f"--input {option}: all {len(names)} inputs have a file", code="argument-count")
            if key in feeds:
                raise ArgumentError(f"--input {option}: `{key}` is given twice", code="argument-name")
            feeds[key] = array
    return feeds


def read_arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Arrays of a .npy or .npz file with their names, which are empty in a .npy file."""
    try:
        data = np.load(path, allow_pickle=False)
        if isinstance(data, np.ndarray):
            yield "", data
        else:
            with data:
                yield from ((name, data[name]) for name in data.files)
    except DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) else None
        code = "load-path" if reason else "load-malformed"
        raise LoadError(f"cannot read `{path}`: {reason or error}", code=code) from error


def make_inputs(
    signature: Signature, sizes: Mapping[str, int], seed: int, have: Mapping[str, Array], default: int = 1
) -> dict[str, Array]:
    """Random inputs for those not in ``have``: normal floats, integers that are safe where they are used, bools.

    A symbol has its size from ``sizes``, else from the arrays that are there, else ``default`` within its range.
    """
    rng = np.random.default_rng(seed)
    world = symbol_sizes(signature, sizes, have, default)
    return {i.name: sample(i, world, rng) for i in signature.inputs if i.name not in have}


def symbol_sizes(
    signature: Signature, sizes: Mapping[str, int], have: Mapping[str, Array], default: int = 1
) -> dict[str, int]:
    """The size of every symbol of the inputs, as `make_inputs` takes it.

    Raises:
        ArgumentError: a size for a name that is no symbol's.
    """
    symbols = {d.name: d for i in signature.inputs for e in i.type.shape for d in free_dims(e)}
    unknown = [n for n in sizes if n not in symbols]
    if unknown:
        shown = ", ".join(sorted(symbols)) or "none"
        raise ArgumentError(f"no symbol `{unknown[0]}`", code="argument-name", help=f"the inputs have {shown}")
    return {n: start(d, default) for n, d in symbols.items()} | dict(seen(signature, have)) | dict(sizes)


def start(d: Dim, default: int) -> int:
    """A size near ``default`` that the symbol's range and multiple allow."""
    step = d.multiple_of
    size = -(-max(default, d.min) // step) * step
    return size if d.max is None else min(size, d.max // step * step)


def seen(signature: Signature, have: Mapping[str, Array]) -> Iterator[tuple[str, int]]:
    """Sizes of the symbols that stand alone on an axis of an array that is there."""
    for spec in (s for s in signature.inputs if s.name in have):
        pairs = zip(spec.type.shape, have[spec.name].shape, strict=False)  # a wrong rank is found at the call
        yield from ((d.name, size) for d, size in pairs if isinstance(d, Dim))


def sample(spec: TensorSpec, world: Mapping[str, int], rng: np.random.Generator) -> Array:
    """A random array of one input's type.

    Positions are drawn from all there are, numbers of 8 bits (pixels, quantised data) from all of theirs, and other
    integers are 0 or 1: good as masks, sizes and counts.
    """
    shape = tuple(evaluate(e, world) for e in spec.type.shape)
    row = info(spec.type.dtype)
    if not row.is_float:
        low, high = integer_range(spec, world)
        return rng.integers(low, high, shape).astype(row.numpy)
    values = rng.standard_normal(shape)
    return float32_to_bfloat16(values) if spec.type.dtype == "bfloat16" else values.astype(row.numpy)


def integer_range(spec: TensorSpec, world: Mapping[str, int]) -> tuple[int, int]:
    """Where `sample` draws the integers of an input: the least, and the one after the largest."""
    if spec.below is not None:
        return 0, max(evaluate(spec.below, world), 1)
    row = info(spec.type.dtype)
    if row.bits != 8 or not row.is_integer or spec.element:
        return 0, 2
    return (0, 256) if row.kind is Kind.UINT else (-128, 128)
