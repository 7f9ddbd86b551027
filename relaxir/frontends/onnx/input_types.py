"""Types of a model's inputs: the caller's dimensions, the model's constants, and a symbol for each dynamic one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnx import GraphProto, ValueInfoProto

from relaxir.frontends.onnx.narrow import NARROW
from relaxir.frontends.onnx.tensors import MOST_AXES, MOST_ELEMENTS, element_type
from relaxir.ir.types import TensorType
from relaxir.support.checks import check_fixed
from relaxir.support.errors import ArgumentError, LoadError, UnsupportedError
from relaxir.support.names import cleaned, symbol_name
from relaxir.sym import Dim, DimLike, SymError, dim, fresh, to_text


class InputTypes:
    """Makes the types of one model's inputs, with one symbol for each name of a dimension."""

    def __init__(self, overrides: Mapping[str, DimLike]) -> None:
        """Take the caller's dimensions, by the model's names (``batch``) or by places (``x:0``)."""
        self.overrides = dict(overrides)
        self.used: set[str] = set()
        self.symbols: dict[str, Dim] = {}
        """By the names that the model has for them."""
        self.taken = {d.name for d in overrides.values() if isinstance(d, Dim)}

    def of(self, info: ValueInfoProto) -> TensorType:
        """Type of a graph input; dynamic dimensions become symbols.

        Raises:
            UnsupportedError: no tensor, or one without a rank.
            LoadError: a shape that no tensor has.
        """
        type_ = info.type.optional_type.elem_type if info.type.HasField("optional_type") else info.type
        if not type_.HasField("tensor_type"):  # an optional tensor is one that is always given
            raise UnsupportedError(f"input `{info.name}` is not a tensor", code="import-unsupported")
        tensor = type_.tensor_type
        narrow = NARROW.get(tensor.elem_type)
        dtype = narrow.stored if narrow else element_type(tensor.elem_type, f"input `{info.name}`")
        if not tensor.HasField("shape"):
            raise UnsupportedError(f"input `{info.name}` has no rank", code="import-unsupported")
        if len(tensor.shape.dim) > MOST_AXES:
            raise LoadError(f"input `{info.name}` has rank {len(tensor.shape.dim)}, more than {MOST_AXES}")
        shape: list[DimLike] = []
        for axis, d in enumerate(tensor.shape.dim):
            if d.dim_value < -1:  # -1 is what some exporters write for a dynamic dimension
                raise LoadError(f"input `{info.name}` has a negative dimension: axis {axis} is {d.dim_value}")
            if d.HasField("dim_value") and d.dim_value >= 0:
                shape.append(self._fixed(info.name, axis, int(d.dim_value)))
            else:
                shape.append(self._dynamic(d.dim_param, info.name, axis))
        if math.prod(d for d in shape if isinstance(d, int) and d) > MOST_ELEMENTS:
            raise LoadError(f"input `{info.name}` has an absurd shape: ({', '.join(map(to_text, shape))})")
        return TensorType(tuple(shape), dtype)

    def check_overrides(self, graph: GraphProto) -> None:
        """Every dimension that the caller gave must be one of the model's.

        Raises:
            ArgumentError: a name that no input has, or one whose places are all given as well.
        """
        unused = sorted(set(self.overrides) - self.used)
        if unused:
            axes = [
                (d.dim_param, f"{i.name}:{n}") for i in graph.input for n, d in enumerate(i.type.tensor_type.shape.dim)
            ]
            same = [place for name, place in axes if name == unused[0]]
            if same:
                raise ArgumentError(
                    f"`{unused[0]}` and `{same[0]}` are one dimension, given twice",
                    code="argument-name",
                    help="give it once",
                )
            shown = ", ".join(dict.fromkeys(name or place for name, place in axes))
            raise ArgumentError(
                f"the model has no dimension `{unused[0]}`", code="argument-name", help=f"it has {shown or 'none'}"
            )

    def _given(self, key: str) -> DimLike:
        """The caller's dimension for a name or a place."""
        self.used.add(key)
        return self.overrides[key]

    def _fixed(self, name: str, axis: int, size: int) -> DimLike:
        """A size of the model's, or the symbol that the caller puts in its place.

        Raises:
            ArgumentError: the caller gives another size, for which the model was not made.
        """
        place = f"{name}:{axis}"
        found = self._given(place) if place in self.overrides else size
        if isinstance(found, int):
            check_fixed(name, axis, size, found)
        return found

    def _dynamic(self, param: str, name: str, axis: int) -> DimLike:
        """A dynamic dimension: the caller's, else a symbol for each name, and for each one without (``?``, ``-1``)."""
        place = f"{name}:{axis}"
        for key in (place, param):
            if key in self.overrides:
                return self._given(key)
        stem = symbol_name(param)
        if not stem:
            return self._new_symbol(f"{cleaned(name, 'x') or 'x'}_{axis}")
        if param not in self.symbols:
            self.symbols[param] = self._new_symbol(stem)
        return self.symbols[param]

    def _new_symbol(self, stem: str) -> Dim:
        """A symbol whose name collides with no other, nor with the caller's."""
        try:
            symbol = dim(stem) if stem not in self.taken else fresh(stem, self.taken)
        except SymError:
            symbol = fresh("d", self.taken)
        self.taken.add(symbol.name)
        return symbol
