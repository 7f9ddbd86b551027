"""Index expressions of tensor programs as polynomials, and polynomials as values: scalars, or one per lane."""

from __future__ import annotations

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_env import Env
from relaxir.backends.llvm.emit_linear import LANE, Atom, Linear
from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.support.errors import InternalError
from relaxir.tir.expr import Bcast, Binary, BinOp, Call, Const, Expr, Intrinsic, Size, Var


class Indices(Env):
    """Writes indices."""

    def eval(self, expr: Expr) -> Value:
        """Write an expression of any kind."""
        raise NotImplementedError

    def number(self, expr: Expr) -> int | None:
        """Return the value of an int64 expression that is constant here."""
        return self.linear(expr).number

    def index(self, linear: Linear) -> Value:
        """Write a polynomial as an i64, or one per lane."""
        if not linear.lane_terms():
            return lin.scalar(self.w, linear)
        width = self._width()
        uniform = lin.scalar(self.w, linear.uniform())
        if linear.lane_terms() == {(LANE,): 1} and uniform.number is not None:
            return lin.iota(width, uniform.number)
        varying = lin.vector(self.w, linear, width)
        if uniform.number == 0:
            return varying
        base = self.w.splat(uniform, width)
        return self.w.pure(
            f"add nsw {base.typed}, {varying.text}", "i64", width, (base, varying), nonneg=uniform.nonneg
        )

    def _width(self) -> int:
        if self.lane is None:
            raise InternalError("a lane-dependent index outside a vector loop")
        return self.lane.width

    def linear(self, expr: Expr) -> Linear:
        """Return an int64 expression as a polynomial."""
        if isinstance(expr, Const):
            return lin.constant(int(expr.value))
        if isinstance(expr, Size):
            return self.dim_linear(expr.expr)
        if isinstance(expr, Var):
            bound = self.bound(expr)
            if bound.value.width > 1:
                return lin.of_atom(Atom(bound.value.text, make=lambda: bound.value))
            base = lin.of_value(bound.value, bound.offset)
            return base + lin.LANES if bound.lane else base
        if isinstance(expr, Binary):
            if expr.op in (BinOp.ADD, BinOp.SUB):
                a, b = self.linear(expr.a), self.linear(expr.b)
                return a + b if expr.op is BinOp.ADD else a - b
            if expr.op is BinOp.MUL:
                return self.linear(expr.a) * self.linear(expr.b)
            if expr.op in (BinOp.FLOORDIV, BinOp.MOD):
                return self._quotient(expr)
        if isinstance(expr, Call) and expr.fn is Intrinsic.NEG:
            return lin.constant(0) - self.linear(expr.arg)
        if isinstance(expr, Bcast):
            return self._bcast(expr)
        if not self.varies(expr):
            return lin.of_value(self.eval(expr))
        # numbered by first use: names order the terms, and the text must not depend on addresses
        number = self.opaque.setdefault(id(expr), (len(self.opaque), expr))[0]
        return lin.of_atom(Atom(f"$e{number}", make=lambda: self.eval(expr)))

    def _quotient(self, expr: Binary) -> Linear:
        a, b = self.linear(expr.a), self.linear(expr.b)
        width = 1 if self.lane is None else self.lane.width
        if b.number is not None and b.number > 0:
            quotient = a.divided(b.number, width)
            if quotient is not None:
                return quotient if expr.op is BinOp.FLOORDIV else a - lin.constant(b.number) * quotient
        if not a.lane_terms() and not b.lane_terms():
            x, y = lin.scalar(self.w, a), lin.scalar(self.w, b)
            return lin.of_value(ops.binary(self.w, expr.op, "int64", x, y))

        def make() -> Value:
            x, y = self._same_width(self.index(a), self.index(b))
            return ops.binary(self.w, BinOp.FLOORDIV, "int64", x, y)

        # x % y is written x - y * (x // y), so that y * (x // y) + x % y gives x again
        atom = lin.of_atom(Atom(f"$q({a.key()})/({b.key()})", make=make))
        return atom if expr.op is BinOp.FLOORDIV else a - b * atom

    def _bcast(self, expr: Bcast) -> Linear:
        extent = self.dim_linear(expr.extent)
        index = self.linear(expr.index)
        if extent.number is not None:
            return lin.constant(0) if extent.number == 1 else index
        fixed = self.fixed_one(expr.extent)
        if fixed is not None:
            return lin.constant(0) if fixed else index
        single = ops.binary(self.w, BinOp.EQ, "int64", lin.scalar(self.w, extent), int_value(1))
        if not index.lane_terms():
            return lin.of_value(instr.choose(self.w, single, int_value(0), lin.scalar(self.w, index)))

        def make() -> Value:
            value = self.index(index)
            return instr.choose(self.w, single, self.w.splat(int_value(0), value.width), value)

        return lin.of_atom(Atom(f"$b({index.key()}):{single.text}", make=make))

    def _same_width(self, *values: Value) -> tuple[Value, ...]:
        width = max(v.width for v in values)
        return values if width == 1 else tuple(self.w.splat(v, width) for v in values)
