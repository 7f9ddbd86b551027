"""Scalar expressions of tensor programs: constants, variables, sizes, loads, arithmetic, intrinsics.

Every node is frozen and knows its dtype. Scheduled programs use the same scalar nodes: a loop of kind ``VECTOR``
is what makes the backend emit vectors, so the meaning of an expression never depends on the schedule.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.sym import DimLike, normalize, to_text

if TYPE_CHECKING:
    from relaxir.tir.buffer import Buffer

ExprLike: TypeAlias = "Expr | int | float | bool | DimLike"


class BinOp(enum.Enum):
    """Binary operators; comparisons give ``bool``, everything else the dtype of its operands (which must agree)."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"  # floats only
    FLOORDIV = "//"  # rounds to minus infinity; a zero divisor must be excluded by an Assert before
    MOD = "%"  # sign of the divisor
    TRUNCDIV = "truncdiv"  # rounds to zero (C, ONNX integer Div)
    TRUNCMOD = "truncmod"  # sign of the dividend (C fmod)
    POW = "pow"
    MIN = "min"  # NaN of either side wins
    MAX = "max"
    AND = "&"  # bitwise on integers, logical on bool
    OR = "|"
    XOR = "^"
    SHL = "<<"
    SHR = ">>"  # arithmetic on signed, logical on unsigned
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    ATAN2 = "atan2"
    DOT4 = "dot4"  # int32 words of four bytes: the sum of unsigned bytes of a times signed bytes of b, exact


COMPARISONS: Final = frozenset({BinOp.EQ, BinOp.NE, BinOp.LT, BinOp.LE, BinOp.GT, BinOp.GE})


class Intrinsic(enum.Enum):
    """Functions of one scalar, NumPy's meaning; the result has the operand's dtype unless stated."""

    NEG = "neg"
    ABS = "abs"
    NOT = "not"  # logical on bool, bitwise on integers
    SIGN = "sign"
    EXP = "exp"
    EXP_NONPOSITIVE = "exp_nonpositive"  # e^x for x that is above 0 by rounding at most: a row less its maximum
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    LOG2 = "log2"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    NORMAL_CDF = "normal_cdf"  # (1 + erf(x / sqrt 2)) / 2, the distribution function of the standard normal
    SIGMOID = "sigmoid"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"  # ties to even
    TRUNC = "trunc"
    ISNAN = "isnan"  # -> bool
    ISINF = "isinf"  # -> bool


BOOL_INTRINSICS: Final = frozenset({Intrinsic.ISNAN, Intrinsic.ISINF})


class Expr:
    """A scalar value; arithmetic operators build trees, ``==`` compares structure (use `eq` for the operation)."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return binary(BinOp.ADD, self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary(BinOp.ADD, other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary(BinOp.SUB, self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary(BinOp.SUB, other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary(BinOp.MUL, self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary(BinOp.MUL, other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary(BinOp.DIV, self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary(BinOp.DIV, other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary(BinOp.FLOORDIV, self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary(BinOp.MOD, self, other)

    def __neg__(self) -> Expr:
        return call(Intrinsic.NEG, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary(BinOp.LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary(BinOp.LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary(BinOp.GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary(BinOp.GE, self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return binary(BinOp.AND, self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return binary(BinOp.OR, self, other)


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal. Equality is by bits, so NaN equals itself and -0.0 differs from 0.0."""

    value: int | float | bool = field(compare=False)
    dtype: str
    bits: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exact = self.value.hex() if isinstance(self.value, float) else str(int(self.value))
        object.__setattr__(self, "bits", exact)


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A loop, block-axis or let variable; identity is the object, the name is a hint for printing."""

    name: str
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class Size(Expr):
    """An int64 that is a symbolic dimension expression (the bridge from `sym` to tensor programs)."""

    expr: DimLike
    dtype: str = field(default="int64", init=False)

    def __str__(self) -> str:
        return to_text(self.expr)


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """One element of a buffer; indices are int64, in range by the program's own guards."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.buffer.dtype)
        if len(self.indices) != len(self.buffer.shape):
            raise ValueError(
                f"buffer `{self.buffer.name}` has rank {len(self.buffer.shape)}, got {len(self.indices)} indices"
            )


@dataclass(frozen=True, slots=True)
class Word(Load):
    """Four neighbours along the last axis of an 8-bit buffer as one int32, the element at ``indices`` lowest.

    All four are in range by the program's own guards. It is how schedules feed `BinOp.DOT4`.
    """

    def __post_init__(self) -> None:
        Load.__post_init__(self)
        if self.buffer.dtype not in ("int8", "uint8") or not self.indices:
            raise ValueError(f"buffer `{self.buffer.name}` of {self.buffer.dtype} is not read by words")
        object.__setattr__(self, "dtype", "int32")


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """``a op b``; both operands have the same dtype."""

    op: BinOp
    a: Expr
    b: Expr
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        if self.a.dtype != self.b.dtype:
            raise ValueError(f"`{self.op.value}` of {self.a.dtype} and {self.b.dtype}: cast one side")
        if self.op is BinOp.DOT4 and self.a.dtype != "int32":
            raise ValueError(f"`{self.op.value}` of {self.a.dtype}: it takes words of int32")
        object.__setattr__(self, "dtype", "bool" if self.op in COMPARISONS else self.a.dtype)


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """An intrinsic applied to one scalar."""

    fn: Intrinsic
    arg: Expr
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", "bool" if self.fn in BOOL_INTRINSICS else self.arg.dtype)


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """Conversion as NumPy's ``astype``; float to integer truncates and saturates, NaN gives 0; to bool: ``!= 0``."""

    value: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Bits(Expr):
    """The bits of a stored value read as another dtype of the same size; to bool: ``!= 0``."""

    value: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """``then if cond else other``; *lazy*: loads in the branch not taken are not performed (guards bad indices)."""

    cond: Expr
    then: Expr
    other: Expr
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        if self.then.dtype != self.other.dtype:
            raise ValueError(f"select of {self.then.dtype} and {self.other.dtype}: cast one side")
        object.__setattr__(self, "dtype", self.then.dtype)


@dataclass(frozen=True, slots=True)
class Bcast(Expr):
    """Index into an axis that may be 1 at run time: ``0 if extent == 1 else index``."""

    index: Expr
    extent: DimLike
    dtype: str = field(default="int64", init=False)


def const(value: int | float | bool, dtype: str = "int64") -> Const:
    """Literal of the given dtype; integers are wrapped into the dtype's range, floats rounded to it."""
    name = canonical_dtype(dtype)
    if name == "bool":
        return Const(bool(value), name)
    if name.startswith(("int", "uint")):
        return Const(int(np.array(value).astype(name)), name)
    if name in ("float32", "float16"):
        with np.errstate(over="ignore"):  # what is beyond the type is infinite
            return Const(float(np.dtype(name).type(value)), name)
    return Const(float(value), name)


def as_expr(value: ExprLike, dtype: str = "int64") -> Expr:
    """Convert a Python number or a dimension to an expression; numbers take ``dtype``."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float | np.generic):
        return const(value.item() if isinstance(value, np.generic) else value, dtype)
    dim = normalize(value)
    size: Expr = const(dim) if isinstance(dim, int) else Size(dim)
    return size if dtype == "int64" else Cast(size, dtype)


def _fold(op: BinOp, a: Const, b: Const) -> Const | None:
    """Fold int64 index arithmetic only: float folding must not differ from the run-time result."""
    x, y = int(a.value), int(b.value)
    if op is BinOp.ADD:
        return const(x + y)
    if op is BinOp.SUB:
        return const(x - y)
    if op is BinOp.MUL:
        return const(x * y)
    if op is BinOp.FLOORDIV and y:
        return const(x // y)
    if op is BinOp.MOD and y:
        return const(x % y)
    return None


def binary(op: BinOp, a: ExprLike, b: ExprLike) -> Expr:
    """Build ``a op b``; Python numbers take the other side's dtype; int64 constants and neutral elements fold."""
    left = as_expr(a, b.dtype if isinstance(b, Expr) else "int64")
    right = as_expr(b, left.dtype)
    if left.dtype == right.dtype == "int64":
        if isinstance(left, Const) and isinstance(right, Const):
            folded = _fold(op, left, right)
            if folded is not None:
                return folded
        if isinstance(right, Const) and (
            (right.value == 0 and op in (BinOp.ADD, BinOp.SUB))
            or (right.value == 1 and op in (BinOp.MUL, BinOp.FLOORDIV))
        ):
            return left
        if isinstance(left, Const) and ((left.value == 0 and op is BinOp.ADD) or (left.value == 1 and op is BinOp.MUL)):
            return right
    return Binary(op, left, right)


def call(fn: Intrinsic, arg: ExprLike) -> Expr:
    """Apply an intrinsic."""
    return Call(fn, as_expr(arg))


def cast(value: Expr, dtype: str) -> Expr:
    """Convert to ``dtype``; no node where nothing changes."""
    name = canonical_dtype(dtype)
    return value if value.dtype == name else Cast(value, name)


def select(cond: Expr, then: ExprLike, other: ExprLike) -> Expr:
    """``then if cond else other``, lazily; Python numbers take the other branch's dtype."""
    first = as_expr(then, other.dtype if isinstance(other, Expr) else "int64")
    return Select(cond, first, as_expr(other, first.dtype))


def eq(a: ExprLike, b: ExprLike) -> Expr:
    """``a == b`` as an operation (the Python operator compares structure)."""
    return binary(BinOp.EQ, a, b)


def ne(a: ExprLike, b: ExprLike) -> Expr:
    """``a != b`` as an operation."""
    return binary(BinOp.NE, a, b)


def alike(a: Expr, b: Expr) -> Expr:
    """Whether two numbers are equal, or both NaN."""
    if not a.dtype.startswith(("float", "bfloat")):
        return eq(a, b)
    nan = binary(BinOp.AND, call(Intrinsic.ISNAN, a), call(Intrinsic.ISNAN, b))
    return binary(BinOp.OR, eq(a, b), nan)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """Smaller of two; NaN of either side wins."""
    return binary(BinOp.MIN, a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """Larger of two; NaN of either side wins."""
    return binary(BinOp.MAX, a, b)


def bcast(index: Expr, extent: DimLike) -> Expr:
    """Index for a broadcast axis: 0 for extent 1, ``index`` for another constant, `Bcast` for a symbol."""
    if isinstance(extent, int):
        return const(0) if extent == 1 else index
    return Bcast(index, extent)
