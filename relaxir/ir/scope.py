"""What `BlockBuilder` collects while a body is being built, and which symbols a call mentions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from relaxir.ir.attrs import Attrs, attr_dims
from relaxir.ir.expr import Binding, BindingBlock, Expr, Var
from relaxir.support.checks import check_kind
from relaxir.support.errors import VerifyError
from relaxir.support.names import UniqueNames
from relaxir.support.spans import Span
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


def variable_names(taken: Iterable[str]) -> UniqueNames:
    """Names for the variables of a function: ``lv``, ``lv0``, ``lv1``, ..."""
    return UniqueNames(taken, separator="", first=0)


def check_name(name: object, what: str) -> None:
    """Raise VerifyError unless ``name`` can name something: text, not empty, without NUL."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise VerifyError(
            f"{name!r} cannot be the name of a {what}", code="verify-name", help="a name is text without NUL"
        )


def check_params(name: str, params: Sequence[Var]) -> None:
    """Raise VerifyError for parameters of equal names, and for names that are none; ArgumentError for no parameters."""
    check_kind("params", params, Iterable, "pass a list of rx.Var")
    seen: set[str] = set()
    for p in params:
        check_kind("params", p, Var, 'make each one, e.g. rx.Var("x", rx.TensorType((4,), "float32"))')
        check_name(p.name, "parameter")
        if p.name in seen:
            raise VerifyError(
                f"function `{name}` has two parameters named `{p.name}`",
                code="verify-redefined",
                help="give each parameter a name of its own",
            )
        seen.add(p.name)


def check_reach(callee: str, read: Sequence[Var], home: Scope | None, scopes: Sequence[Scope]) -> None:
    """Raise VerifyError for the call of a closure outside of ``home``, where it was built and what it reads is."""
    if home is not None and not any(s is home for s in scopes):
        raise VerifyError(
            f"`{callee}` reads {', '.join(f'`{v.name}`' for v in read)} from where it was built, and is called outside",
            code="verify-scope",
            span=Span.caller(),
            help="call it inside, or give it what it reads as parameters",
        )


def outer(rename: Callable[[DimLike], DimLike], defined: Sequence[Dim]) -> Callable[[DimLike], DimLike]:
    """The renaming, for dimensions that do not depend on symbols which the call itself defines."""
    return lambda d: d if any(s in defined for s in free_dims(d)) else rename(d)


def attr_symbols(attrs: Attrs) -> tuple[Dim, ...]:
    """Symbols in an attribute record, with repetitions."""
    return tuple(s for d in attr_dims(attrs) for s in free_dims(d))
