"""Element formats that tensors of the IR hold as bits: what NumPy arrays of ml_dtypes' types stand for.

A parameter or result may have a format besides its dtype: ``float8_e4m3fn`` over ``uint8``, ``int4`` over ``int8``,
``bfloat16`` over ``bfloat16``. Callers then pass and receive arrays of the type of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALL_INTEGERS: Final[Mapping[str, str]] = MappingProxyType(
    {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
)
"""Integers of less than a byte, and the dtype that holds their values."""
FOREIGN: Final = ("bfloat16", "float8", "float4")
"""How the names of floats begin that NumPy has no types for."""


def held(array: Array, element: str, stored: np.dtype[Any]) -> Array:
    """An array of ``element`` as the ``stored`` dtype; any other array as it is, also one of the other byte order.

    Files of NumPy hold the types of ml_dtypes as bytes without a type: these are taken for what is expected.
    """
    if element.startswith(FOREIGN) and array.dtype == np.dtype((np.void, stored.itemsize)):
        return array.view(stored)
    if not element or array.dtype.name != element or array.dtype.newbyteorder("=") == stored:
        return array
    return array.astype(stored) if element in SMALL_INTEGERS else array.view(stored)


def shown(array: Array, element: str) -> Array:
    """Stored elements as an array of ``element``; as they are where no package has registered that type with NumPy."""
    if not element:
        return array
    try:
        wanted = np.dtype(element)
    except TypeError:
        return array
    return array.astype(wanted) if element in SMALL_INTEGERS else array.view(wanted)
