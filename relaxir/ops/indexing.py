"""Shape operands made into dimensions: the one set of routines, written over dims.

Every function takes ints, symbolic expressions and run-time (fresh) dims alike, and gives expressions whose value is
what NumPy and ONNX define for those values. Signs that are not known are tests written as arithmetic: `negative` is 1
for negative values and 0 otherwise, so that one formula serves constants (it folds), symbols (facts simplify it) and
values first known at run time. No formula overflows for values near the ends of int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relaxir.ir.op import InferCtx
from relaxir.support.errors import InferError, ShapeMismatchError
from relaxir.sym import DimLike, Facts, Proof, add, ceildiv, floordiv, free_dims, max_, min_, mul, product, sub

FAR: Final = 2**31 - 1
"""Constants at least this large stand for "to the end" in exported models (INT32_MAX, INT64_MAX), by either sign."""


@dataclass(frozen=True, slots=True)
class Range:
    """A normalised slice of one axis: elements ``begin + i * step`` for ``0 <= i < size``, all inside the axis."""

    begin: DimLike
    size: DimLike
    step: DimLike


def negative(x: DimLike, facts: Facts | None = None) -> DimLike:
    """1 where ``x < 0``, else 0."""
    known = facts or Facts()
    if known.prove_le(0, x) is Proof.PROVED:
        return 0
    if known.prove_lt(x, 0) is Proof.PROVED:
        return 1
    return mul(-1, max_(-1, min_(0, x)))


def is_zero(x: DimLike, facts: Facts | None = None) -> DimLike:
    """1 where ``x == 0``, else 0."""
    known = facts or Facts()
    answer = known.prove_equal(x, 0)
    if answer is Proof.UNKNOWN:
        return sub(sub(1, min_(1, max_(0, x))), negative(x, known))
    return int(answer is Proof.PROVED)


def choose(flag: DimLike, then: DimLike, other: DimLike) -> DimLike:
    """``then`` where ``flag`` is 1, ``other`` where it is 0."""
    if isinstance(flag, int):
        return then if flag else other
    return then if then == other else add(mul(flag, then), mul(sub(1, flag), other))


def normalize_index(index: DimLike, extent: DimLike, facts: Facts | None = None) -> DimLike:
    """A possibly negative index counted from the start; whether it is in range is for the caller to require."""
    if isinstance(index, int):
        return add(index, extent) if index < 0 else index
    return add(index, mul(extent, negative(index, facts)))


def normalize_axes(axes: Sequence[int], rank: int, ctx: InferCtx) -> tuple[int, ...]:
    """Axes from 0, in the given order.

    Raises:
        InferError: for an axis outside the rank (``axis-range``) or named twice (``attribute``).
    """
    found = tuple(ctx.axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        ctx.fail(f"axes {tuple(axes)} name an axis twice", code="attribute")
    return found


def require_nonzero(step: DimLike, what: str, ctx: InferCtx) -> None:
    """A step must not be 0: refused for the constant, checked at run time for an unknown value.

    Require it before anything that divides by the step.
    """
    if step == 0:
        ctx.fail(f"{what} must not be 0", code="attribute")
    ctx.require_at_least(1, max_(step, mul(-1, step)), f"distance of {what}")


def unit_axes(shape: Sequence[DimLike]) -> tuple[int, ...]:
    """Axes whose extent is the constant 1."""
    return tuple(axis for axis, extent in enumerate(shape) if extent == 1)


def slice_range(
    start: DimLike | None,
    stop: DimLike | None,
    step: DimLike | None,
    extent: DimLike,
    facts: Facts | None = None,
    *,
    onnx: bool = False,
) -> Range:
    """What ``start:stop:step`` means on an axis, with Python's clamping.

    Args:
        start: first index, may be negative or beyond the ends; None: from the first (last, for a negative step).
        stop: end, exclusive; None: to the end in the direction of the step. Constants beyond 2**31 - 2 by either sign
            mean "beyond the end", whatever the extent.
        step: distance, of any sign, also of a sign known only at run time; None: 1. A zero step has no meaning: callers
            require otherwise. Constants beyond 2**31 - 2 select one element at most.
        extent: of the axis.
        facts: what is known, to give short expressions.
        onnx: ONNX's clamping, which differs from Python's in one case: going backward, a start before the first element
            means the first element (Python: nothing is selected).

    Raises:
        InferError: for a constant step of 0.
    """
    known = facts or Facts()
    stride: DimLike = 1 if step is None else step
    if stride == 0:
        raise InferError("the step of a slice must not be 0", code="attribute", help="use a positive or negative step")
    if isinstance(stride, int) and abs(stride) >= FAR:  # reaches no second element, whatever the extent
        single = slice_range(start, stop, 1 if stride > 0 else -1, extent, known, onnx=onnx)
        return Range(single.begin, min_(single.size, 1), single.step)
    back = negative(stride, known)
    # Python clamps into 0..extent going forward, and into -1..extent-1 going backward
    low, high = mul(-1, back), sub(extent, back)
    first = 0 if onnx else low
    begin = choose(back, high, low) if start is None else _clamp(start, first, high, extent, known)
    end = choose(back, low, high) if stop is None else _clamp(stop, low, high, extent, known)
    size = max_(0, ceildiv(sub(end, begin), stride))
    if any(x is not None and is_data(x, known) for x in (start, stop, stride)):
        # expanding these formulas would multiply values near the ends of int64
        return Range(begin, size, stride)
    return Range(known.simplify(begin), known.simplify(size), stride)


def is_data(x: DimLike, facts: Facts) -> bool:
    """Whether a formula is of data without a useful lower bound: it is left as it is built.

    Another form of it may pass through numbers that do not fit 64 bits: ``max(0, d) + 1`` is ``max(1, d + 1)``.
    """
    if isinstance(x, int):
        return False
    unknown = (facts.bounds(d)[0] for d in free_dims(x) if d.min < -FAR)
    return any(low is None or low < -FAR for low in unknown)


def _clamp(index: DimLike, low: DimLike, high: DimLike, extent: DimLike, facts: Facts) -> DimLike:
    if isinstance(index, int):
        if index >= FAR:
            return high
        if index <= -FAR:
            return min_(low, high)  # of an empty axis, `high` is below its first element
    return min_(max_(normalize_index(index, extent, facts), low), high)


def reshape_target(
    target: Sequence[DimLike], source: Sequence[DimLike], allow_zero: bool = False, facts: Facts | None = None
) -> tuple[DimLike, ...]:
    """The dimensions that a Reshape target means.

    A constant -1 becomes the quotient of the element counts (an exact symbolic division where possible); a constant 0
    copies the source's extent unless ``allow_zero``. An entry that may be negative at run time gets the same meaning by
    arithmetic; a symbolic entry known to be at least 0 is taken as it is. That the counts then agree is what
    `relaxir.ops.movement.Reshape` requires.

    Raises:
        InferError: for several constants -1, other negative constants, and a 0 where the source has no such axis.
    """
    known = facts or Facts()
    if sum(d == -1 for d in target) > 1:
        raise InferError("a reshape target can hold only one -1", code="attribute", help="give the other extents")
    copied = tuple(_copied(d, axis, source, allow_zero, known) for axis, d in enumerate(target))
    open_ = tuple(negative(d, known) for d in copied)
    if all(flag == 0 for flag in open_):
        return copied
    others = product(choose(flag, 1, d) for flag, d in zip(open_, copied, strict=True))
    rest = exact_quotient(product(source), others, known)
    return tuple(choose(flag, rest, d) for flag, d in zip(open_, copied, strict=True))


def _copied(d: DimLike, axis: int, source: Sequence[DimLike], allow_zero: bool, facts: Facts) -> DimLike:
    if isinstance(d, int):
        if d < -1:
            raise InferError(f"entry {axis} of a reshape target is {d}", code="attribute", help="use -1 or an extent")
        if d == 0 and not allow_zero:
            if axis >= len(source):
                raise InferError(
                    f"entry {axis} of a reshape target copies an axis that the input lacks", code="attribute"
                )
            return source[axis]
        return d
    # only a value that comes from data (it may be negative) can mean "copy" by being 0
    from_data = facts.prove_le(0, d) is not Proof.PROVED
    if allow_zero or axis >= len(source) or not from_data:
        return d
    return choose(is_zero(d, facts), source[axis], d)


def exact_quotient(total: DimLike, divisor: DimLike, facts: Facts | None = None) -> DimLike:
    """``total // divisor``, symbolically exact where the facts allow; a divisor that may be 0 counts as 1 then."""
    known = facts or Facts()
    if divisor == 0:
        return 0
    if is_data(divisor, known):
        return floordiv(total, max_(divisor, 1))
    quotient = known.simplify(floordiv(total, divisor))
    if known.prove_equal(mul(quotient, divisor), total) is Proof.PROVED:
        return quotient
    low, _ = known.bounds(divisor)
    return quotient if low is not None and low >= 1 else floordiv(total, max_(divisor, 1))


def expand_target(
    source: Sequence[DimLike], target: Sequence[DimLike], facts: Facts | None = None
) -> tuple[DimLike, ...]:
    """Shape of ONNX's Expand: both sides broadcast against each other.

    Raises:
        ShapeMismatchError: for extents that are proved not to broadcast.
    """
    known = facts or Facts()
    rank = max(len(source), len(target))
    left = (1,) * (rank - len(source)) + tuple(source)
    right = (1,) * (rank - len(target)) + tuple(target)
    shape: tuple[DimLike, ...] = ()
    for axis, (a, b) in enumerate(zip(left, right, strict=True)):
        answer = known.broadcast(a, b)
        if answer.verdict is Proof.REFUTED:
            raise ShapeMismatchError(f"axis {axis}: {a} does not broadcast with {b}")
        shape += (answer.dim,)
    return shape


def pad_pairs(
    pads: Sequence[DimLike], rank: int, axes: Sequence[int] | None = None
) -> tuple[tuple[DimLike, DimLike], ...]:
    """ONNX's flat pads (all begins, then all ends, for the given axes) as one pair per axis.

    Raises:
        InferError: when the counts do not match.
    """
    chosen = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    if len(pads) != 2 * len(chosen):
        raise InferError(f"{2 * len(chosen)} pads expected, got {len(pads)}", code="attribute")
    at = {axis: (pads[n], pads[n + len(chosen)]) for n, axis in enumerate(chosen)}
    return tuple(at.get(axis, (0, 0)) for axis in range(rank))


def range_size(start: DimLike, stop: DimLike, step: DimLike, facts: Facts | None = None) -> DimLike:
    """Number of values ``start, start + step, ...`` before ``stop``; the sign of ``step`` may be unknown.

    Raises:
        InferError: for a constant step of 0.
    """
    if step == 0:
        raise InferError("the step of a range must not be 0", code="attribute")
    return (facts or Facts()).simplify(max_(0, ceildiv(sub(stop, start), step)))
