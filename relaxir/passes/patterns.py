"""The base of passes that recognise an operator in several bindings and put one call in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Binding, Body, Check, Constant, Expr, Function, OpCall, Var
from relaxir.ir.rewrite import Rewriter, all_bindings, function_dims, used_in_body, used_vars
from relaxir.ir.types import TensorType
from relaxir.passes.decompose import names_of
from relaxir.sym import ConflictError, DimLike, Facts, Relation


class PatternRewriter(Rewriter):
    """Offers every operator call to `replacement`; what the old calls computed is left for `DeadCode`."""

    def __init__(self, func: Function) -> None:
        super().__init__()
        self.facts = Facts(function_dims(func), func.where)
        self.names = names_of(func)
        self.checked: tuple[Relation, ...] = ()  # by checks so far, not yet among the facts
        self.source: dict[Var, OpCall] = {}
        self.uses = Counter(v for b in all_bindings(func.body) if not isinstance(b, Check) for v in used_vars(b.value))
        self.uses.update(v for v in used_in_body(func.body) if v is func.body.result)

    def body(self, body: Body) -> Body:
        """What is checked in a body holds there only."""
        outside = self.facts, self.checked
        try:
            return super().body(body)
        finally:
            self.facts, self.checked = outside

    def binding(self, binding: Binding) -> Iterable[Binding]:
        """Replace one binding; where a replacement needs a check, those before it may already say so."""
        (new,) = super().binding(binding)
        if isinstance(new, Check):
            self.checked = (*self.checked, new.relation)
        if not isinstance(new, Bind) or not isinstance(new.value, OpCall) or new.defines:
            return (new,)
        parts, result = self._attempt(new.value)
        if self.checked and any(isinstance(b, Check) for b in parts):
            with suppress(ConflictError):  # it fails at run time, whatever follows
                self.facts = self.facts.with_(*self.checked)
            self.checked = ()
            parts, result = self._attempt(new.value)
        if result is None or result.type != new.var.type or any(not isinstance(b, Bind) or b.defines for b in parts):
            self.source[new.var] = new.value
            return (new,)
        for b in parts:
            if isinstance(b, Bind):
                self.names.add(b.var.name)
                if isinstance(b.value, OpCall):
                    self.source[b.var] = b.value
        self.env[new.var] = result
        if isinstance(result, Var):
            self.uses[result] += self.uses[new.var]
        return tuple(parts)

    def _attempt(self, call: OpCall) -> tuple[list[Binding], Expr | None]:
        bb = BlockBuilder()
        with bb.fragment(self.facts, self.names, call.span) as parts:
            result = self.replacement(call, bb)
        return parts, result

    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """The value that stands for a call, its parts emitted into ``bb``; None leaves the call."""
        raise NotImplementedError

    def made(self, expr: Expr, *names: str) -> OpCall | None:
        """The call that made a value, if it is of one of these operators."""
        call = self.source.get(expr) if isinstance(expr, Var) else None
        return call if call is not None and call.op.name in names else None


def shape_of(expr: Expr) -> tuple[DimLike, ...]:
    """Shape of a tensor value, () of anything else."""
    return expr.type.shape if isinstance(expr.type, TensorType) else ()


def rank_of(expr: Expr) -> int:
    """Rank of a tensor value."""
    return len(shape_of(expr))


def dtype_of(expr: Expr) -> str:
    """Data type of a tensor value, empty of anything else."""
    return expr.type.dtype if isinstance(expr.type, TensorType) else ""


def number(expr: Expr) -> float | None:
    """The value of a constant of one floating-point element, or None."""
    if (
        not isinstance(expr, Constant)
        or expr.data.size != 1
        or expr.type.dtype not in ("float32", "float64", "float16")
    ):
        return None
    return float(expr.data.reshape(()))


def scaled(call: OpCall) -> tuple[Expr, float] | None:
    """Read a call as ``(x, factor)``: a product with, or a quotient by, one constant that leaves the shape alone."""
    if call.op.name not in ("multiply", "divide"):
        return None
    a, b = call.args
    sides = ((a, b), (b, a)) if call.op.name == "multiply" else ((a, b),)
    for value, factor in sides:
        known = number(factor)
        if known is not None and value.type == call.type and (call.op.name == "multiply" or known):
            return value, known if call.op.name == "multiply" else 1 / known
    return None
