"""Import of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping

from relaxir.frontends.onnx.importer import Importer
from relaxir.frontends.onnx.load import read_model
from relaxir.ir.module import IRModule
from relaxir.support.errors import ArgumentError
from relaxir.sym import DimLike, normalize


def from_onnx(model: object, dims: Mapping[str, DimLike] | None = None) -> IRModule:
    """Import a model; see `relaxir.api.from_onnx`."""
    overrides = {name: normalize(d) for name, d in (dims or {}).items()}
    for name, d in overrides.items():
        if isinstance(d, int) and d < 0:
            raise ArgumentError(f"dims: `{name}` is negative: {d}", code="argument-extent")
    return Importer(read_model(model), overrides).run()
