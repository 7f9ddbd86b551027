"""Operands with NaN, infinities, signed zeros and denormals among their elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from relaxir.ir import TensorType
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import info
from tests.ops.builds import Case

VALUES: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40)
LOOSE: Final = frozenset(
    {"attention", "batch_norm", "conv", "conv_transpose", "det", "dft", "einsum", "grid_sample", "resize", "stft"}
)
"""Operators of which docs/design/numerics.md promises nothing for such operands."""


def special(found: Sequence[Case]) -> Iterator[Case]:
    """The cases with a fifth of their random floats replaced."""
    for case in found:
        if not case.holds or case.op.name in LOOSE:
            continue
        rng = np.random.default_rng(list(case.env.values()))
        places = [i for i, t in enumerate(case.types) if isinstance(t, TensorType)]
        arrays = tuple(
            spread(a, case.types[i], rng) if i >= len(case.example.values) or case.example.values[i] is None else a
            for a, i in zip(case.arrays, places, strict=True)
        )
        if any(a is not b for a, b in zip(arrays, case.arrays, strict=True)):
            yield replace(case, arrays=arrays, note=" with special floats")


def spread(array: np.ndarray, t: object, rng: np.random.Generator) -> np.ndarray:
    """Some floats replaced; anything else as it is."""
    if not isinstance(t, TensorType) or not info(t.dtype).is_float or not array.size:
        return array
    drawn = rng.choice(np.float32(VALUES), array.shape)
    held = float32_to_bfloat16(drawn) if t.dtype == "bfloat16" else drawn.astype(array.dtype)
    return np.asarray(np.where(rng.random(array.shape) < 0.2, held, array))
