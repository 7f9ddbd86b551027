"""Builder of tensor programs in block form: what operators use to state their loops.

>>> f = ProgramBuilder("scale")                                     # doctest: +SKIP
>>> x = f.input("x", (n, 4), "float32"); y = f.output("y", (n, 4), "float32")
>>> f.compute(y, lambda i, j: x[i, j] * 2.0)
>>> func = f.build()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from relaxir.sym import Dim, DimLike, normalize
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.expr import Const, Expr, Var, as_expr, const
from relaxir.tir.func import AttrValue, PrimFunc
from relaxir.tir.stmt import Alloc, Axis, AxisKind, Block, Combine, Seq, Stmt, Store
from relaxir.tir.visit import free_dims_of

INTEGER_LIMITS = MappingProxyType(
    {
        f"{'u' if u else ''}int{b}": (0 if u else -(2 ** (b - 1)), 2**b - 1 if u else 2 ** (b - 1) - 1)
        for u in (False, True)
        for b in (8, 16, 32, 64)
    }
)


def identity(combine: Combine, dtype: str) -> Const:
    """Neutral element of a reduction: what an empty reduction gives."""
    low, high = INTEGER_LIMITS.get(dtype, (float("-inf"), float("inf")))
    values: dict[Combine, int | float | bool] = {
        Combine.SUM: 0,
        Combine.PROD: 1,
        Combine.MAX: low,
        Combine.MIN: high,
        Combine.AND: True,
        Combine.OR: False,
    }
    if dtype == "bool" and combine in (Combine.MAX, Combine.MIN):
        return const(combine is Combine.MIN, dtype)
    return const(values[combine], dtype)


class ProgramBuilder:
    """Collects parameters, temporaries and stages, then builds the `PrimFunc`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: tuple[Buffer, ...] = ()
        self._outputs: tuple[Buffer, ...] = ()
        self._temps: tuple[Buffer, ...] = ()
        self._stmts: tuple[Stmt, ...] = ()

    def input(self, name: str, shape: Sequence[DimLike], dtype: str) -> Buffer:
        """Declare an input parameter."""
        buffer = Buffer(name, tuple(shape), dtype)
        self._inputs += (buffer,)
        return buffer

    def output(self, name: str, shape: Sequence[DimLike], dtype: str) -> Buffer:
        """Declare a result parameter."""
        buffer = Buffer(name, tuple(shape), dtype)
        self._outputs += (buffer,)
        return buffer

    def temp(self, name: str, shape: Sequence[DimLike], dtype: str) -> Buffer:
        """Declare a temporary alive for the whole program."""
        buffer = Buffer(name, tuple(shape), dtype, Scope.GLOBAL)
        self._temps += (buffer,)
        return buffer

    def compute(self, out: Buffer, fn: Callable[..., Expr], name: str = "") -> None:
        """Stage ``out[i...] = fn(i...)`` over the whole of ``out``."""
        axes = self._axes(out.shape, AxisKind.SPATIAL, "i")
        spatial = tuple(a.var for a in axes)
        self.emit(Block(name or out.name, axes, Store(out, spatial, as_expr(fn(*spatial), out.dtype))))

    def reduce(
        self,
        out: Buffer,
        extents: Sequence[DimLike],
        combine: Combine,
        fn: Callable[..., Expr],
        name: str = "",
        init: Expr | None = None,
    ) -> None:
        """Stage ``out[i...] = combine over r... of fn(i..., r...)``, from ``init`` or the reduction's identity."""
        axes = self._axes(out.shape, AxisKind.SPATIAL, "i")
        over = self._axes(tuple(extents), AxisKind.REDUCE, "k")
        spatial = tuple(a.var for a in axes)
        value = as_expr(fn(*spatial, *(a.var for a in over)), out.dtype)
        start = Store(out, spatial, identity(combine, out.dtype) if init is None else init)
        self.emit(Block(name or out.name, axes + over, Store(out, spatial, value, combine), start))

    def block(self, name: str, extents: Sequence[DimLike], body: Callable[..., Stmt]) -> None:
        """Stage with a hand-written body over a spatial domain: ``body(i...)`` gives the statement of one point."""
        axes = self._axes(tuple(extents), AxisKind.SPATIAL, "i")
        self.emit(Block(name, axes, body(*(a.var for a in axes))))

    def emit(self, stmt: Stmt) -> None:
        """Append any statement."""
        self._stmts += (stmt,)

    def build(self, dims: Sequence[Dim] | None = None, **attrs: AttrValue) -> PrimFunc:
        """The program; ``dims`` defaults to the symbols used, sorted by name."""
        body: Stmt = self._stmts[0] if len(self._stmts) == 1 else Seq(self._stmts)
        for buffer in reversed(self._temps):
            body = Alloc(buffer, body)
        params = self._inputs + self._outputs
        used = free_dims_of(params, body) if dims is None else tuple(dims)
        return PrimFunc(params, body, used, len(self._outputs), 0, MappingProxyType(dict(attrs, name=self.name)))

    @staticmethod
    def _axes(extents: Sequence[DimLike], kind: AxisKind, stem: str) -> tuple[Axis, ...]:
        return tuple(Axis(Var(f"{stem}{n}"), normalize(e), kind) for n, e in enumerate(extents))
