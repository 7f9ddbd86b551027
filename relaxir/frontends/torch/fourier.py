"""Converters of Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.complexes import Complex, argument, stacked, unstacked
from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, product

UNSCALED, BY_ROOT, BY_COUNT = range(3)
"""Torch's codes of normalisations."""


def normalized(n: Node, y: Value, count: DimLike, divided: bool) -> Value:
    """A transform of ``count`` elements as torch scales it; ``divided``: it is divided by the count already."""
    wanted = n.integer("normalization")
    if wanted == (BY_COUNT if divided else UNSCALED):
        return y
    dtype = y.type.dtype
    number = n.cast(n.operand(count, "float64"), "float64")
    factor = n.cast(n.emit("sqrt", number) if wanted == BY_ROOT else number, dtype)
    return n.emit("multiply" if divided else "divide", y, factor)


def transformed(n: Node, y: Value, axes: tuple[int, ...], forward: bool) -> Value:
    """Transforms of stacked complex numbers along some axes, not scaled."""
    for axis in axes:
        y = n.emit("dft", y, axis=axis, inverse=not forward)
    return y


def real_to_complex(n: Node) -> Complex:
    """Spectrum of real numbers; ``onesided``: the first half along the last of the axes."""
    x = n.value()
    axes = tuple(a % x.type.rank for a in n.ints("dim"))
    count = product([x.type.shape[a] for a in axes])
    y = n.emit("dft", n.reshape(x, (*x.type.shape, 1)), axis=axes[-1], onesided=n.flag("onesided"))
    return unstacked(n, normalized(n, transformed(n, y, axes[:-1], True), count, False))


def complex_to_complex(n: Node) -> Complex:
    """Spectrum of complex numbers, or back."""
    z, forward = argument(n), n.flag("forward")
    axes = tuple(a % len(z.shape) for a in n.ints("dim"))
    y = transformed(n, stacked(n, z), axes, forward)
    return unstacked(n, normalized(n, y, product([z.shape[a] for a in axes]), not forward))


def complex_to_real(n: Node) -> Value:
    """Real numbers of a given extent from half of their spectrum."""
    z = argument(n)
    axes = tuple(a % len(z.shape) for a in n.ints("dim"))
    last = n.dims("last_dim_size")[0]
    count = product([*(z.shape[a] for a in axes[:-1]), last])
    y = transformed(n, stacked(n, z), axes[:-1], False)
    y = n.emit("dft", y, axis=axes[-1], inverse=True, onesided=True, length=last)
    return normalized(n, n.reshape(y, y.type.shape[:-1]), count, True)


FOURIER: Final[Mapping[str, Converter]] = MappingProxyType(
    {"_fft_c2c": complex_to_complex, "_fft_c2r": complex_to_real, "_fft_r2c": real_to_complex}
)
"""Fourier transforms by the name of the ATen packet."""
