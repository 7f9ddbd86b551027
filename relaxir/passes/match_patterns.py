"""Recognise gelu, silu, layer and root-mean-square normalisation in their parts.

Before:
    lv0 = R.subtract(x, R.mean(x, axes=(-1,), keepdims=True))
    lv1 = R.sqrt(R.add(R.mean(R.power(lv0, 2.0), axes=(-1,), keepdims=True), 1e-5))
    lv2 = R.add(R.multiply(R.divide(lv0, lv1), w), b)
    lv3 = R.multiply(R.multiply(lv2, 0.5), R.add(R.erf(R.divide(lv2, 1.4142135)), 1.0))
After:
    lv2 = R.layer_norm(x, w, b, axes=(-1,), epsilon=1e-5)
    lv3 = R.gelu(lv2)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isclose, pi, sqrt
from typing import ClassVar, Final

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import map_functions
from relaxir.ops import op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.patterns import PatternRewriter, dtype_of, number, rank_of, scaled, shape_of

CLOSE: Final = 1e-5
"""Constants are written with few digits, or in half precision's neighbours."""


@dataclass(frozen=True, slots=True)
class Product:
    """``factor`` times some values."""

    factor: float
    values: tuple[Expr, ...]


class _Matcher(PatternRewriter):
    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if not dtype_of(call).startswith(("float", "bfloat")):
            return None
        if call.op.name in ("multiply", "divide"):
            return self.normalised(call, bb) or self.scale_of_norm(call, bb) or self.activation(call, bb)
        return self.bias_of_norm(call, bb) if call.op.name == "add" else None

    # ---- activations

    def product(self, expr: Expr, call: OpCall, depth: int = 0) -> Product:
        """Read nested products with constants."""
        inner = call if depth == 0 else self.made(expr, "multiply", "divide")
        if inner is None or depth > 3:
            return Product(1.0, (expr,))
        part = scaled(inner)
        if part is not None:
            below = self.product(part[0], call, depth + 1)
            return replace(below, factor=below.factor * part[1])
        if inner.op.name == "divide":
            return Product(1.0, (expr,))
        sides = [self.product(a, call, depth + 1) for a in inner.args]
        return Product(sides[0].factor * sides[1].factor, (*sides[0].values, *sides[1].values))

    def activation(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """Gelu in both forms, silu."""
        if call.op.name != "multiply":
            return None
        found = self.product(call.args[0], call)
        if len(found.values) != 2:
            return None
        for x, gate in (found.values, found.values[::-1]):
            if x.type != call.type:
                continue
            sigmoid = self.made(gate, "sigmoid")
            if sigmoid is not None and isclose(found.factor, 1.0, rel_tol=CLOSE):
                alpha = self.multiple_of(sigmoid.args[0], x)
                if alpha:
                    return bb.emit(op.silu(x, alpha=alpha))
            if isclose(found.factor, 0.5, rel_tol=CLOSE):
                kind = self.gelu_gate(gate, x)
                if kind is not None:
                    return bb.emit(op.gelu(x, approximate=kind))
        return None

    def multiple_of(self, value: Expr, x: Expr) -> float:
        """The factor if ``value`` is a multiple of ``x``, else 0."""
        factor = 1.0
        while value is not x:
            call = self.made(value, "multiply", "divide")
            part = scaled(call) if call is not None else None
            if part is None:
                return 0.0
            value, factor = part[0], factor * part[1]
        return factor

    def gelu_gate(self, gate: Expr, x: Expr) -> str | None:
        """Which gelu has ``gate`` as ``1 + f(x)``."""
        for inner, one in self.sides(gate, "add"):
            if number(one) != 1.0:
                continue
            erf, tanh = self.made(inner, "erf"), self.made(inner, "tanh")
            if erf is not None and isclose(self.multiple_of(erf.args[0], x), sqrt(0.5), rel_tol=CLOSE):
                return "none"
            if tanh is not None and self.is_cubic(tanh.args[0], x):
                return "tanh"
        return None

    def is_cubic(self, value: Expr, x: Expr) -> bool:
        """Whether ``value`` is ``sqrt(2 / pi) (x + 0.044715 x ** 3)``."""
        call = self.made(value, "multiply")
        part = scaled(call) if call is not None else None
        if part is None or not isclose(part[1], sqrt(2 / pi), rel_tol=CLOSE):
            return False
        for linear, cube in self.sides(part[0], "add"):
            inner = self.made(cube, "multiply", "divide") if linear is x else None
            if inner is None:
                continue
            term = self.product(cube, inner)
            powers = [next((n for n in (1, 2, 3) if self.is_power(v, x, n)), 0) for v in term.values]
            if isclose(term.factor, 0.044715, rel_tol=CLOSE) and all(powers) and sum(powers) == 3:
                return True
        return False

    def is_power(self, value: Expr, x: Expr, n: int) -> bool:
        """Whether ``value`` is the n-th power of ``x``."""
        if n == 1:
            return value is x
        power = self.made(value, "power")
        if power is not None and power.args[0] is x and number(power.args[1]) == n:
            return True
        square = self.made(value, "square")
        if n == 2 and square is not None and square.args[0] is x:
            return True
        return any(b is x and self.is_power(a, x, n - 1) for a, b in self.sides(value, "multiply"))

    def sides(self, value: Expr, name: str) -> Iterator[tuple[Expr, Expr]]:
        """Both orders of a binary call's operands; nothing if ``value`` is no such call."""
        call = self.made(value, name)
        if call is not None:
            yield call.args[0], call.args[1]
            yield call.args[1], call.args[0]

    # ---- normalisations

    def normalised(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """``d / sqrt(mean(d ** 2) + epsilon)``, with ``d = x - mean(x)`` or ``d = x``."""
        for d, scale in (call.args, call.args[::-1])[: 2 if call.op.name == "multiply" else 1]:
            spread = self.spread(scale, inverse=call.op.name == "multiply")
            if spread is None or d.type != call.type:
                continue
            mean, epsilon = spread
            axes = self.trailing(mean)
            if axes is None or not self.is_power(mean.args[0], d, 2):
                continue
            centred = self.made(d, "subtract")
            middle = self.made(centred.args[1], "mean") if centred is not None else None
            x = centred.args[0] if centred is not None else None
            if x is not None and middle is not None and middle.args[0] is x and self.trailing(middle) == axes:
                return bb.emit(op.layer_norm(x, axes=axes, epsilon=epsilon)) if x.type == call.type else None
            return bb.emit(op.rms_norm(d, axes=axes, epsilon=epsilon))
        return None

    def spread(self, value: Expr, inverse: bool) -> tuple[OpCall, float] | None:
        """The mean and epsilon under a root (or its reciprocal)."""
        root = self.made(value, "rsqrt") if inverse else self.made(value, "sqrt")
        if root is None and inverse:
            over = self.made(value, "reciprocal", "divide")
            if over is None or (over.op.name == "divide" and number(over.args[0]) != 1.0):
                return None
            root = self.made(over.args[-1], "sqrt")
        if root is None:
            return None
        for mean, epsilon in self.sides(root.args[0], "add"):
            call, value_of = self.made(mean, "mean"), number(epsilon)
            if call is not None and value_of is not None:
                return call, value_of
        return None

    def trailing(self, mean: OpCall) -> tuple[int, ...] | None:
        """Axes of a mean over the last axes that keeps them, counted from the end, or None."""
        rank = rank_of(mean.args[0])
        axes = getattr(mean.attrs, "axes", None)
        if axes is None or not getattr(mean.attrs, "keepdims", False) or rank_of(mean) != rank:
            return None
        own = sorted(a - rank if a >= 0 else a for a in axes)
        return tuple(own) if own and own == list(range(-len(own), 0)) else None

    def parameters(self, call: OpCall, bb: BlockBuilder, count: int) -> tuple[OpCall, Expr] | None:
        """A normalisation with ``count`` operands that is used here only, and the operand to give it."""
        for norm, extra in (call.args, call.args[::-1]):
            inner = self.made(norm, "layer_norm", "rms_norm")
            if inner is None or len(inner.args) != count or self.uses[norm] > 1 or norm.type != call.type:  # type: ignore[index]  # what a call made is a variable
                continue
            axes = getattr(inner.attrs, "axes", ())
            row = tuple(shape_of(norm)[a] for a in axes)
            shape = shape_of(extra)
            if (
                dtype_of(extra) != dtype_of(norm)
                or shape[-len(row) :] != row
                or any(d != 1 for d in shape[: -len(row)])
            ):
                continue
            return inner, extra if shape == row else bb.emit(op.reshape(extra, shape=row))
        return None

    def scale_of_norm(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """Take a following product in."""
        found = self.parameters(call, bb, 1) if call.op.name == "multiply" else None
        return None if found is None else self.again(found[0], found[1], bb)

    def bias_of_norm(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """Take a following sum in."""
        found = self.parameters(call, bb, 2)
        return None if found is None or found[0].op.name != "layer_norm" else self.again(found[0], found[1], bb)

    def again(self, norm: OpCall, extra: Expr, bb: BlockBuilder) -> Expr:
        """The same normalisation with one more operand."""
        make = op.layer_norm if norm.op.name == "layer_norm" else op.rms_norm
        axes, epsilon = getattr(norm.attrs, "axes", (-1,)), getattr(norm.attrs, "epsilon", 1e-5)
        return bb.emit(make(*norm.args, extra, axes=axes, epsilon=epsilon))


@dataclass(frozen=True)
class MatchPatterns(Pass):
    """Replace activations and normalisations written in parts by their operators."""

    name: ClassVar[str] = "MatchPatterns"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Matcher(f).function(f))
