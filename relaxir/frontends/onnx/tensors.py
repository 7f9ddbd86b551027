"""ONNX tensors to arrays: every claim of the file is checked before memory is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import TensorProto

from relaxir.frontends.onnx.narrow import NARROW, unpacked
from relaxir.frontends.onnx.values import Value
from relaxir.ir.expr import Array, Constant
from relaxir.ir.types import TensorType
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
MOST_AXES: Final = 32
"""Axes of a tensor beyond which a file is taken for damaged."""
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
        UnsupportedError: strings, complex numbers, formats of less than 16 bits, unknown codes.
    """
    if code not in ELEMENT_TYPES:
        names = dict(zip(TensorProto.DataType.values(), TensorProto.DataType.keys(), strict=True))
        raise UnsupportedError(f"{what} has element type {names.get(code, code)}", code="import-unsupported")
    return ELEMENT_TYPES[code]


class TensorReader:
    """Decodes tensors of one model; external data stays inside the model's folder.

    Attributes:
        folder: the model's folder; None for a model given as bytes, whose external data is refused.
        parts: what was read of files, by path, offset and length: tensors that share it share memory.
        taken: bytes of each file that were read.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.parts: dict[tuple[Path, int, int], bytes] = {}
        self.taken: dict[Path, int] = {}

    def value(self, tensor: TensorProto, data: memoryview | None = None) -> Value:
        """A tensor as a constant (bfloat16 as uint16 bits, narrow formats as `relaxir.frontends.onnx.narrow` says).

        ``data`` are its elements where they were left out of it.

        Raises:
            LoadError: dims that are negative or disagree with the data, data outside the folder or cut short.
        """
        what = f"tensor `{tensor.name}`"
        narrow = NARROW.get(tensor.data_type)
        dtype = narrow.stored if narrow else element_type(tensor.data_type, what)
        shape = tuple(tensor.dims)
        if len(shape) > MOST_AXES:
            raise LoadError(f"{what} has rank {len(shape)}, more than {MOST_AXES}")
        if any(d < 0 for d in shape):
            raise LoadError(f"{what} has a negative dimension: {list(shape)}")
        if math.prod(max(d, 1) for d in shape) > MOST_ELEMENTS:
            raise LoadError(f"{what} has an absurd shape: {list(shape)}")
        count = math.prod(shape)
        row = info(dtype)
        expected = -(-count * (narrow.bits if narrow else row.bits) // 8)
        kept = np.dtype(np.uint8) if narrow else row.numpy
        if tensor.HasField("segment"):
            raise UnsupportedError(f"{what} is stored in segments", code="import-unsupported")
        if tensor.data_location == TensorProto.EXTERNAL:
            elements = np.frombuffer(self.external(tensor, expected), kept)
        elif data is not None or tensor.HasField("raw_data"):
            raw = tensor.raw_data if data is None else data  # each access is a copy
            if len(raw) != expected:
                raise LoadError(f"{what} has {len(raw)} bytes of data, its shape {list(shape)} needs {expected}")
            elements = np.frombuffer(raw, kept)
        else:
            elements = self.typed(tensor, "uint8" if narrow else dtype, expected if narrow else count, what)
        array = (unpacked(elements, narrow, count) if narrow else elements).reshape(shape)
        array.setflags(write=False)
        value = Value.of(Constant(array, TensorType(array.shape, dtype)))
        return replace(value, element=narrow.name) if narrow else value

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
            LoadError: a path outside the folder (also through a link), a missing file, a range outside the file or
                overlapping with others.
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
        place = path, offset, length
        if place not in self.parts:
            self.taken[path] = self.taken.get(path, 0) + length
            if self.taken[path] > size:  # else a small file could fill the memory
                raise LoadError(f"{what}: tensors overlap in `{location}`: they claim more than its {size} bytes")
            with path.open("rb") as file:
                file.seek(offset)
                self.parts[place] = file.read(length)
        return self.parts[place]

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
