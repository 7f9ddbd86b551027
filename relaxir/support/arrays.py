"""What NumPy raises for files that are damaged."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from typing import Final

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
