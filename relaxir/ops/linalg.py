"""Linear algebra beyond products."""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, compute_dtype, load_wide, widen
from relaxir.ops.kernels import assign, cell, input_of, let, loop, nest, output_of, scoped, seq, when
from relaxir.tir import (
    Buffer,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Stmt,
    Store,
    as_expr,
    call,
    cast,
    const,
    eq,
    ne,
    select,
)


class Det(Op[Attrs]):
    """Determinant of the last two axes.

    Gaussian elimination with partial pivoting, in float32 or wider. 1 for an empty matrix; 0 where no pivot is left.
    TVM: none, ONNX: Det.
    """

    name = "det"
    params = (Param("x", "(..., n, n)", FLOATS),)
    examples = (
        Example(("f32[b, 3, 3]",), "f32[b]", rtol=1e-4, atol=1e-4),
        Example(("f64[2, n, n]",), "f64[2]", sizes={"n": 5}, rtol=1e-8),
        Example(("f64[0, 0]",), "f64[]"),
        Example(("f32[3, 3]",), "f32[]", values=(((0, 1, 2), (3, 4, 5), (6, 7, 8.5)),), rtol=1e-4),
        Example(("f64[2, 2]",), "f64[]", values=(((0, 0), (1, 1)),)),
    )
    bad_examples = (
        BadExample(("f32[2, 3]",), "shape-mismatch", "last two axes"),
        BadExample(("f32[2]",), "rank-mismatch", "x has rank 1"),
        BadExample(("i32[2, 2]",), "dtype-mismatch", "x must be one of"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """Shape without the last two axes."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        if x.rank < 2:
            ctx.fail(f"x has rank {x.rank}, expected at least 2", code="rank-mismatch")
        ctx.require_equal(x.shape[-2], x.shape[-1], "last two axes of x")
        return TensorType(x.shape[:-2], x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Copy, then eliminate in place, one matrix per point."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        wide, n = compute_dtype(y.dtype), args[0].shape[-1]
        work = f.temp("work", x.shape, wide)
        f.compute(work, lambda *i: load_wide(x, i))

        def body(*b: Expr) -> Stmt:
            matrix = _Matrix(work, b, as_expr(n))
            done = Store(y, b, cast(matrix.total[()], y.dtype))
            return scoped(matrix.cells, assign(matrix.total, 1.0), loop("k", as_expr(n), matrix.step), done)

        f.block("det", y.shape, body)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.linalg.det in double."""
        return np.asarray(np.linalg.det(widen(args[0]).astype(np.float64))).astype(args[0].dtype)


class _Matrix:
    """Elimination with row pivots in one of the matrices of ``work``: statements that a serial loop is made of.

    ``total`` is the product of the pivots so far, negated for every exchange of rows.
    """

    def __init__(self, work: Buffer, point: tuple[Expr, ...], n: Expr) -> None:
        self.work, self.point, self.n = work, point, n
        self.total, self.pivot, self.kept = cell("total", work.dtype), cell("pivot"), cell("kept", work.dtype)

    @property
    def cells(self) -> tuple[Buffer, ...]:
        """What the statements keep between them."""
        return self.total, self.pivot, self.kept

    def at(self, row: Expr, column: Expr) -> Expr:
        """An element."""
        return self.work[(*self.point, row, column)]

    def put(self, row: Expr, column: Expr, value: Expr) -> Stmt:
        """Replace an element."""
        return Store(self.work, (*self.point, row, column), value)

    def step(self, k: Expr) -> Stmt:
        """Bring the largest element of column ``k`` to the diagonal, then make those below it 0."""
        rest, head, pivot = self.n - k - 1, self.at(k, k), self.pivot[()]
        search = loop("r", rest, lambda r: self.search(k, k + 1 + r))
        swap = loop("c", self.n, lambda c: self.swap(k, c))
        flip = when(ne(pivot, k), swap, assign(self.total, call(Intrinsic.NEG, self.total[()])))
        eliminate = loop("e", rest, lambda e: self.eliminate(k, k + 1 + e))
        return seq(assign(self.pivot, k), search, flip, assign(self.total, self.total[()] * head), eliminate)

    def search(self, k: Expr, row: Expr) -> Stmt:
        """Note a row with a larger element in column ``k``."""
        larger = call(Intrinsic.ABS, self.at(row, k)) > call(Intrinsic.ABS, self.at(self.pivot[()], k))
        return when(larger, assign(self.pivot, row))

    def swap(self, k: Expr, column: Expr) -> Stmt:
        """Exchange an element of row ``k`` with that of the pivot's row."""
        pivot = self.pivot[()]
        return seq(
            assign(self.kept, self.at(k, column)),
            self.put(k, column, self.at(pivot, column)),
            self.put(pivot, column, self.kept[()]),
        )

    def eliminate(self, k: Expr, row: Expr) -> Stmt:
        """Subtract the multiple of row ``k`` that makes the first element 0; a column of zeros stays."""
        head = self.at(k, k)
        ratio = select(eq(head, 0.0), const(0, self.work.dtype), self.at(row, k) / head)

        def subtract(factor: Expr, j: Expr) -> Stmt:
            return self.put(row, k + j, self.at(row, k + j) - factor * self.at(k, k + j))

        return let("factor", ratio, lambda factor: nest("j", (self.n - k,), lambda j: subtract(factor, j)))


LINALG: Final = (Det(),)
