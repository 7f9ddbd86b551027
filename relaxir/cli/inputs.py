"""Reading and making inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from relaxir.cli.dims import symbol
from relaxir.ir.expr import Array
from relaxir.runtime.signature import Signature, TensorSpec, ranges
from relaxir.support.arrays import DAMAGE
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.checks import check_fixed
from relaxir.support.dtypes import Kind, info
from relaxir.support.errors import ArgumentError, LoadError, RuntimeShapeError
from relaxir.sym import LARGEST, Dim, evaluate, free_dims, to_text


def read_inputs(options: Sequence[str], signature: Signature) -> dict[str, Array]:
    """Arrays from .npy files (in order, or ``name=file``) and .npz files (by the names inside).

    Raises:
        LoadError: a file that is missing (load-path), pickled or damaged (load-malformed).
        ArgumentError: more files than inputs, an input given twice, or one that there is not.
    """
    feeds: dict[str, Array] = {}
    names = [i.name for i in signature.inputs]
    for option in options:
        name, equals, file = option.partition("=")
        named = bool(equals) and name in names
        file = file if named else option
        if not file:
            raise ArgumentError(f"--input {option}: no file is named", help="for example x.npy, or NAME=x.npy")
        path = Path(file)
        if equals and not named and not path.exists():
            raise no_input(name, names)
        for inside, array in read_arrays(path):
            key = name if named else inside or next((n for n in names if n not in feeds), "")
            if not key:
                raise ArgumentError(
                    f"--input {option}: all {len(names)} inputs have a file",
                    code="argument-count",
                    help="leave it out, or write NAME=FILE to say which input a file is for",
                )
            if key in feeds:
                raise ArgumentError(
                    f"--input {option}: `{key}` is given twice", code="argument-name", help="give each input once"
                )
            feeds[key] = array
    unknown = [n for n in feeds if n not in names]
    if unknown:
        raise no_input(unknown[0], names)
    return feeds


def no_input(name: str, names: Sequence[str]) -> ArgumentError:
    """The error for an input that a function does not have."""
    shown = ", ".join(names) or "none"
    return ArgumentError(f"no argument `{name}`", code="argument-name", help=f"the inputs are {shown}")


def read_arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Arrays of a .npy or .npz file with their names, which are empty in a .npy file.

    Raises:
        LoadError: the file cannot be read, is damaged, or holds no array.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(6)
        if not start.startswith((b"\x93NUMPY", b"PK")):
            raise LoadError(
                f"cannot read `{path}`: it is neither a .npy nor a .npz file",
                code="load-malformed",
                help="numpy.save and numpy.savez write such files",
            )
        data = np.load(path, allow_pickle=False)
        if isinstance(data, np.ndarray):
            yield "", data
        else:
            with data:
                if not data.files:
                    raise LoadError(
                        f"cannot read `{path}`: no array is in it", code="load-malformed", help="leave it out"
                    )
                yield from ((name, data[name]) for name in data.files)
    except DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) else None
        code = "load-path" if reason else "load-malformed"
        way_out = "check the path" if reason else "numpy.save and numpy.savez write files of numbers that can be read"
        raise LoadError(f"cannot read `{path}`: {reason or error}", code=code, help=way_out) from error


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
        ArgumentError: a size for a name that is no symbol's, two for one, one outside of its range, one that a file
            contradicts, or one that gives an input a shape that no array has.
    """
    symbols = {d.name: d for i in signature.inputs for e in i.type.shape for d in free_dims(e)}
    sizes = {n: size for n, size in sizes.items() if not is_fixed(signature, n, size)}
    given = {n if n in symbols else symbol(n): size for n, size in sizes.items()}
    unknown = [n for n in sizes if n not in symbols and symbol(n) not in symbols]
    if unknown:
        shown = ", ".join(sorted(symbols)) or "none"
        raise ArgumentError(
            f"the inputs have no dimension `{unknown[0]}`", code="argument-name", help=f"they have {shown}"
        )
    if len(given) < len(sizes):
        raise ArgumentError(
            f"{', '.join(sizes)}: a dimension is given twice", code="argument-name", help="give each once"
        )
    in_files = dict(seen(signature, have))
    for name, size in given.items():
        check_size(symbols[name], size, in_files.get(name, size))
    world = {n: start(d, default) for n, d in symbols.items()} | in_files | given
    for spec in signature.inputs:
        if spec.name not in have:
            check_shape(spec, world)
    return world


def is_fixed(signature: Signature, place: str, size: int) -> bool:
    """Whether a place such as ``x:0`` is an axis of a fixed size, which then is the one given.

    Raises:
        ArgumentError: it is not.
    """
    name, _, axis = place.rpartition(":")
    shape = next((i.type.shape for i in signature.inputs if i.name == name), ())
    extent = shape[int(axis)] if axis.isdecimal() and int(axis) < len(shape) else None
    if not isinstance(extent, int):
        return False
    check_fixed(name, int(axis), extent, size)
    return True


def check_size(d: Dim, size: int, in_file: int) -> None:
    """Refuse a size that a dimension cannot have.

    Raises:
        ArgumentError: it lies outside of the declared range, or is not that of an array that is there.
    """
    if size != in_file:
        raise ArgumentError(
            f"`{d.name}` is {size} by --dim, and {in_file} in a file of --input",
            code="argument-extent",
            help="leave one of them out",
        )
    if size < d.min or (d.max is not None and size > d.max) or size % d.multiple_of:
        raise ArgumentError(
            f"`{d.name}` is {size}, outside of what is declared: {', '.join(ranges(d))}",
            code="argument-extent",
            help=f"give a size that is declared, for example --dim {d.name}={start(d, size)}",
        )


def check_shape(spec: TensorSpec, world: Mapping[str, int]) -> None:
    """Refuse sizes that give an input a shape that no array has; that there is memory for it is found by making it.

    Raises:
        ArgumentError: an axis below 0, or more elements than can be counted.
    """
    shape = [evaluate(e, world) for e in spec.type.shape]
    for axis, (size, extent) in enumerate(zip(shape, spec.type.shape, strict=True)):
        if size < 0:
            raise ArgumentError(
                f"input `{spec.name}`, axis {axis}: {to_text(extent)} is {size}",
                code="argument-extent",
                help="give its dimensions sizes for which that is at least 0",
            )
    if 16 * prod(shape) > LARGEST:  # bytes, of the widest elements
        raise ArgumentError(
            f"input `{spec.name}` would have the shape {tuple(shape)}",
            code="argument-extent",
            help="give smaller sizes",
        )


@contextmanager
def telling_sizes(signature: Signature, feeds: Mapping[str, Array]) -> Iterator[None]:
    """A call that fails because of sizes tells which ones they were, and how to give others."""
    try:
        yield
    except RuntimeShapeError as error:
        sizes = dict(seen(signature, feeds))
        if sizes:
            error.notes += ("the sizes were " + ", ".join(f"{name}={size}" for name, size in sizes.items()),)
            error.help = error.help or "give sizes that the model can take, with --dim or by the files of --input"
        raise


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
