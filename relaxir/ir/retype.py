"""Inference a second time: what the parser and the verifier hold written types against.

A written type agrees with an inferred one when the two are equal after each fresh symbol of the inference is renamed to
one that the binding defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from relaxir.ir.op import InferCtx
from relaxir.ir.relations import Subtype, learn_cast, subtype
from relaxir.ir.types import Type, describe, substitute_type, type_dims
from relaxir.support.spans import Span
from relaxir.sym import ConflictError, Dim, DimLike, Facts, Relation, substitute


class TypeScope:
    """Symbols and facts at one point of a function; `branch` copies it for a part whose facts stay inside."""

    def __init__(self, dims: Iterable[Dim] = (), relations: Iterable[Relation] = ()) -> None:
        self.dims = dict.fromkeys(dims)
        self.facts = Facts(self.dims, tuple(relations))

    def branch(self) -> TypeScope:
        """A copy."""
        other = TypeScope()
        other.dims, other.facts = dict(self.dims), self.facts
        return other

    def ctx(self, what: str, span: Span | None = None) -> InferCtx:
        """A context for inferring one value here."""
        return InferCtx(what, self.facts, tuple(d.name for d in self.dims), span)

    def define(self, dims: Iterable[Dim]) -> None:
        """Add symbols that a binding defines."""
        new = [d for d in dims if d not in self.dims]
        if new:
            self.dims.update(dict.fromkeys(new))
            self.facts = self.facts.with_dims(*new)

    def learn(self, relations: Iterable[Relation]) -> None:
        """Rely on relations that are checked at run time; a contradiction means dead code, and teaches nothing."""
        for r in relations:
            try:
                self.facts = self.facts.with_(r)
            except ConflictError:
                continue

    def cast(self, known: Type, cast: Type, new: Sequence[Dim]) -> None:
        """Take a match_cast: see `learn_cast`; a contradiction means dead code, and teaches nothing."""
        with suppress(ConflictError):
            self.facts = learn_cast(self.facts, known, cast, new)
        self.define(new)

    def adopt(self, ctx: InferCtx, renamed: dict[Dim, DimLike]) -> None:
        """Rely on the run-time checks that an inference left behind."""
        for c in ctx.checks:
            left, right = substitute(c.relation.left, renamed), substitute(c.relation.right, renamed)
            self.learn((replace(c.relation, left=left, right=right),))


def rename_fresh(inferred: Type, written: Type, fresh: Sequence[Dim], owned: Sequence[Dim]) -> dict[Dim, DimLike]:
    """What the fresh symbols of an inference are called in the written type, as far as it can be seen."""
    renamed: dict[Dim, DimLike] = {}
    for a, b in zip(type_dims(inferred), type_dims(written), strict=False):
        if isinstance(a, Dim) and a in fresh and isinstance(b, Dim) and b in owned:
            renamed.setdefault(a, b)
    return renamed


def disagreement(
    inferred: Type, written: Type, facts: Facts, fresh: Sequence[Dim] = (), owned: Sequence[Dim] = ()
) -> str | None:
    """Why a written type contradicts an inferred one; None where it agrees.

    Args:
        inferred: what inference gives.
        written: what is recorded.
        facts: what holds at this point.
        fresh: symbols that the inference made up.
        owned: symbols that the binding defines.
    """
    renamed = rename_fresh(inferred, written, fresh, owned)
    for a, b in renamed.items():
        if isinstance(b, Dim) and not _covers(b, a):
            return f"the range of `{b.name}` excludes values that the value can have"
    expected = substitute_type(inferred, renamed)
    if expected == written or subtype(expected, written, facts) is Subtype.PROVED:
        return None
    return f"the type is written as {describe(written)}, but is {describe(expected)}"


def _covers(outer: Dim, inner: Dim) -> bool:
    """Whether every value of ``inner`` is one of ``outer``."""
    low = outer.min <= inner.min
    high = outer.max is None or (inner.max is not None and inner.max <= outer.max)
    return low and high and inner.multiple_of % outer.multiple_of == 0
