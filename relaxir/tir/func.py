"""Tensor programs: a kernel or a host function as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from relaxir.support.spans import Span
from relaxir.sym import Dim
from relaxir.tir.buffer import Buffer
from relaxir.tir.stmt import Stmt

AttrValue = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """A tensor program in destination-passing style.

    Attributes:
        params: buffers: inputs, then ``outputs`` result buffers, then ``workspaces`` scratch buffers.
        dims: the symbolic dimensions the program takes as int64 arguments, in order; every symbol of its buffers and
            body is one of them, bound by `relaxir.tir.stmt.Switch`, or bound by `relaxir.tir.host.BindDim`.
        body: statements.
        outputs: how many of ``params`` are results.
        workspaces: how many trailing ``params`` are scratch memory given by the caller.
        attrs: facts for later stages (``config``, ``pattern``, ``flops``, ``bytes``, ``scope`` = "kernel" or "host").
    """

    params: tuple[Buffer, ...]
    body: Stmt
    dims: tuple[Dim, ...] = ()
    outputs: int = 1
    workspaces: int = 0
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: MappingProxyType({}))
    span: Span | None = None

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Parameters that are read."""
        return self.params[: len(self.params) - self.outputs - self.workspaces]

    @property
    def results(self) -> tuple[Buffer, ...]:
        """Parameters that are written as results."""
        stop = len(self.params) - self.workspaces
        return self.params[stop - self.outputs : stop]

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Workspace parameters."""
        return self.params[len(self.params) - self.workspaces :]

    @property
    def is_host(self) -> bool:
        """Whether this is a host program."""
        return self.attrs.get("scope") == "host"
