"""Arrays of other libraries by DLPack, bfloat16 as its bits: NumPy reads every other dtype itself.

The layout of the records is that of ``dlpack.h``: a DLTensor starts with address, device and rank, its dtype's code
follows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxir.ir.expr import Array

UNSIGNED: Final = 1
"""DLPack's type code of unsigned integers."""
BFLOAT: Final = 4
"""DLPack's type code of bfloat16."""
CODE: Final = 20
"""Bytes of a DLTensor before its dtype's code."""
TENSOR: Final[Mapping[bytes, int]] = MappingProxyType({b"dltensor": 0, b"dltensor_versioned": 32})
"""Bytes before the DLTensor in what a capsule holds, by the capsule's name."""

NAME: Final = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
POINTER: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Bits:
    """A producer of bfloat16 that says that its elements are uint16; others stay what they are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __dlpack_device__(self) -> tuple[int, int]:
        """The producer's device."""
        device: tuple[int, int] = self.value.__dlpack_device__()
        return device

    def __dlpack__(self, **options: object) -> object:
        """The producer's capsule; it is made for this call, so its record may be changed."""
        capsule = self.value.__dlpack__(**options)
        name = NAME(capsule)
        address = POINTER(capsule, name)
        code = ctypes.c_uint8.from_address(address + TENSOR[name] + CODE)
        if code.value == BFLOAT:
            code.value = UNSIGNED
        return capsule


def from_dlpack(value: Any, bits: bool) -> Array:
    """An array over a producer's memory; with ``bits`` elements of bfloat16 are read as uint16.

    Raises:
        BufferError, RuntimeError, TypeError: what the producer or NumPy says against it.
    """
    producer: Any = Bits(value) if bits else value
    return np.from_dlpack(producer)
