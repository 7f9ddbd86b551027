"""Import of programs that torch.export gives."""

from __future__ import annotations

from torch.export import ExportedProgram

from relaxir.frontends.torch.importer import Importer
from relaxir.ir.module import IRModule
from relaxir.support.errors import LoadError


def from_torch(program: object) -> IRModule:
    """Import a program; see `relaxir.api.from_torch`."""
    if not isinstance(program, ExportedProgram):
        kind = type(program).__name__
        raise LoadError(f"expected an ExportedProgram, got {kind}", help="call torch.export.export(model, args)")
    return Importer(program).run()
