"""ONNX tensors to arrays: every claim of the file is checked before memory is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import TensorProto

from relaxir.ir.expr import Array
from relaxir.support.dtypes import info
from relaxir.support.errors import LoadError, UnsupportedError

ELEMENT_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
        TensorProto.FLOAT16: "float16",
        TensorProto.BFLOAT16: "bfloat16",
        TensorProto.INT8: "int8",
        TensorProto.INT16: "int16",
        TensorProto.INT32: "int32",
        TensorProto.INT64: "int64",
        TensorProto.UINT8: "uint8",
        TensorProto.UINT16: "uint16",
        TensorProto.UINT32: "uint32",
        TensorProto.UINT64: "uint64",
        TensorProto.BOOL: "bool",
    }
)
MOST_ELEMENTS: Final = 2**48
"""Elements of a stored tensor beyond which its shape is taken for damaged."""
TYPED_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "float32": "float_data",
        "float64": "double_data",
        "int64": "int64_data",
        "uint32": "uint64_data",
        "uint64": "uint64_data",
    }
)


def element_type(code: int, what: str) -> str:
    """Canonical dtype of an ONNX element type.

    Raises:
        UnsupportedError: strings, complex numbers, 8-bit floats, 4-bit integers, unknown codes.
    """
    if code not in ELEMENT_TYPES:
        names = dict(zip(TensorProto.DataType.values(), TensorProto.DataType.keys(), strict=True))
        raise UnsupportedError(f"{what} has element type {names.get(code, code)}", code="import-unsupported")
    return ELEMENT_TYPES[code]


class TensorReader:
    """Decodes tensors of one model; external data stays inside the model's folder.

    Attributes:
        folder: the model's folder; None for a model given as bytes, whose external data is refused.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def array(self, tensor: TensorProto) -> tuple[Array, str]:
        """The data of a tensor and its dtype (bfloat16 as uint16 bits).

        Raises:
            LoadError: dims that are negative or disagree with the data, data outside the folder or cut short.
        """
        what = f"tensor `{tensor.name}`"
        dtype = element_type(tensor.data_type, what)
        shape = tuple(tensor.dims)
        if any(d < 0 for d in shape):
            raise LoadError(f"{what} has a negative dimension: {list(shape)}")
        if math.prod(max(d, 1) for d in shape) > MOST_ELEMENTS:
            raise LoadError(f"{what} has an absurd shape: {list(shape)}")
        count = math.prod(shape)
        row = info(dtype)
        expected = count * row.bytes
        if tensor.HasField("segment"):
            raise UnsupportedError(f"{what} is stored in segments", code="import-unsupported")
        if tensor.data_location == TensorProto.EXTERNAL:
            data = np.frombuffer(self.external(tensor, expected), row.numpy)
        elif tensor.HasField("raw_data"):
            raw = tensor.raw_data  # each access is a copy
            if len(raw) != expected:
                raise LoadError(f"{what} has {len(raw)} bytes of data, its shape {list(shape)} needs {expected}")
            data = np.frombuffer(raw, row.numpy)
        else:
            data = self.typed(tensor, dtype, count, what)
        array = data.reshape(shape)
        array.setflags(write=False)
        return array, dtype

    @staticmethod
    def typed(tensor: TensorProto, dtype: str, count: int, what: str) -> Array:
        """Data held in one of the typed fields."""
        values = getattr(tensor, TYPED_FIELDS.get(dtype, "int32_data"))
        if len(values) != count:
            raise LoadError(f"{what} has {len(values)} elements, its shape {list(tensor.dims)} needs {count}")
        row = info(dtype)
        if dtype in ("float16", "bfloat16"):
            return np.array(values, np.uint16).view(row.numpy)
        return np.array(values).astype(row.numpy)

    def external(self, tensor: TensorProto, expected: int) -> bytes:
        """Bytes of a file beside the model.

        Raises:
            LoadError: a path outside the folder (also through a link), a missing file, a range outside the file.
        """
        what = f"tensor `{tensor.name}`"
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            raise LoadError(
                f"{what} has external data at `{location}`, but the model was not read from a file", code="load-path"
            )
        path = self.confined(location, what)
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or expected)
        except ValueError as error:
            raise LoadError(f"{what}: offset and length of external data must be numbers") from error
        size = path.stat().st_size
        if length != expected:
            raise LoadError(
                f"{what} has {length} bytes of external data, its shape {list(tensor.dims)} needs {expected}"
            )
        if offset < 0 or offset + length > size:
            raise LoadError(f"{what}: bytes {offset}..{offset + length} lie outside `{location}` of {size} bytes")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def confined(self, location: str, what: str) -> Path:
        """The file of a location inside the model's folder; what leads out of it is refused, links too."""
        assert self.folder is not None
        rule = "external data must lie inside the model's folder"
        if not isinstance(location, str):
            raise LoadError(f"{what}: the location of its external data is not UTF-8 text: {location!r}")
        if not location or "\0" in location:
            raise LoadError(f"{what} names no file for its external data", code="load-path")
        if Path(location).is_absolute():
            raise LoadError(f"{what}: `{location}` is an absolute path; {rule}", code="load-path")
        try:
            root = self.folder.resolve()
            path = (root / location).resolve()
            path.stat()
        except FileNotFoundError:
            pass  # said below, unless it lies outside
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: no text
            raise LoadError(f"{what}: cannot follow `{location[:80]}`: {error}", code="load-path") from error
        if not path.is_relative_to(root):
            raise LoadError(f"{what}: `{location}` leads outside; {rule}", code="load-path")
        if not path.is_file():
            raise LoadError(f"{what}: no file `{location}` in the model's folder", code="load-path")
        return path
