"""bfloat16 as NumPy holds it here: bit patterns in uint16, widened to float32 to compute and rounded back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bfloat16_to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the exact values of bfloat16 bit patterns."""
    wide = np.ascontiguousarray(bits, np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def float32_to_bfloat16(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even; NaN stays a (quiet) NaN, whatever its payload."""
    single = np.ascontiguousarray(values, np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(single), quiet, rounded).astype(np.uint16).reshape(np.shape(values))
