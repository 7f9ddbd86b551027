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
            total, pivot, kept = cell("total", wide), cell("pivot"), cell("kept", wide)

            def size(row: Expr, k: Expr) -> Expr:
                return call(Intrinsic.ABS, work[(*b, row, k)])

            def step(k: Expr) -> Stmt:
                rest = as_expr(n) - k - 1
                search = loop(
                    "r", rest, lambda r: when(size(k + 1 + r, k) > size(pivot[()], k), assign(pivot, k + 1 + r))
                )
                swap = loop(
                    "c",
                    as_expr(n),
                    lambda c: seq(
                        assign(kept, work[(*b, k, c)]),
                        Store(work, (*b, k, c), work[(*b, pivot[()], c)]),
                        Store(work, (*b, pivot[()], c), kept[()]),
                    ),
                )
                head = work[(*b, k, k)]
                eliminate = loop(
                    "e",
                    rest,
                    lambda e: let(
                        "factor",
                        select(eq(head, 0.0), const(0, wide), work[(*b, k + 1 + e, k)] / head),
                        lambda factor: nest(
                            "j",
                            (as_expr(n) - k,),
                            lambda j: Store(
                                work,
                                (*b, k + 1 + e, k + j),
                                work[(*b, k + 1 + e, k + j)] - factor * work[(*b, k, k + j)],
                            ),
                        ),
                    ),
                )
                flip = when(ne(pivot[()], k), swap, assign(total, call(Intrinsic.NEG, total[()])))
                return seq(assign(pivot, k), search, flip, assign(total, total[()] * head), eliminate)

            done = Store(y, b, cast(total[()], y.dtype))
            return scoped((total, pivot, kept), assign(total, 1.0), loop("k", as_expr(n), step), done)

        f.block("det", y.shape, body)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.linalg.det in double."""
        return np.asarray(np.linalg.det(widen(args[0]).astype(np.float64))).astype(args[0].dtype)


LINALG: Final = (Det(),)
