"""Einstein summation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, broadcast_read, check_dtype, check_same_dtype, compute_dtype, tensors_of
from relaxir.ops.kernels import input_of, output_of
from relaxir.support.errors import InferError
from relaxir.sym import DimLike
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, cast

Label = str
"""A letter, or ``...0``, ``...1`` for the ellipsis axes, counted from the last one."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation with its ellipses written out: labels per operand and of the result."""

    operands: tuple[tuple[Label, ...], ...]
    result: tuple[Label, ...]


def parse_equation(text: str, ranks: Sequence[int]) -> Equation:
    """Parse an equation for operands of given ranks.

    Without an arrow the result has the ellipsis axes, then every letter that occurs once, in alphabetical order.

    Raises:
        InferError: for a malformed equation, or one that does not fit the operands (``einsum-equation``).
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        _fail(f"equation `{text}` has {len(terms)} operands, got {len(ranks)}")
    operands = tuple(_labels(t, rank, text) for t, rank in zip(terms, ranks, strict=True))
    wide = max((sum(label[0] == "." for label in o) for o in operands), default=0)
    dots = tuple(f"...{n}" for n in reversed(range(wide)))
    if not arrow:
        letters = "".join(terms).replace(".", "")
        return Equation(operands, dots + tuple(sorted(c for c in set(letters) if letters.count(c) == 1)))
    before, ellipsis, after = right.partition("...")
    result = (*before, *(dots if ellipsis else ()), *after)
    known = {label for o in operands for label in o}
    if len(set(result)) != len(result) or not set(result) <= known:
        _fail(f"equation `{text}`: each index of the result must occur once there and in an operand")
    return Equation(operands, result)


def _fail(message: str) -> None:
    raise InferError(f"einsum: {message}", code="attribute")


def _labels(term: str, rank: int, text: str) -> tuple[Label, ...]:
    before, dots, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        _fail(f"equation `{text}`: `{term}` must consist of letters and at most one `...`")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        _fail(f"equation `{text}`: `{term}` does not fit an operand of rank {rank}")
    return (*before, *(f"...{n}" for n in reversed(range(hidden))), *after)


class Einsum(Op["Einsum.Attrs"]):
    """Einstein summation: the product of the operands, summed over every index that the result lacks.

    Letters name axes; one letter has one extent everywhere, and repeated within an operand takes its diagonal. ``...``
    stands for axes that broadcast. Several operands are multiplied from left to right, summing each index as soon as no
    later operand needs it. 16-bit floats accumulate in float32; integers wrap. TVM: relax.einsum, ONNX: Einsum.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The equation, as in NumPy: ``ij,jk->ik``."""

        equation: str

    name = "einsum"
    params = (Param("operands", "numbers of one dtype", NUMERIC, variadic=True),)
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[n, k]", "f32[k, 3]"), "f32[n, 3]", Attrs("ij,jk->ik")),
        Example(("f32[b, n, k]", "f32[b, m, k]"), "f32[b, n, m]", Attrs("bij, bkj -> bik"), sizes={"k": 3, "m": 2}),
        Example(("f32[2, n, 3]", "f32[2, m, 3]"), "f32[n, m]", Attrs("bij,bkj")),
        Example(("f64[n, n]",), "f64[]", Attrs("ii")),
        Example(("f32[2, n, n]",), "f32[2, n]", Attrs("...ii->...i")),
        Example(("f32[n, m]",), "f32[m, n]", Attrs("ij->ji")),
        Example(("i32[n, m]",), "i32[n]", Attrs("ij->i")),
        Example(("f32[n]", "f32[m]"), "f32[n, m]", Attrs("i,j->ij")),
        Example(("f16[n, 4]", "f16[4]"), "f16[n]", Attrs("ij,j")),
        Example(("f32[2, 1, n, 3]", "f32[4, 3, m]"), "f32[2, 4, n, m]", Attrs("...ij,...jk->...ik"), sizes={"m": 3}),
        Example(("f32[n, 2]", "f32[2, 3]", "f32[3, m]"), "f32[n, m]", Attrs("ij,jk,kl->il")),
        Example(("f32[n, 3]", "f32[n]", "f32[3]"), "f32[]", Attrs("ij,i,j->")),
    )
    bad_examples = (
        BadExample(("f32[2, 3]",), "attribute", "has 2 operands", Attrs("ij,jk")),
        BadExample(("f32[2, 3]",), "attribute", "does not fit", Attrs("ijk->i")),
        BadExample(("f32[2, 3]",), "attribute", "each index of the result", Attrs("ij->ik")),
        BadExample(("f32[2, 3]",), "attribute", "must consist of letters", Attrs("i1->i")),
        BadExample(("f32[2, 3]", "f32[4, 2]"), "shape-mismatch", "index j", Attrs("ij,jk->ik")),
    )

    def infer(self, args: tuple[Type, ...], attrs: Einsum.Attrs, ctx: InferCtx) -> Type:
        """Extents of the result's indices."""
        if not args:
            ctx.fail("at least one operand is needed", code="arity")
        names = tuple(f"operand {n}" for n in range(len(args)))
        tensors = tensors_of(ctx, args, names)
        check_dtype(ctx, tensors[0], names[0], NUMERIC)
        check_same_dtype(ctx, tensors, names)
        equation = parse_equation(attrs.equation, tuple(t.rank for t in tensors))
        extents: dict[Label, DimLike] = {}
        for name, labels, t in zip(names, equation.operands, tensors, strict=True):
            for label, d in zip(labels, t.shape, strict=True):
                if label not in extents:
                    extents[label] = d
                elif label[0] == ".":
                    (extents[label],) = ctx.broadcast(((extents[label],), (d,)))
                else:
                    ctx.require_equal(extents[label], d, f"index {label} earlier and in {name}")
        return TensorType(tuple(extents[label] for label in equation.result), tensors[0].dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Einsum.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One contraction block per pair of operands."""
        f = ProgramBuilder(self.name)
        buffers = [input_of(f, f"x{n}", t) for n, t in enumerate(args)]
        y = output_of(f, "y", out[0])
        equation = parse_equation(attrs.equation, tuple(t.rank for t in args))
        extents = _extents(equation, buffers, y)
        wide = compute_dtype(y.dtype)
        steps = max(len(buffers) - 1, 1)
        left, labels = buffers[0], equation.operands[0]
        for n in range(steps):
            parts = [(left, labels), *zip(buffers[n + 1 : n + 2], equation.operands[n + 1 : n + 2], strict=True)]
            last = n == steps - 1
            later = {x for o in equation.operands[n + 2 :] for x in o} | set(equation.result)
            seen = dict.fromkeys(x for _, o in parts for x in o)
            kept = equation.result if last else tuple(x for x in seen if x in later)
            direct = last and wide == y.dtype
            target = y if direct else f.temp(f"part{n}", tuple(extents[x] for x in kept), wide)
            _contract(f, target, kept, tuple(x for x in seen if x not in kept), parts, extents)
            left, labels = target, kept
        if left is not y:
            f.compute(y, lambda *i: cast(left[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Einsum.Attrs) -> Array:
        """np.einsum, floats in double."""
        wide: list[Any] = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in args]
        return np.asarray(np.einsum(attrs.equation, *wide)).astype(args[0].dtype)


def _extents(equation: Equation, buffers: Sequence[Buffer], y: Buffer) -> Mapping[Label, DimLike]:
    found: dict[Label, DimLike] = {}
    for labels, buffer in zip(equation.operands, buffers, strict=True):
        for label, d in zip(labels, buffer.shape, strict=True):
            if found.get(label, 1) == 1:
                found[label] = d
    return found | dict(zip(equation.result, y.shape, strict=True))


def _contract(
    f: ProgramBuilder,
    target: Buffer,
    kept: Sequence[Label],
    summed: Sequence[Label],
    parts: Sequence[tuple[Buffer, Sequence[Label]]],
    extents: Mapping[Label, DimLike],
) -> None:
    def value(*i: Expr) -> Expr:
        at = dict(zip((*kept, *summed), i, strict=True))
        total: Expr | None = None
        for buffer, labels in parts:
            index = broadcast_read(buffer, [at[x] for x in labels], [extents[x] for x in labels])
            # a letter has one extent: only ellipsis axes may be 1 where the result's are not
            plain = tuple(i if x[0] == "." else at[x] for i, x in zip(index, labels, strict=True))
            factor = cast(buffer.at(plain), target.dtype)
            total = factor if total is None else total * factor
        assert total is not None
        return total

    if summed:
        f.reduce(target, tuple(extents[x] for x in summed), Combine.SUM, value)
    else:
        f.compute(target, value)


EINSUM: Final = (Einsum(),)
