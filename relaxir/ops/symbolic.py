"""Symbolic evaluation of small integer tensors: what keeps shape arithmetic out of the program.

Exported models compute shapes by tensors: Shape, Gather, Concat, Reshape, Slice, Cast chains. Here such a tensor is a
`SymbolicArray`: a NumPy object array whose elements are dims (ints or symbolic expressions) or bools.
`evaluate_symbolic` gives the result of an operator on them, or None where it cannot be told at compile time: floats,
data, comparisons that the facts do not decide. Integers are taken as unbounded: sizes do not wrap, also after a cast
to int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.ir.attrs import Attrs, is_symbolic
from relaxir.ir.op import Op
from relaxir.ir.types import ShapeType, TensorType, Type
from relaxir.ops.indexing import choose, is_data, negative, range_size
from relaxir.support.dtypes import Kind, info
from relaxir.support.errors import RelaxirError
from relaxir.sym import (
    DimLike,
    Facts,
    Proof,
    SymError,
    add,
    ceildiv,
    floordiv,
    max_,
    min_,
    mod,
    mul,
    normalize,
    product,
    sub,
)

SymbolicArray = NDArray[Any]
LIMIT: Final = 4096
"""Elements beyond which a tensor is data, not a shape."""
STRUCTURAL: Final = frozenset(
    "reshape permute_dims expand_dims squeeze broadcast_to concat stack split tile repeat flip roll strided_slice take "
    "gather_elements gather_nd scatter_elements scatter_nd".split()
)
"""Operators that move elements without looking at them: their references take object arrays."""
INDEX_OPERAND: Final[Mapping[str, int]] = MappingProxyType(
    {"take": 1, "gather_elements": 1, "gather_nd": 1, "scatter_elements": 1, "scatter_nd": 1}
)


class UndecidedError(Exception):
    """The facts do not tell; the evaluation gives up (never leaves this module)."""


def symbolic_array(value: object) -> SymbolicArray | None:
    """An integer or bool array (or nested sequence of dims) as a `SymbolicArray`; None for floats and large arrays."""
    array = np.asarray(value)
    if array.size > LIMIT or (array.dtype.kind not in "iubO" and array.size):
        return None
    result = np.empty(array.shape, object)
    try:
        for place in np.ndindex(array.shape):
            element: Any = array[place]
            result[place] = bool(element) if isinstance(element, bool | np.bool_) else normalize(element)
    except SymError:  # an object that is no dimension
        return None
    return result


def constant_array(array: SymbolicArray, dtype: str = "int64") -> NDArray[Any] | None:
    """The array as numbers if every element is known, else None."""
    if any(is_symbolic(v) for v in array.flat):
        return None
    return np.array(array.tolist(), info(dtype).numpy).reshape(array.shape)


def dims_of(array: SymbolicArray) -> tuple[DimLike, ...]:
    """Elements of a vector (or of a scalar) as dims."""
    return tuple(int(v) if isinstance(v, bool) else v for v in np.atleast_1d(array).tolist())


def evaluate_symbolic(
    op: Op[Any],
    args: Sequence[NDArray[Any] | None],
    attrs: Attrs,
    facts: Facts,
    types: Sequence[Type] = (),
) -> SymbolicArray | tuple[SymbolicArray, ...] | None:
    """Result of an operator on small integer tensors, or None where it is not known at compile time.

    Args:
        op: the operator.
        args: operands as numeric or object arrays; None for those that are data.
        attrs: its attributes.
        facts: decides comparisons and shortens results.
        types: operand types, needed by ``shape_of``, ``size`` and ``shape_to_tensor``, which read no data.
    """
    if op.name in ("shape_of", "size", "shape_to_tensor"):
        return _from_type(op.name, types)
    arrays = tuple(None if a is None else symbolic_array(a) for a in args)
    known = tuple(a for a in arrays if a is not None)
    rule = RULES.get(op.name)
    if len(known) != len(arrays) or (rule is None and op.name not in STRUCTURAL):
        return None
    try:
        result = _moved(op, known, attrs) if rule is None else rule(known, attrs, facts)
        return tuple(_finish(r, facts) for r in result) if isinstance(result, tuple) else _finish(result, facts)
    except (UndecidedError, SymError, RelaxirError, IndexError, ValueError, TypeError, ArithmeticError):
        return None  # undecided, or an error that the program itself reports


def _from_type(name: str, types: Sequence[Type]) -> SymbolicArray | None:
    source = types[0] if types else None
    if isinstance(source, ShapeType):
        return symbolic_array(list(source.dims))
    if not isinstance(source, TensorType):
        return None
    return symbolic_array(product(source.shape) if name == "size" else list(source.shape))


def _finish(result: Any, facts: Facts) -> SymbolicArray:
    array = symbolic_array(result)
    if array is None:
        raise UndecidedError
    for place in np.ndindex(array.shape):
        element = array[place]
        if is_symbolic(element) and not is_data(element, facts):
            array[place] = facts.simplify(element)
    return array


def _moved(op: Op[Any], args: tuple[SymbolicArray, ...], attrs: Attrs) -> Any:
    if _result_size(op.name, args, attrs) > LIMIT or getattr(attrs, "reduction", "none") != "none":
        raise UndecidedError
    place = INDEX_OPERAND.get(op.name)
    operands = tuple(_numbers(a) if n == place else a for n, a in enumerate(args))
    return op.reference(operands, attrs)


def _result_size(name: str, args: tuple[SymbolicArray, ...], attrs: Any) -> int:
    """Elements of the result of an operator that repeats elements, asked before anything is allocated."""
    if name == "broadcast_to":
        factors = attrs.shape
    elif name == "tile":
        factors = (args[0].size, *attrs.repeats)
    else:
        factors = (args[0].size, attrs.repeats if name == "repeat" else 1)
    return int(product(factors)) if all(isinstance(d, int) for d in factors) else LIMIT + 1


def _numbers(array: SymbolicArray) -> NDArray[np.int64]:
    numbers = constant_array(array)
    if numbers is None:
        raise UndecidedError
    return numbers


# ---- rules ---------------------------------------------------------------------------------------------------------

Rule = Callable[[tuple[SymbolicArray, ...], Any, Facts], Any]


def _apply(fn: Callable[..., Any], *arrays: SymbolicArray) -> SymbolicArray:
    """``fn`` on every element of broadcast arrays."""
    spread = np.broadcast_arrays(*arrays)
    if spread[0].size > LIMIT:
        raise UndecidedError
    result = np.empty(spread[0].shape, object)
    for place in np.ndindex(result.shape):
        result[place] = fn(*(a[place] for a in spread))
    return result


def _elementwise(fn: Callable[..., Any]) -> Rule:
    """Rule from a function of dims."""
    return lambda args, attrs, facts: _apply(fn, *args)


def _with_facts(fn: Callable[..., Any]) -> Rule:
    """Rule from a function of facts and dims."""
    return lambda args, attrs, facts: _apply(lambda *xs: fn(facts, *xs), *args)


def decide(proof: Proof) -> bool:
    """A proof as a bool.

    Raises:
        UndecidedError: for UNKNOWN.
    """
    if proof is Proof.UNKNOWN:
        raise UndecidedError
    return proof is Proof.PROVED


def _equal(facts: Facts, a: Any, b: Any) -> bool:
    return decide(facts.prove_equal(int(a) if isinstance(a, bool) else a, int(b) if isinstance(b, bool) else b))


def trunc_quotient(facts: Facts, a: DimLike, b: DimLike) -> DimLike:
    """``a / b`` rounded to zero, for any signs."""
    if b == 0:
        raise UndecidedError
    back, down = negative(a, facts), negative(b, facts)
    differ = sub(add(back, down), mul(2, mul(back, down)))
    return choose(differ, ceildiv(a, b), floordiv(a, b))


def _sign(facts: Facts, a: DimLike) -> DimLike:
    return sub(min_(1, max_(0, a)), negative(a, facts))


def _select(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, bool):
        raise UndecidedError
    return a if condition else b


def _logical(fn: Callable[..., bool]) -> Rule:
    return _elementwise(lambda *xs: fn(*(_truth(x) for x in xs)))


def _truth(x: Any) -> bool:
    if not isinstance(x, bool):
        raise UndecidedError
    return x


def _cast(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
    kind = info(attrs.dtype)
    if kind.name == "bool":
        return _apply(lambda x: x if isinstance(x, bool) else not _equal(facts, x, 0), args[0])
    if not kind.is_integer:
        raise UndecidedError

    def convert(x: Any) -> DimLike:
        value: DimLike = int(x) if isinstance(x, bool) else x
        if isinstance(value, int):
            return int(np.array(value).astype(kind.numpy))
        if kind.bits < 32 or (kind.kind is Kind.UINT and not decide(facts.prove_le(0, value))):
            raise UndecidedError
        return value

    return _apply(convert, args[0])


def _reducer(fn: Callable[[Any, Any], Any], start: DimLike | None) -> Rule:
    """Reduction over ``attrs.axes`` (None: all)."""

    def rule(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
        x = args[0]
        axes = tuple(range(x.ndim)) if attrs.axes is None else tuple(a % x.ndim for a in attrs.axes)
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        rows = x.transpose(kept + axes).reshape([x.shape[a] for a in kept] + [-1]) if x.size else None
        if rows is None:
            raise UndecidedError
        result = np.empty([x.shape[a] for a in kept], object)
        for place in np.ndindex(result.shape):
            values = list(rows[place])
            result[place] = reduce(fn, values) if start is None else reduce(fn, values, start)
        return np.expand_dims(result, axes) if attrs.keepdims else result

    return rule


def _scan(fn: Callable[[Any, Any], Any], start: int) -> Rule:
    """Running reduction along ``attrs.axis``."""

    def rule(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
        step = -1 if attrs.reverse else 1
        x = np.moveaxis(args[0], attrs.axis, 0)[::step]
        result = np.empty(x.shape, object)
        total: Any = np.full(x.shape[1:], start, object)
        for n in range(len(x)):
            following = _apply(fn, total, x[n, ...])
            result[n, ...] = total if attrs.exclusive else following
            total = following
        return np.moveaxis(result[::step], 0, attrs.axis)

    return rule


def _full(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
    shape = tuple(attrs.shape)
    if not all(isinstance(d, int) for d in shape) or int(np.prod(shape)) > LIMIT:
        raise UndecidedError
    result = np.empty(shape, object)
    result[...] = args[0][()]
    return result


def _arange(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
    values = (attrs.start, attrs.stop, attrs.step)
    if any(isinstance(v, float) for v in values):
        raise UndecidedError
    count = range_size(*values, facts)
    if not isinstance(count, int) or count > LIMIT:
        raise UndecidedError
    return np.array([add(attrs.start, mul(n, attrs.step)) for n in range(count)] or [0], object)[:count]


def _dims(args: tuple[SymbolicArray, ...], attrs: Any, facts: Facts) -> SymbolicArray:
    found = symbolic_array(list(attrs.dims))
    assert found is not None
    return found


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "add": _elementwise(add),
        "subtract": _elementwise(sub),
        "multiply": _elementwise(mul),
        "floor_divide": _elementwise(floordiv),
        "divide": _with_facts(trunc_quotient),
        "trunc_divide": _with_facts(trunc_quotient),
        "floor_mod": _elementwise(mod),
        "trunc_mod": _with_facts(lambda f, a, b: sub(a, mul(b, trunc_quotient(f, a, b)))),
        "minimum": _elementwise(min_),
        "maximum": _elementwise(max_),
        "negative": _elementwise(lambda a: mul(-1, a)),
        "abs": _with_facts(lambda f, a: choose(negative(a, f), mul(-1, a), a)),
        "sign": _with_facts(_sign),
        "equal": _with_facts(_equal),
        "not_equal": _with_facts(lambda f, a, b: not _equal(f, a, b)),
        "less": _with_facts(lambda f, a, b: decide(f.prove_lt(a, b))),
        "less_equal": _with_facts(lambda f, a, b: decide(f.prove_le(a, b))),
        "greater": _with_facts(lambda f, a, b: decide(f.prove_lt(b, a))),
        "greater_equal": _with_facts(lambda f, a, b: decide(f.prove_le(b, a))),
        "logical_and": _logical(lambda a, b: a and b),
        "logical_or": _logical(lambda a, b: a or b),
        "logical_xor": _logical(lambda a, b: a != b),
        "logical_not": _logical(lambda a: not a),
        "where": _elementwise(_select),
        "astype": _cast,
        "sum": _reducer(add, 0),
        "prod": _reducer(mul, 1),
        "max": _reducer(max_, None),
        "min": _reducer(min_, None),
        "cumsum": _scan(add, 0),
        "cumprod": _scan(mul, 1),
        "full": _full,
        "arange": _arange,
        "dims_to_tensor": _dims,
    }
)
"""Rules by operator name; operators of `STRUCTURAL` need none."""
