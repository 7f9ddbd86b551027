"""Import of ONNX models."""

from __future__ import annotations

from collections.abc import Mapping

from relaxir.frontends.onnx.importer import Importer
from relaxir.frontends.onnx.load import read_model
from relaxir.ir.module import IRModule
from relaxir.support.errors import ArgumentError
from relaxir.sym import DimLike, SymError, normalize


def from_onnx(model: object, dims: Mapping[str, DimLike] | None = None) -> IRModule:
    """Import a model; see `relaxir.api.from_onnx`."""
    overrides = {name: dimension(name, d) for name, d in (dims or {}).items()}
    return Importer(read_model(model), overrides).run()


def dimension(name: str, given: DimLike) -> DimLike:
    """A dimension of the caller's.

    Raises:
        SymError: it is none.
        ArgumentError: it is negative.
    """
    try:
        d = normalize(given)
    except SymError as error:
        raise SymError(f"dims: `{name}`: {error.message}", help='give a number, or rx.dim("n", min=1)') from error
    if isinstance(d, int) and d < 0:
        raise ArgumentError(f"dims: `{name}` is negative: {d}", code="argument-extent")
    return d
