"""What names mean while a function is written, and what the body of a parallel loop takes from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_integer import divide
from relaxir.backends.llvm.emit_linear import Linear
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.emit_writer import ModuleText, Writer
from relaxir.support.errors import InternalError
from relaxir.sym import Dim, DimLike, fold
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import BinOp, Expr, Load, Var
from relaxir.tir.visit import walk_expr


@dataclass(frozen=True, slots=True)
class Bound:
    """The meaning of a variable: ``value + offset``, plus the lane number if ``lane``."""

    value: Value
    offset: int = 0
    lane: bool = False


@dataclass(slots=True)
class Lane:
    """The vector loop being written."""

    width: int
    mask: Value | None = None
    """Lanes that take part; None: all."""
    guarded: bool = False
    """The mask may be empty (it comes from a condition, not from the tail alone)."""
    private: set[Buffer] = field(default_factory=set)
    """Buffers that every lane has for itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A stack slot that holds a reduction's running value while a loop runs."""

    pointer: Value
    width: int


class Env:
    """Names in scope and their values."""

    def __init__(self, module: ModuleText, sites: SiteTable, parent: Env | None = None) -> None:
        self.module = module
        self.target = module.target
        self.sites = sites
        self.w = Writer(module)
        self.parent = parent
        self.vars: dict[Var, Bound] = {}
        self.dims: dict[Dim, Value] = {}
        self.bases: dict[Buffer, Value] = {}
        self.workspace: Value | None = None
        self.lane: Lane | None = None
        self.ones: dict[DimLike, bool] = {}
        self.cells: dict[int, Cell] = {}
        self.captured: dict[str, tuple[int, Value, Value]] = {}
        self.capture_base = Value("%arg", "ptr")
        self.streamed: frozenset[Buffer] = frozenset() if parent is None else parent.streamed
        """Results whose stores go past the caches in the code being written."""
        self.multiples: dict[str, int] = {}
        """Numbers of which loop indices are multiples, by their SSA names."""
        self.epoch = 0
        """Rises with every change of what names mean."""
        self.opaque: dict[int, tuple[int, Expr]] = {}
        """Numbers of lane-dependent index expressions; the expressions are held so that identities stay unique."""

    # ---- lookup

    def bound(self, var: Var) -> Bound:
        """Return what a variable means."""
        if var in self.vars:
            return self.vars[var]
        if self.parent is None:
            raise InternalError(f"variable `{var.name}` is used where nothing defines it")
        outer = self.parent.bound(var)
        return Bound(self.capture(outer.value), outer.offset)

    def dim_symbol(self, dim: Dim) -> Value:
        """Return the value of a dimension."""
        if dim in self.dims:
            return self.dims[dim]
        if self.parent is None:
            raise InternalError(f"dimension `{dim.name}` is used where nothing defines it")
        return self.capture(self.parent.dim_symbol(dim))

    def base(self, buffer: Buffer) -> Value:
        """Return the address of a buffer's first element."""
        if buffer in self.bases:
            return self.bases[buffer]
        if self.parent is None:
            raise InternalError(f"buffer `{buffer.name}` is used where nothing allocates it")
        return self.capture(self.parent.base(buffer))

    def ws(self) -> Value:
        """Return the address of the call's workspace."""
        if self.workspace is not None:
            return self.workspace
        if self.parent is None:
            raise InternalError("a program without a workspace")
        return self.capture(self.parent.ws())

    def fixed_one(self, extent: DimLike) -> bool | None:
        """Return whether the code being written is the version where ``extent`` is 1, or is not 1; None: neither."""
        found = self.ones.get(extent)
        return self.parent.fixed_one(extent) if found is None and self.parent is not None else found

    def capture(self, value: Value) -> Value:
        """Return an outer function's value within this one, through a field of the argument record."""
        if not value.text.startswith("%"):
            return value
        if value.text not in self.captured:
            index = len(self.captured)
            field_ = self.w.pure(
                f"getelementptr i8, ptr {self.capture_base.text}, i64 {8 * index}", "ptr", 1, (self.capture_base,)
            )
            inner = self.w.pure(
                f"load {value.type}, ptr {field_.text}, align 8", value.type, 1, (field_,), nonneg=value.nonneg
            )
            self.captured[value.text] = (index, value, inner)
        return self.captured[value.text][2]

    # ---- definitions

    @contextmanager
    def bind(self, var: Var, bound: Bound) -> Iterator[None]:
        """Give a variable a meaning for a while."""
        before = self.vars.get(var)
        self.vars[var] = bound
        self.epoch += 1
        yield
        self.epoch += 1
        if before is None:
            del self.vars[var]
        else:
            self.vars[var] = before

    @contextmanager
    def bind_dim(self, dim: Dim, value: Value) -> Iterator[None]:
        """Give a dimension a value for a while."""
        before = self.dims.get(dim)
        self.dims[dim] = value
        self.epoch += 1
        yield
        self.epoch += 1
        if before is None:
            del self.dims[dim]
        else:
            self.dims[dim] = before

    @contextmanager
    def in_lane(self, lane: Lane | None) -> Iterator[None]:
        """Write for the lanes of a vector (None: scalars) for a while."""
        before, self.lane = self.lane, lane
        self.epoch += 1
        yield
        self.epoch += 1
        self.lane = before

    # ---- dimensions

    def dim_linear(self, expr: DimLike) -> Linear:
        """Return a dimension expression as a polynomial."""
        return fold(expr, lin.constant, lambda d: lin.of_value(self.dim_symbol(d)), self._dim_node)

    def dim(self, expr: DimLike) -> Value:
        """Return the value of a dimension expression (i64)."""
        return lin.scalar(self.w, self.dim_linear(expr))

    def _dim_node(self, label: str, args: Sequence[Linear]) -> Linear:
        total = args[0]
        if label in ("add", "mul"):
            for arg in args[1:]:
                total = total + arg if label == "add" else total * arg
            return total
        values = [lin.scalar(self.w, a) for a in args]
        if label in ("floordiv", "mod", "ceildiv"):
            return self._dim_quotient(label, args, values)
        result = values[0]
        for value in values[1:]:
            if label == "broadcast":
                one = ops.binary(self.w, BinOp.EQ, "int64", result, int_value(1))
                result = instr.choose(self.w, one, value, result)
            else:
                result = ops.binary(self.w, BinOp(label), "int64", result, value)
        nonneg = all(v.nonneg for v in values)
        return lin.of_value(_nonneg(result) if nonneg else result)

    def _dim_quotient(self, label: str, args: Sequence[Linear], values: Sequence[Value]) -> Linear:
        a, b = values
        if label == "ceildiv":
            # -(-a // b) keeps the floor's exactness for any sign
            if b.number is not None and b.number > 0:
                exact = (args[0] + lin.constant(b.number - 1)).divided(b.number, 1)
                if exact is not None:
                    return exact
                raised = lin.scalar(self.w, args[0] + lin.constant(b.number - 1))
                return lin.of_value(divide(self.w, BinOp.FLOORDIV, "int64", _nonneg(raised) if a.nonneg else raised, b))
            negative = lin.scalar(self.w, lin.constant(0) - args[0])
            quotient = ops.binary(self.w, BinOp.FLOORDIV, "int64", negative, b)
            result = lin.scalar(self.w, lin.constant(0) - lin.of_value(quotient))
            return lin.of_value(_nonneg(result) if a.nonneg and b.nonneg else result)
        if label == "floordiv" and b.number is not None and b.number > 0:
            exact = args[0].divided(b.number, 1)
            if exact is not None:
                return exact
        what = BinOp.FLOORDIV if label == "floordiv" else BinOp.MOD
        return lin.of_value(ops.binary(self.w, what, "int64", a, b))

    # ---- lanes

    def varies(self, expr: Expr) -> bool:
        """Whether lanes of the vector being written may see different values: absent ones see 0 for what is loaded."""
        if self.lane is None:
            return False
        for e in walk_expr(expr):
            if isinstance(e, Var):
                bound = self.bound(e)
                if bound.lane or bound.value.width > 1:
                    return True
            elif isinstance(e, Load) and (self.lane.guarded or e.buffer in self.lane.private):
                return True
        return False


def _nonneg(value: Value) -> Value:
    return Value(value.text, value.type, value.width, value.level, value.number, True)
