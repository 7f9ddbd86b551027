"""Reading and making inputs; parsing of ``NAME=VALUE`` options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import relaxir as rx
from relaxir.ir.expr import Array
from relaxir.runtime.signature import Signature
from relaxir.support.dtypes import info
from relaxir.support.errors import ArgumentError, LoadError
from relaxir.sym import DimLike, evaluate, free_dims


def parse_dims(options: Sequence[str]) -> dict[str, DimLike]:
    """``batch=1..64`` gives a range, ``batch=8`` a value, ``batch=1..`` no upper bound."""
    dims: dict[str, DimLike] = {}
    for option in options:
        name, _, value = option.partition("=")
        low, dots, high = value.partition("..")
        if not name or not low.isdecimal() or (high and not high.isdecimal()):
            raise ArgumentError(f"--dim {option}: expected NAME=MIN..MAX or NAME=VALUE", help="for example batch=1..64")
        dims[name] = rx.dim(name, min=int(low), max=int(high) if high else None) if dots else int(low)
    return dims


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
        LoadError: a file that is missing, pickled or damaged.
    """
    feeds: dict[str, Array] = {}
    free = [i.name for i in signature.inputs]
    for option in options:
        name, equals, file = option.partition("=")
        path = Path(file if equals else option)
        try:
            data = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot read `{path}`: {error}", code="load-malformed") from error
        if isinstance(data, np.ndarray):
            feeds[name if equals else next((n for n in free if n not in feeds), "")] = data
        else:
            feeds.update({k: data[k] for k in data.files})
    return feeds


def make_inputs(
    signature: Signature, sizes: Mapping[str, int], seed: int, have: Mapping[str, Array], default: int = 1
) -> dict[str, Array]:
    """Random inputs: normal floats, integers 0 or 1 (safe as indices and masks), random bools."""
    rng = np.random.default_rng(seed)
    symbols = {d.name: d for i in signature.inputs for e in i.type.shape for d in free_dims(e)}
    unknown = [n for n in sizes if n not in symbols]
    if unknown:
        raise ArgumentError(f"no symbol `{unknown[0]}`", help=f"the inputs have {', '.join(sorted(symbols)) or 'none'}")
    world = {n: sizes.get(n, max(default, d.min)) for n, d in symbols.items()}
    feeds: dict[str, Array] = {}
    for spec in signature.inputs:
        shape = tuple(evaluate(e, world) for e in spec.type.shape)
        row = info(spec.type.dtype)
        if spec.name in have:
            continue
        if row.is_float:
            feeds[spec.name] = rng.standard_normal(shape).astype(row.numpy)
        else:
            feeds[spec.name] = rng.integers(0, 2, shape).astype(row.numpy)
    return feeds
