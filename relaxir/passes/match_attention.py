"""Recognise attention in the operators that exporters write for it.

Before:
    lv0 = R.multiply(q, 0.42)
    lv1 = R.permute_dims(R.multiply(k, 0.42), axes=(0, 1, 3, 2))
    lv2 = R.softmax(R.add(R.matmul(lv0, lv1), mask))
    lv3 = R.where(R.isnan(lv2), 0.0, lv2)
    lv4 = R.matmul(lv3, v)                                     # q, k, v: (b, h, s, d)
    lv5 = R.permute_dims(lv4, axes=(0, 2, 1, 3))
After:
    lv5 = R.attention(q, k, v, mask, scale=0.1764, empty_rows="guard", rows_first="o")

Scalings of either factor, a bool mask instead of an added one, keys and values repeated for groups of heads, and
transpositions of heads and length around it are all taken in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Expr, OpCall, Var
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import map_functions
from relaxir.ops import op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.canonicalize import axes_of
from relaxir.passes.patterns import PatternRewriter, dtype_of, number, rank_of, scaled, shape_of
from relaxir.sym import is_const

FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Operand:
    """``factor * permute_dims(base, axes)``."""

    base: Expr
    axes: tuple[int, ...]
    factor: float = 1.0

    def order(self, names: str) -> str:
        """Names of the axes of ``base`` when ``names`` are those of the value."""
        return "".join(names[self.axes.index(a)] for a in range(len(self.axes)))


@dataclass(frozen=True, slots=True)
class Scores:
    """The product under a softmax, the mask on it, and what was done to it."""

    product: OpCall
    scale: float
    mask: Expr | None = None
    fill: float = 0.0
    guard: bool = False
    hidden: bool = False  # a bool mask is true where a key is hidden


AXES: Final[Mapping[int, tuple[str, str, str]]] = MappingProxyType(
    {3: ("bsd", "bdt", "bte"), 4: ("bhsd", "bhdt", "bhte")}
)
"""Axes of queries, of keys as their product reads them, and of values, by rank: batch, head, queries, keys, depths."""


class _Matcher(PatternRewriter):
    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if call.op.name == "permute_dims" and axes_of(call) == (0, 2, 1, 3):
            inner = self.made(call.args[0], "attention")
            if inner is not None and self.uses[call.args[0]] <= 1:  # type: ignore[index]  # what a call made is a variable
                given = getattr(inner.attrs, "rows_first", "")
                letters = given.replace("o", "") if "o" in given else given + "o"
                attrs = {"scale": getattr(inner.attrs, "scale", 0.0), "fill": getattr(inner.attrs, "fill", 0.0)}
                rows = getattr(inner.attrs, "empty_rows", "nan")
                return bb.emit(op.attention(*inner.args, **attrs, empty_rows=rows, rows_first=letters))
        if call.op.name != "matmul" or dtype_of(call) not in FLOATS or rank_of(call) not in (3, 4):
            return None
        scores = self.scores(call.args[0])
        if scores is None or rank_of(scores.product) != rank_of(call):
            return None
        return self.emit(scores, call, bb)

    # ---- reading

    def scores(self, weights: Expr) -> Scores | None:
        """Read the left factor of the second product."""
        guard = self.made(weights, "where")
        if guard is not None:
            test = self.made(guard.args[0], "isnan")
            if test is None or test.args[0] is not guard.args[2] or number(guard.args[1]) != 0:
                return None
            weights = guard.args[2]
        found = self.softmax(weights)
        scores = None if found is None else self.masked(found)
        return scores if scores is None else replace(scores, guard=guard is not None)

    def softmax(self, weights: Expr) -> Expr | None:
        """What the weights are the softmax of along the last axis, seen through views that keep that axis."""
        view = self.made(weights, "reshape")
        inner = self.made(view.args[0] if view is not None else weights, "softmax")
        if inner is None or getattr(inner.attrs, "axis", 0) not in (-1, rank_of(inner) - 1):
            return None
        if view is None:
            return inner.args[0]
        before = self.made(inner.args[0], "reshape")
        if before is None or before.args[0].type != weights.type or shape_of(inner)[-1] != shape_of(weights)[-1]:
            return None
        return before.args[0]

    def masked(self, value: Expr) -> Scores | None:
        """Read scores with or without a mask."""
        plain = self.product(value)
        if plain is not None:
            return Scores(*plain)
        call = self.made(value, "add", "where")
        if call is None:
            return None
        if call.op.name == "add":
            for score, mask in (call.args, call.args[::-1]):
                inner = self.product(score)
                if inner is not None and score.type == call.type and rank_of(mask) <= rank_of(call):
                    return Scores(*inner, self.unrepeated(mask))
            return None
        mask, then, other = call.args
        for score, filler, keep in ((then, other, True), (other, then, False)):
            inner, fill = self.product(score), number(filler)
            if inner is None or not fill or score.type != call.type or rank_of(mask) > rank_of(call):
                continue
            mask = self.unrepeated(mask)
            return Scores(*inner, mask, 0.0 if fill == float("-inf") else fill, hidden=not keep)
        return None

    def product(self, value: Expr) -> tuple[OpCall, float] | None:
        """The product of queries and keys behind scalings, and the factor."""
        factor = 1.0
        while isinstance(value, Var) and value in self.source:
            call = self.source[value]
            if call.op.name == "matmul":
                return call, factor
            part = scaled(call)
            if part is None:
                return None
            value, factor = part[0], factor * part[1]
        return None

    def unrepeated(self, mask: Expr) -> Expr:
        """A mask before it was broadcast along leading axes."""
        call = self.made(mask, "broadcast_to")
        return mask if call is None else call.args[0]

    def operand(self, value: Expr, scaling: bool) -> Operand:
        """Read a factor: transpositions (and scalings) of a value."""
        axes, factor = tuple(range(rank_of(value))), 1.0
        while isinstance(value, Var) and value in self.source:
            call = self.source[value]
            part = scaled(call) if scaling else None
            if part is not None:
                value, factor = part[0], factor * part[1]
            elif call.op.name == "permute_dims":
                inner = axes_of(call)
                value, axes = call.args[0], tuple(inner[a] for a in axes)
            else:
                break
        return Operand(value, axes, factor)

    def ungrouped(self, found: Operand, names: str) -> Operand:
        """An operand before its heads were repeated for the query heads that share them."""
        order = found.order(names)
        head = order.index("h")
        view = self.made(found.base, "reshape")
        repeat = self.made(view.args[0], "broadcast_to") if view is not None else None
        source = self.made(repeat.args[0], "expand_dims", "reshape") if repeat is not None else None
        if source is None or repeat is None or rank_of(repeat) != 5:
            return found
        narrow, wide, base = shape_of(repeat.args[0]), shape_of(repeat), source.args[0]
        kept = narrow[: head + 1] + narrow[head + 2 :]
        merged = shape_of(found.base)
        repeated = rank_of(repeat.args[0]) == 5 and narrow[head + 1] == 1 and narrow[head + 1 :][1:] == wide[head + 2 :]
        if not repeated or shape_of(base) != kept or narrow[: head + 1] != wide[: head + 1]:
            return found
        if merged[:head] != wide[:head] or merged[head + 1 :] != wide[head + 2 :]:
            return found
        inner = self.operand(base, scaling=True)
        return Operand(inner.base, tuple(inner.axes[a] for a in found.axes), found.factor * inner.factor)

    # ---- writing

    def emit(self, scores: Scores, call: OpCall, bb: BlockBuilder) -> Expr | None:
        """The attention call, or None if the operands do not fit it."""
        rank, mask = rank_of(call), scores.mask
        factors = self.factors(scores, call, rank)
        if factors is None:
            return None
        q, k, v = factors
        q_axes, k_axes, v_axes = AXES[rank]
        scale = scores.scale * q.factor * k.factor
        if not scale or k.order(k_axes) == k_axes:
            return None  # keys that lie transposed in memory are read as they are by a plain product
        placed = (
            self.placed(q, q_axes, q_axes, "q", bb),
            self.placed(k, k_axes, k_axes[:-2] + "td", "k", bb),
            self.placed(v, v_axes, v_axes, "v", bb),
        )
        args, letters = [value for value, _ in placed], "".join(letter for _, letter in placed)
        if not self.fits(args, letters, rank) or (mask is not None and dtype_of(mask) not in ("bool", dtype_of(call))):
            return None
        if rank == 3:  # one head
            args = [bb.emit(op.expand_dims(a, axes=(1,))) for a in args]
            if mask is not None and rank_of(mask) == 3:
                mask = bb.emit(op.expand_dims(mask, axes=(1,)))
        if mask is not None:
            args.append(bb.emit(op.logical_not(mask)) if scores.hidden else mask)
        rows = "guard" if scores.guard else "nan"
        attention = op.attention(*args, scale=scale, fill=scores.fill, empty_rows=rows, rows_first=letters)
        result: Expr = bb.emit(attention)
        return bb.emit(op.squeeze(result, axes=(1,))) if rank == 3 else result

    def factors(self, scores: Scores, call: OpCall, rank: int) -> tuple[Operand, Operand, Operand] | None:
        """Queries, keys and values, or None where they have other axes, or values a factor of their own."""
        q = self.operand(scores.product.args[0], scaling=True)
        k = self.operand(scores.product.args[1], scaling=True)
        v = self.operand(call.args[1], scaling=False)
        if any(rank_of(o.base) != rank for o in (q, k, v)):
            return None
        if rank == 4:
            _, k_axes, v_axes = AXES[rank]
            k, v = self.ungrouped(k, k_axes), self.ungrouped(v, v_axes)
        return None if v.factor != 1.0 else (q, k, v)

    def placed(self, found: Operand, names: str, wanted: str, letter: str, bb: BlockBuilder) -> tuple[Expr, str]:
        """The operand in one of the two layouts of the operator, and the letter if it is the second."""
        order = found.order(names)
        if order == wanted:
            return found.base, ""
        if len(order) == 4 and order == wanted[0] + wanted[2] + wanted[1] + wanted[3]:
            return found.base, letter
        return bb.emit(op.permute_dims(found.base, axes=tuple(order.index(n) for n in wanted))), ""

    def fits(self, args: list[Expr], letters: str, rank: int) -> bool:
        """Whether the shapes agree without any broadcasting but of key heads over query heads."""
        shapes = []
        for value, letter in zip(args, "qkv", strict=True):
            s = shape_of(value)
            shapes.append((s[0], s[2], s[1], s[3]) if letter in letters else s if rank == 4 else (s[0], 1, *s[1:]))
        q, k, v = shapes
        heads = q[1] == k[1] or (is_const(q[1]) and is_const(k[1]) and int(k[1]) > 0 and int(q[1]) % int(k[1]) == 0)
        same = q[0] == k[0] == v[0] and q[3] == k[3] and k[2] == v[2] and k[1] == v[1]
        return same and heads and is_const(q[3]) and is_const(v[3])


@dataclass(frozen=True)
class MatchAttention(Pass):
    """Replace product, mask, softmax and product by the attention operator."""

    name: ClassVar[str] = "MatchAttention"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Matcher(f).function(f))
