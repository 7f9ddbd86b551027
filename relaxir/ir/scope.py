"""What `BlockBuilder` collects while a body is being built, and which symbols a call mentions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relaxir.ir.expr import Binding, BindingBlock, Expr, Var
from relaxir.ir.op import Attrs, attr_dims
from relaxir.sym import Dim, DimLike, free_dims


@dataclass
class Scope:
    """Bindings being collected: one per function body or branch."""

    blocks: list[BindingBlock] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    dataflow: bool = False
    outputs: list[Var] = field(default_factory=list)
    result: Expr | None = None

    def close_block(self) -> None:
        """Finish the current block."""
        if self.bindings:
            self.blocks.append(BindingBlock(tuple(self.bindings), self.dataflow, tuple(self.outputs)))
        self.bindings, self.outputs = [], []


def outer(rename: Callable[[DimLike], DimLike], defined: Sequence[Dim]) -> Callable[[DimLike], DimLike]:
    """The renaming, for dimensions that do not depend on symbols which the call itself defines."""
    return lambda d: d if any(s in defined for s in free_dims(d)) else rename(d)


def attr_symbols(attrs: Attrs) -> tuple[Dim, ...]:
    """Symbols in an attribute record, with repetitions."""
    return tuple(s for d in attr_dims(attrs) for s in free_dims(d))
