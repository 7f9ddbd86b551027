"""Graph-level expressions, bindings and functions: frozen, in A-normal form, with a complete type from birth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relaxir.ir.attrs import Attrs
from relaxir.ir.types import FuncType, ShapeType, TensorType, TupleType, Type
from relaxir.support.arrays import array_of
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.support.dtypes import info
from relaxir.support.errors import ArgumentError, InferError
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Relation

if TYPE_CHECKING:
    from relaxir.ir.op import Op

Array = NDArray[Any]


class Expr:
    """A graph-level value; compared by identity."""

    __slots__ = ()
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A parameter or a binding's result; identity is the object, the name is kept where it is unique."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    """A tensor known at compile time. ``data`` is C-contiguous and never written; bfloat16 is held as uint16."""

    data: Array
    type: TensorType

    @property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes."""
        head = f"{self.type.dtype}{self.data.shape}".encode()
        return hashlib.sha256(head + np.ascontiguousarray(self.data).tobytes()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ShapeExpr(Expr):
    """A shape value of known symbolic dimensions."""

    dims: tuple[DimLike, ...]
    type: ShapeType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", ShapeType(self.dims))
        object.__setattr__(self, "dims", self.type.dims)


@dataclass(frozen=True, slots=True, eq=False)
class TupleExpr(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]
    type: TupleType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", TupleType(tuple(f.type for f in self.fields)))


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem(Expr):
    """Field ``index`` of a tuple value."""

    value: Expr
    index: int
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value.type, TupleType) or not 0 <= self.index < len(self.value.type.fields):
            raise ValueError(f"no field {self.index} in a value of type {self.value.type}")
        object.__setattr__(self, "type", self.value.type.fields[self.index])


@dataclass(frozen=True, slots=True, eq=False)
class OpCall(Expr):
    """An operator applied to values; ``attrs`` is the operator's own frozen dataclass."""

    op: Op[Any]
    args: tuple[Expr, ...]
    attrs: Attrs
    type: Type
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FuncCall(Expr):
    """A graph function of the module applied to values."""

    callee: str
    args: tuple[Expr, ...]
    type: Type
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CallTIR(Expr):
    """A tensor program of the module applied to tensors, giving new tensors of ``type``.

    ``dims`` has one value for each of the program's ``dims``.
    """

    callee: str
    args: tuple[Expr, ...]
    dims: tuple[DimLike, ...]
    type: Type
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CallDPS(Expr):
    """A library function in destination-passing style: a symbol name, or (in process only) a Python callable.

    The callable or symbol receives the inputs and then the outputs; ``pure`` is the caller's promise.
    """

    target: str | Callable[..., None]
    args: tuple[Expr, ...]
    type: Type
    pure: bool = True
    span: Span | None = None

    @property
    def symbol(self) -> str:
        """Name of the function."""
        return self.target if isinstance(self.target, str) else self.target.__name__


@dataclass(frozen=True, slots=True, eq=False)
class If(Expr):
    """``cond`` is a bool scalar tensor; only the chosen branch runs."""

    cond: Expr
    then: Body
    other: Body
    type: Type
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Expr):
    """Repeat ``body`` while a condition holds, carrying values from one iteration to the next.

    Attributes:
        trips: most iterations: an ``i64[]`` tensor (negative: none), or a shape value of one dimension; None: no limit.
        start: ``bool[]``, whether there is a first iteration; None: yes.
        init: first values of what is carried, tensors.
        params: number of the iteration (``i64[]``), then the carried values at types that hold in every iteration.
        dims: symbols of the carried values' types that may change from one iteration to the next.
        body: a tuple: whether to go on (``bool[]``), the next carried values, then one element of each scan output.
        type: a tuple: the last carried values, then the scan outputs: the elements of all iterations stacked.
    """

    trips: Expr | None
    start: Expr | None
    init: tuple[Expr, ...]
    params: tuple[Var, ...]
    dims: tuple[Dim, ...]
    body: Body
    type: Type
    span: Span | None = None

    @property
    def carried(self) -> tuple[Expr, ...]:
        """The carried values that an iteration gives."""
        assert isinstance(self.body.result, TupleExpr)
        return self.body.result.fields[1 : 1 + len(self.init)]

    @property
    def scans(self) -> tuple[Expr, ...]:
        """The elements of the scan outputs that an iteration gives."""
        assert isinstance(self.body.result, TupleExpr)
        return self.body.result.fields[1 + len(self.init) :]

    @property
    def goes_on(self) -> Expr:
        """Whether there is another iteration."""
        assert isinstance(self.body.result, TupleExpr)
        return self.body.result.fields[0]


@dataclass(frozen=True, slots=True, eq=False)
class Bind:
    """``var = value``; ``defines`` are the fresh symbols that this value introduces (its run-time sizes)."""

    var: Var
    value: Expr
    defines: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class MatchCast:
    """``var = value`` seen at type ``var.type``: bare new symbols are defined, all else is checked at run time."""

    var: Var
    value: Expr
    defines: tuple[Dim, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A run-time check of a symbolic condition, inserted by `InsertChecks`: the call fails unless ``relation`` holds.

    ``message`` has one ``{}`` for the value of each of ``args``.
    """

    relation: Relation
    code: str
    message: str
    args: tuple[DimLike, ...] = ()
    span: Span | None = None


Binding = Bind | MatchCast | Check


@dataclass(frozen=True, slots=True, eq=False)
class BindingBlock:
    """Bindings in order; a dataflow block has no effects and no control flow."""

    bindings: tuple[Binding, ...]
    dataflow: bool = False
    outputs: tuple[Var, ...] = ()  # of a dataflow block: variables visible outside


@dataclass(frozen=True, slots=True, eq=False)
class Body(Expr):
    """Blocks, then a result."""

    blocks: tuple[BindingBlock, ...]
    result: Expr
    type: Type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.result.type)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All bindings of all blocks, in order."""
        return tuple(b for block in self.blocks for b in block.bindings)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A graph function.

    Attributes:
        params: parameters; bare symbols of their types are defined by them, compound ones solved.
        body: what it computes.
        ret: declared result type.
        where: declared relations between symbols, checked at every call and used by all passes.
        attrs: notes kept with the function (strings, numbers, tuples of them).
        pure: no effects.
    """

    params: tuple[Var, ...]
    body: Body
    ret: Type
    where: tuple[Relation, ...] = ()
    attrs: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    pure: bool = True
    span: Span | None = None

    @property
    def type(self) -> FuncType:
        """Signature."""
        return FuncType(tuple(p.type for p in self.params), self.ret, self.pure)


def _check_fits(array: Array, name: str) -> None:
    """Raise InferError for values that an integer dtype does not hold: they would change in silence."""
    target = info(name)
    if not target.is_integer or array.dtype == target.numpy or array.size == 0:
        return
    limits = np.iinfo(name)
    for value in (array.min(), array.max()):  # NaN if there is one
        finite = array.dtype.kind != "f" or bool(np.isfinite(value))
        if not finite or not limits.min <= int(value) <= limits.max:
            raise InferError(
                f"const: {value} does not fit {name}", code="attribute", help="choose another dtype, or convert before"
            )


def const(value: object, dtype: str | None = None) -> Constant:
    """Constant from anything NumPy can make an array of; Python floats become float32, ints int64, bools bool.

    With ``dtype`` the value is converted; ``bfloat16`` data is given as uint16 bits or converted from floats.

    Raises:
        InferError: for values that an integer dtype does not hold.
        ArgumentError: for what NumPy cannot make an array of, or cannot convert.
    """
    array = array_of("const: the value", value)
    if dtype is None:
        name = "float32" if isinstance(value, float) else canonical_dtype(array.dtype)
    else:
        name = canonical_dtype(dtype)
    try:  # a copy keeps the constant safe from later writes to the caller's array
        if name == "bfloat16" and array.dtype != np.uint16:
            array = float32_to_bfloat16(array)
        _check_fits(array, name)
        data = np.array(array, dtype=info(name).numpy, order="C", copy=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"const: the value cannot be {name}: {error}", code="argument-dtype") from None
    data.setflags(write=False)
    return Constant(data, TensorType(data.shape, name))
