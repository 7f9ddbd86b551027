"""Converters of tensors made from sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value


def filled(number: float | None, like: bool = False) -> Converter:
    """A tensor of one value: a fixed one, or the argument ``fill_value``."""

    def convert(n: Node) -> Value:
        shape = n.shape if like else n.dims("size")
        return n.full(shape, n.get("fill_value") if number is None else number, n.out_dtype)

    return convert


def scalar_tensor(n: Node) -> Value:
    """A number as a tensor."""
    return n.operand(n.get("s"), n.out_dtype)


def arange(n: Node) -> Value:
    """Numbers from start to end by a step."""
    dtype = n.out_dtype
    start, stop, step = n.get("start", 0), n.get("end"), n.get("step", 1)
    if any(isinstance(v, Value) for v in (start, stop, step)):
        return n.emit("range", *(n.operand(v, dtype) for v in (start, stop, step)))
    floats = any(isinstance(v, float) for v in (start, stop, step))
    if floats and all(isinstance(v, int | float) for v in (start, stop, step)):
        return n.emit("arange", start=float(start), stop=float(stop), step=float(step), dtype=dtype)
    if floats:
        return n.emit("range", *(n.operand(v, dtype) for v in (start, stop, step)))
    return n.cast(n.emit("arange", start=start, stop=stop, step=step, dtype="int64"), dtype)


def triangle_indices(of: Callable[..., torch.Tensor]) -> Converter:
    """Rows and columns of a triangle of a matrix of known extents."""

    def convert(n: Node) -> Value:
        return n.literal(of(n.integer("row"), n.integer("col"), n.integer("offset")).numpy(), n.out_dtype)

    return convert


def evaluated(n: Node) -> Value:
    """A tensor made from known numbers alone, as torch makes it."""
    if not all(isinstance(a, bool | int | float | None) for k, a in n.args.items() if k not in FORM):
        n.unsupported("a size that is known only at run time")
    made = n.fx.target(*n.fx.args, **{k: v for k, v in n.fx.kwargs.items() if k not in FORM})
    return n.literal(made.numpy(), n.out_dtype)


FORM: Final = ("dtype", "layout", "device", "pin_memory")
"""Arguments that do not change the numbers."""
WINDOWS: Final = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")
FREQUENCIES: Final = ("fft_fftfreq", "fft_rfftfreq")
"""Frequencies of spectra; torch fixes the number of samples."""
ZEROS: Final = ("zeros", "new_zeros", "empty", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided")
"""Creations that give zeros: what stands in memory that nobody has written is nobody's business."""


def eye(n: Node) -> Value:
    """Ones on the diagonal."""
    rows = n.get("n")
    return n.emit("eye", n=rows, m=n.get("m", rows), dtype=n.out_dtype)


CREATION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{k: filled(0) for k in ZEROS},
        **{k: filled(0, like=True) for k in ("zeros_like", "empty_like")},
        **{k: filled(1) for k in ("ones", "new_ones")},
        **{k: filled(None) for k in ("full", "new_full")},
        **dict.fromkeys((*WINDOWS, *FREQUENCIES), evaluated),
        "arange": arange,
        "eye": eye,
        "full_like": filled(None, like=True),
        "ones_like": filled(1, like=True),
        "scalar_tensor": scalar_tensor,
        "tril_indices": triangle_indices(torch.tril_indices),
        "triu_indices": triangle_indices(torch.triu_indices),
    }
)
"""Creations by the name of the ATen packet."""
