"""Where the extrema are: argmax and argmin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, check_dtype, load_wide
from relaxir.ops.kernels import ravel
from relaxir.ops.reduce import Rows, kept_of, reduced_shape
from relaxir.tir import Buffer, Combine, Const, Expr, PrimFunc, ProgramBuilder, alike, const, select


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs(Attrs):
    """Attributes of `ArgMax` and `ArgMin`."""

    axis: int | None = None
    """Axis searched; None searches all elements in row-major order."""
    keepdims: bool = False
    """Keep searched axes with extent 1."""
    select_last_index: bool = False
    """Of equal extrema take the last, not the first."""


class ArgReduce(Op[Any]):
    """Base of argmax and argmin: the extremum of each row, then the first (or last) place that holds it.

    Both steps are plain reductions, so they vectorise and split like any other; where rows are contiguous they become
    one pass (`relaxir.schedule.rules.extremum`).
    """

    params = (Param("x", "rank 1 or more, or axis None"),)
    Attrs = ArgReduceAttrs
    kind = OpKind.REDUCE
    extremum: ClassVar[Combine]
    examples = (
        Example(("f32[n, m]",), "i64[n]", ArgReduceAttrs(1), min_size=1),
        Example(("i8[n, m]",), "i64[1, m]", ArgReduceAttrs(0, keepdims=True), min_size=1),
        Example(("i32[n, 4]",), "i64[]", ArgReduceAttrs(), min_size=1),
        Example(("f16[n, 3]",), "i64[1, 1]", ArgReduceAttrs(keepdims=True), min_size=1),
        Example(("u8[n, 16]",), "i64[n]", ArgReduceAttrs(-1, select_last_index=True), low=0, high=3),
        Example(("bf16[n, 4]",), "i64[n]", ArgReduceAttrs(-1)),
        Example(("f64[]",), "i64[]", ArgReduceAttrs()),
        Example(
            ("f32[3, 4]",),
            "i64[3]",
            ArgReduceAttrs(1),
            values=(((1, np.nan, np.nan, 2), (-np.inf, -np.inf, -np.inf, -np.inf), (1, 7, 7, -3)),),
        ),
    )
    bad_examples = (
        BadExample(("f32[n, 4]",), "axis-range", "axis 2 is out of range for rank 2", ArgReduceAttrs(2)),
        BadExample(("f32[n, 0]",), "shape-mismatch", "the searched axes hold no element", ArgReduceAttrs(1)),
        BadExample(("bool[n]",), "dtype-mismatch", "x must be one of", ArgReduceAttrs(0)),
    )

    def infer(self, args: tuple[Type, ...], attrs: ArgReduceAttrs, ctx: InferCtx) -> Type:
        """int64, the shape without the axis; an empty row has no answer, which is checked at run time."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", NUMERIC)
        axes = tuple(range(x.rank)) if attrs.axis is None else (ctx.axis(attrs.axis, x.rank),)
        if axes and not x.rank:
            ctx.fail("axis must be None for a scalar", code="axis-range")
        ctx.require_at_least(1, Rows(x.shape, axes).count, "the searched axes hold no element")
        return TensorType(reduced_shape(x.shape, axes, attrs.keepdims), "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: ArgReduceAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Find the extremum of rows, then the extreme place among those that equal it."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, "int64")
        rank = args[0].rank
        rows = Rows(x.shape, tuple(range(rank)) if attrs.axis is None else (attrs.axis % rank,))
        find_places(f, x, y, rows, self.extremum, attrs.select_last_index)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ArgReduceAttrs) -> Array:
        """np.argmax or np.argmin, of the reversed rows for the last index."""
        x, axis = args[0], attrs.axis
        find = np.argmax if self.extremum is Combine.MAX else np.argmin
        if axis is None:
            flat = x.reshape(-1)
            place = flat.size - 1 - find(flat[::-1]) if attrs.select_last_index else find(flat)
            return np.asarray(place).reshape((1,) * x.ndim if attrs.keepdims else ())
        places = np.asarray(
            x.shape[axis] - 1 - find(np.flip(x, axis), axis) if attrs.select_last_index else find(x, axis)
        )
        return np.expand_dims(places, axis) if attrs.keepdims else places


def find_places(f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, extremum: Combine, last: bool) -> None:
    """Emit the place (row-major within the row) of each row's extremum into the int64 buffer ``y``.

    NaN counts as the extremum, as in NumPy: the first one (or the last) wins.
    """
    best = f.temp("best", rows.outer, load_wide(x, (const(0),) * len(x.shape)).dtype)
    f.reduce(best, rows.inner, extremum, lambda *i: load_wide(x, rows.full(i)))
    row = kept_of(rows, y)
    n = len(y.shape)
    never = const(-1 if last else np.iinfo(np.int64).max)

    def place(*i: Expr) -> Expr:
        at = row(i[:n])
        found = alike(load_wide(x, rows.full((*at, *i[n:]))), best[at])
        return select(found, ravel(i[n:], rows.inner), never)

    start: Const = never
    f.reduce(y, rows.inner, Combine.MAX if last else Combine.MIN, place, init=start)


class ArgMax(ArgReduce):
    """Place of the largest element, int64; the first of equals, or the last with ``select_last_index``.

    A NaN counts as the largest, as in NumPy. Searching no elements fails: at inference where it is certain, else at
    run time. TVM: relax.argmax, ONNX: ArgMax.
    """

    name = "argmax"
    extremum = Combine.MAX


class ArgMin(ArgReduce):
    """Place of the smallest element, int64; the first of equals, or the last with ``select_last_index``.

    A NaN counts as the smallest, as in NumPy. Searching no elements fails: at inference where it is certain, else at
    run time. TVM: relax.argmin, ONNX: ArgMin.
    """

    name = "argmin"
    extremum = Combine.MIN


ARG_REDUCE: Final = (
    ArgMax(),
    ArgMin(),
)
