"""The abstract operator: meaning, typing, loops and reference of one graph operation in one class."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn

import numpy as np

from relaxir.ir.attrs import A, Attrs, attr_dims
from relaxir.ir.expr import Array, Check, Expr
from relaxir.ir.types import TensorType, TupleType, Type, describe, type_dims
from relaxir.support.bfloat16 import bfloat16_to_float32, float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.support.errors import InferError, ShapeMismatchError, ShapeUnprovenError, SymError
from relaxir.support.spans import Span
from relaxir.sym import (
    Dim,
    DimLike,
    Facts,
    Proof,
    Relation,
    conditions,
    free_dims,
    fresh,
    max_,
    min_,
    mod,
    mul,
    sub,
    to_text,
)
from relaxir.tir import PrimFunc

if TYPE_CHECKING:
    from relaxir.ir.builder import BlockBuilder


class OpKind(enum.Enum):
    """What fusion may do with an operator's loops (analysis of the tensor program decides in the end)."""

    ELEMENTWISE = "elementwise"
    BROADCAST = "broadcast"
    INJECTIVE = "injective"
    REDUCE = "reduce"
    OUT_FUSABLE = "out_fusable"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Param:
    """One operand of an operator: name, one-line doc, accepted dtypes (empty: all), variadic only in last place."""

    name: str
    doc: str = ""
    dtypes: tuple[str, ...] = ()
    variadic: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """A correct use: operand types as text (``f32[n, 4]``) and the expected result type.

    ``values`` replaces random operands by literals (None: random); random floats and ints are drawn from
    ``low``..``high``. ``sizes`` pins symbols whose value is not free (conv needs room for its kernel, ...).
    """

    args: tuple[str, ...]
    out: str | tuple[str, ...]
    attrs: Attrs = field(default_factory=Attrs)
    values: tuple[object, ...] = ()
    low: float = -2.0
    high: float = 2.0
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    min_size: int = 0  # every free symbol is at least this
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class BadExample:
    """A wrong use: operand types, the error's code and a phrase of its message."""

    args: tuple[str, ...]
    code: str
    phrase: str
    attrs: Attrs = field(default_factory=Attrs)


MAX_VALUES = 4  # values that one run-time message can show
LONG = 48  # characters beyond which a formula says less than its value


def brief(d: DimLike) -> str:
    """A dimension in a message: its formula, or what it is when the formula is long."""
    text = to_text(d)
    return text if len(text) <= LONG else "the computed size"


class InferCtx:
    """What inference may ask and leave behind: facts, fresh symbols, run-time checks.

    Unknown facts become entries of ``checks`` (emitted natively by `InsertChecks`), or a `ShapeUnprovenError` when
    ``strict``; refuted ones raise at once.
    """

    def __init__(
        self, op: str, facts: Facts, taken: Sequence[str] = (), span: Span | None = None, strict: bool = False
    ) -> None:
        self.op = op
        self.facts = facts
        self.span = span
        self.strict = strict
        self.checks: list[Check] = []
        self.defined: list[Dim] = []
        self._taken = set(taken) | {d.name for d in facts.dims}

    def fresh(self, stem: str, min: int = 0, max: int | None = None) -> Dim:  # the words of `sym.dim`
        """A new symbol owned by the binding being inferred."""
        symbol = fresh(stem, self._taken, min=min, max=max)
        self._taken.add(symbol.name)
        self.defined.append(symbol)
        return symbol

    def require_equal(self, a: DimLike, b: DimLike, what: str) -> None:
        """``a == b`` must hold; ``what`` says of which axes: ``axis 1 of the left and axis 0 of the right``."""
        verdict = self.facts.prove_equal(a, b)
        if verdict is Proof.REFUTED:
            raise ShapeMismatchError(f"{self.op}: {what}: `{to_text(a)}` is not `{to_text(b)}`", span=self.span)
        if verdict is Proof.UNKNOWN:
            self._check(Relation("==", a, b), f"{what}: {brief(a)} must equal {brief(b)}", (a, b))

    def require_le(self, a: DimLike, b: DimLike, what: str) -> None:
        """``a <= b`` must hold."""
        verdict = self.facts.prove_le(a, b)
        if verdict is Proof.REFUTED:
            raise ShapeMismatchError(f"{self.op}: {what}: `{to_text(a)}` exceeds `{to_text(b)}`", span=self.span)
        if verdict is Proof.UNKNOWN:
            self._check(Relation("<=", a, b), f"{what}: {brief(a)} must be at most {brief(b)}", (a, b))

    def require_at_least(self, low: int, d: DimLike, what: str) -> None:
        """``low <= d`` must hold; ``what`` names ``d``."""
        verdict = self.facts.prove_le(low, d)
        if verdict is Proof.REFUTED:
            raise ShapeMismatchError(f"{self.op}: {what}: must be at least {low}, got `{to_text(d)}`", span=self.span)
        if verdict is Proof.UNKNOWN:
            self._check(Relation("<=", low, d), f"{what}: {brief(d)} must be at least {low}", (low, d))

    def require_range(self, symbol: Dim, value: DimLike, what: str) -> None:
        """``value`` must be in the range that is declared of ``symbol``; ``what`` names it."""
        if symbol == value:
            return
        self.require_at_least(symbol.min, value, what)
        if symbol.max is not None:
            self.require_le(value, symbol.max, what)
        if symbol.multiple_of > 1:
            self.require_equal(mod(value, symbol.multiple_of), 0, f"{what} must be a multiple of {symbol.multiple_of}")

    def require_value(self, d: DimLike, what: str) -> None:
        """``d`` must have a value: what it broadcasts must broadcast, and no divisor of it may be 0."""
        if isinstance(d, int | Dim):
            return
        pairs, divisors = conditions(d)
        for a, b in pairs:
            self._merged(f"{what}, `{brief(d)}`", a, b)
        for divisor in divisors:
            low = self.facts.bounds(divisor)[0]
            size = divisor if low is not None and low >= 0 else max_(divisor, mul(-1, divisor))
            message = f"{what}, `{brief(d)}`: the divisor {brief(divisor)} must not be 0"
            if self.facts.prove_le(1, size) is Proof.REFUTED:
                raise ShapeMismatchError(f"{self.op}: {message}", span=self.span)
            self._check(Relation("<=", 1, size), message, (divisor,))

    def broadcast(self, shapes: Sequence[tuple[DimLike, ...]]) -> tuple[DimLike, ...]:
        """Shape of NumPy broadcasting; extents that may differ without one being 1 are checked at run time."""
        result: tuple[DimLike, ...] = ()
        for number, shape in enumerate(shapes):
            rank = max(len(result), len(shape))
            left, right = ((1,) * (rank - len(s)) + tuple(s) for s in (result, shape))
            pairs = enumerate(zip(left, right, strict=True))
            result = tuple(self._merged(f"axis {axis}", a, b, shapes) for axis, (a, b) in pairs) if number else shape
        return result

    def _merged(self, what: str, a: DimLike, b: DimLike, shapes: Sequence[tuple[DimLike, ...]] = ()) -> DimLike:
        """One extent of a broadcast of two; ``what`` names it."""
        answer = self.facts.broadcast(a, b)
        if answer.verdict is Proof.REFUTED:
            raise ShapeMismatchError(
                f"{self.op}: {what} is `{to_text(a)}` on the left and `{to_text(b)}` on the right",
                span=self.span,
                notes=tuple(f"operand {i}: ({', '.join(map(to_text, s))})" for i, s in enumerate(shapes)),
                help="use one symbolic dimension, or assert the equality with match_cast",
            )
        if answer.verdict is Proof.UNKNOWN:
            relation, text = self._broadcast_condition(a, b)
            self._check(relation, f"{what}: {text}", (a, b))
        return answer.dim

    def _broadcast_condition(self, a: DimLike, b: DimLike) -> tuple[Relation, str]:
        """What must hold for two extents to broadcast, and the same in words."""
        for x, y in ((a, b), (b, a)):
            high = None if isinstance(x, int) else self.facts.bounds(x)[1]
            if high is not None and high > 1 and self.facts.prove_equal(x, min_(y, high)) is Proof.PROVED:
                return Relation("<=", y, high), f"{to_text(y)} must be at most {high}"
        # equal, or one of them 1: the product of the three differences is 0
        product = mul(mul(sub(a, b), sub(a, 1)), sub(b, 1))
        return Relation("==", product, 0), f"{to_text(a)} and {to_text(b)} must be equal, or one of them 1"

    def _check(self, relation: Relation, message: str, args: tuple[DimLike, ...]) -> None:
        if any(c.relation == relation for c in self.checks) or self.facts.prove(relation) is Proof.PROVED:
            return
        if self.strict:
            raise ShapeUnprovenError(f"{self.op}: cannot prove that {message}", span=self.span)
        sides = tuple(dict.fromkeys(a for a in args if not isinstance(a, int)))
        symbols = (s for a in reversed(sides) for s in free_dims(a) if s not in sides)
        shown = tuple(dict.fromkeys((*sides, *symbols)))[:MAX_VALUES]
        got = ", ".join(f"{brief(d)} is {{}}" for d in shown)
        self.checks.append(Check(relation, "runtime-shape", f"{self.op}: {message}; {got}", shown, self.span))

    def fail(self, message: str, code: str = "infer", help: str = "") -> NoReturn:  # as in errors
        """Raise an `InferError` for this call."""
        raise InferError(f"{self.op}: {message}", code=code, span=self.span, help=help)

    def tensor(self, args: Sequence[Type], index: int, name: str = "") -> TensorType:
        """Operand ``index`` as a tensor type, or an error that names it."""
        if index >= len(args):
            self.fail(f"operand {index} {name} is missing".replace("  ", " "), code="arity")
        t = args[index]
        if not isinstance(t, TensorType):
            self.fail(f"operand {name or index} must be a tensor, got {describe(t)}", code="type-kind")
        return t

    def axis(self, axis: int, rank: int) -> int:
        """Normalise a possibly negative axis, or raise."""
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} is out of range for rank {rank}", code="axis-range")
        return axis % rank if rank else 0


class Op(Generic[A]):
    """One operator. Subclasses state everything about it; the table ``relaxir.ops.OPS`` lists them.

    The class docstring gives the maths, dtype and shape rules, and edge cases. Instances carry no state.
    """

    name: ClassVar[str]
    params: ClassVar[tuple[Param, ...]] = (Param("x"),)
    Attrs: ClassVar[type[Attrs]] = Attrs
    kind: ClassVar[OpKind] = OpKind.OPAQUE
    pure: ClassVar[bool] = True
    moves: ClassVar[bool] = False  # every number of the result is one of an operand (positions and conditions aside)
    examples: ClassVar[tuple[Example, ...]] = ()
    bad_examples: ClassVar[tuple[BadExample, ...]] = ()

    def infer(self, args: tuple[Type, ...], attrs: A, ctx: InferCtx) -> Type:
        """Result type from operand types; never erases what is known: a fresh symbol for each unknown dimension."""
        raise NotImplementedError

    def type_of(self, args: tuple[Type, ...], attrs: A, ctx: InferCtx) -> Type:
        """`infer`, of attributes that have values to a result that has no negative extent.

        A result of a size that there is none of is the fault of this call.
        """
        try:
            result = self.infer(args, attrs, ctx)
            for d in attr_dims(attrs):  # behind its own checks, which say more
                ctx.require_value(d, "attribute")
            known = {d for t in args for d in type_dims(t)}
            for d in dict.fromkeys(type_dims(result)):
                if not isinstance(d, int | Dim) and d not in known:
                    ctx.require_at_least(0, d, "an extent of the result")
            return result
        except SymError as error:
            ctx.fail(error.message, help=error.help)

    def lower(self, args: tuple[TensorType, ...], attrs: A, out: tuple[TensorType, ...]) -> PrimFunc:
        """Loops in block form; parameters are the tensor operands, then the results."""
        raise NotImplementedError

    def reference(self, args: tuple[Array, ...], attrs: A) -> Array | tuple[Array, ...]:
        """The definition of truth, in NumPy; dims of ``attrs`` are ints here.

        bfloat16 operands arrive as float32 and such results are returned as float32: call it through `evaluate`.
        """
        raise NotImplementedError

    def evaluate(
        self, args: tuple[Array, ...], types: Sequence[Type], attrs: A, out: Type
    ) -> Array | tuple[Array, ...]:
        """Run `reference` on arrays as programs hold them (bfloat16 as bits in uint16), giving type ``out``."""
        values = tuple(
            bfloat16_to_float32(a.astype(np.uint16)) if isinstance(t, TensorType) and t.dtype == "bfloat16" else a
            for a, t in zip(args, types, strict=True)
        )
        with np.errstate(all="ignore"):
            result = self.reference(values, attrs)
        if isinstance(out, TupleType) and isinstance(result, tuple):
            return tuple(_held(r, t) for r, t in zip(result, out.fields, strict=True))
        return result if isinstance(result, tuple) else _held(result, out)

    def decompose(self, args: tuple[Expr, ...], attrs: A, bb: BlockBuilder) -> Expr | None:
        """Express the call by simpler operators (emitted into ``bb``), or None where `lower` is the way."""
        return None

    def positions(self, args: tuple[Expr, ...], attrs: A) -> Mapping[int, DimLike]:
        """Operands whose elements are positions, with the extent that they stay below (the least, if several)."""
        return {}

    def monotone(self, attrs: A, dtype: str) -> int:
        """1 where a larger operand never gives a smaller result, -1 where it never gives a larger one, else 0.

        Asked of functions of one element that keep its type. Not 0 promises NaN of NaN and of nothing else, too.
        """
        return 0

    def __repr__(self) -> str:
        return f"R.{self.name}"


def _held(value: Array, t: Type) -> Array:
    if not isinstance(t, TensorType):
        return value
    if t.dtype == "bfloat16":
        return float32_to_bfloat16(np.asarray(value))
    return np.ascontiguousarray(value, info(t.dtype).numpy).reshape(np.shape(value))
