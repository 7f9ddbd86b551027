"""Text of tensor constants: small ones inline with exact bits, large ones by key and checksum.

Elements are decimals where a decimal reads back to the same bits, else hex floats; ``"inf"``, ``"-inf"`` and ``"nan"``
are strings, and a NaN with another payload carries its bits: ``"nan:0x7fc00001"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from relaxir.ir.expr import Array, Constant
from relaxir.support.bfloat16 import bfloat16_to_float32
from relaxir.support.dtypes import info, short
from relaxir.tir.literals import float_text
from relaxir.tir.names import tuple_text

INLINE_LIMIT: Final = 64
"""Constants of at most this many elements stand in the text itself."""

DEFAULT_NAN: Final[Mapping[str, int]] = MappingProxyType(
    {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8000000000000}
)
"""Bits of the NaN that ``"nan"`` denotes."""


def is_inline(constant: Constant) -> bool:
    """Whether a constant's elements stand in the text."""
    return constant.data.size <= INLINE_LIMIT


def inline_text(constant: Constant) -> str:
    """``R.const([1.0, 2.0], "f32")``; the shape is written where the nesting of the list does not show it."""
    data, dtype = constant.data, constant.type.dtype
    shape = f", {tuple_text(map(str, data.shape))}" if data.size == 0 and data.shape != (0,) else ""
    body = "[]" if data.size == 0 else _nested(data, element_texts(data, dtype), 0, 0)
    return f'R.const({body}{shape}, "{short(dtype)}")'


def keyed_text(constant: Constant, key: str) -> str:
    """``R.const("w0", (768, 3072), "f32", sha256="...")``."""
    shape = tuple_text(map(str, constant.data.shape))
    return f'R.const("{key}", {shape}, "{short(constant.type.dtype)}", sha256="{constant.digest}")'


def _nested(data: Array, texts: list[str], axis: int, offset: int) -> str:
    if axis == data.ndim:
        return texts[offset]
    step = math.prod(data.shape[axis + 1 :])
    return f"[{', '.join(_nested(data, texts, axis + 1, offset + i * step) for i in range(data.shape[axis]))}]"


def element_texts(data: Array, dtype: str) -> list[str]:
    """One literal per element, in row-major order."""
    flat = np.ascontiguousarray(data).reshape(-1)
    if not info(dtype).is_float:
        return [str(v) for v in flat.tolist()]
    return [
        _float_element(v, int(b), dtype) for v, b in zip(float_values(flat, dtype), bits_of(flat).tolist(), strict=True)
    ]


def bits_of(data: Array) -> NDArray[np.unsignedinteger]:
    """The elements' bit patterns."""
    return data.view(np.dtype(f"uint{data.dtype.itemsize * 8}"))


def float_values(data: Array, dtype: str) -> list[float]:
    """Elements of a float array as Python floats (exact; bfloat16 from its bit patterns)."""
    if dtype == "bfloat16":
        return [float(v) for v in bfloat16_to_float32(data.astype(np.uint16))]
    with np.errstate(invalid="ignore"):  # signalling NaN
        return [float(v) for v in data.astype(np.float64)]


def _float_element(value: float, bits: int, dtype: str) -> str:
    if math.isnan(value):
        return '"nan"' if bits == DEFAULT_NAN[dtype] else f'"nan:{bits:#x}"'
    text = float_text(value, "float32" if dtype == "bfloat16" else dtype)
    return text if text is not None else f'"{value}"'


class ConstantKeys:
    """Keys of a module's large constants: ``w0``, ``w1``, ... in order of appearance, one per distinct content."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}

    def key(self, constant: Constant) -> str:
        """Key of a constant; equal contents share one."""
        digest = constant.digest
        if digest not in self._keys:
            self._keys[digest] = f"w{len(self._keys)}"
            self.arrays[self._keys[digest]] = constant.data
        return self._keys[digest]
