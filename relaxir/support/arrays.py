"""What callers give as arrays, and what NumPy raises for files that are damaged."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.support.errors import ArgumentError

DAMAGE: Final = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    OverflowError,
    RuntimeError,  # NotImplementedError among them: a compression or version that zipfile does not know
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Exceptions of reading a .npy or .npz file: headers are parsed as Python, members unpacked by several libraries."""


def array_of(what: str, value: object) -> NDArray[Any]:
    """What NumPy makes of a value, without a mask: masked elements would count as others do.

    Raises:
        ArgumentError: a masked array, or nothing that NumPy can make an array of.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            f"{what} is a masked array, and masks are not read", code="argument-type", help="pass x.filled(...)"
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ArgumentError(f"{what} cannot be an array: {error}", code="argument-type") from None
