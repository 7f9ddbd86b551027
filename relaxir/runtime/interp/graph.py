"""The interpreter of graph functions: operators by their references, tensor programs by `run_prim_func`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.cost.steps import ends, too_long
from relaxir.ir.attrs import map_attrs
from relaxir.ir.expr import (
    Bind,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Constant,
    Expr,
    FuncCall,
    Function,
    If,
    Loop,
    MatchCast,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
)
from relaxir.ir.module import IRModule
from relaxir.ir.op import InferCtx
from relaxir.ir.types import AnyType, ShapeType, TensorType, TupleType, Type, free_dims_of_type, type_dims
from relaxir.runtime.interp.binding import (
    Pair,
    Value,
    allocate_results,
    bind_dims,
    check_relations,
    holds,
    learn_result,
    match_value,
    rebuild,
)
from relaxir.runtime.interp.program import raise_failure, run_prim_func
from relaxir.support.dtypes import info
from relaxir.support.errors import (
    ArgumentError,
    InternalError,
    RelaxirError,
    RuntimeFailure,
    RuntimeIndexError,
    RuntimeShapeError,
    ShapeMismatchError,
    UnsupportedError,
)
from relaxir.sym import DimLike, Facts, SymError, check_bytes, exact, free_dims
from relaxir.tir import PrimFunc
from relaxir.tir.idle import is_idle

Array = NDArray[Any]
Libraries = Mapping[str, Callable[..., object]]
"""Python implementations of library symbols: they receive the inputs, then the arrays to fill."""

NO_LIBRARIES: Final[Libraries] = MappingProxyType({})


def run_graph(module: IRModule, name: str, args: Sequence[Value], libraries: Libraries = NO_LIBRARIES) -> Value:
    """Call a graph function; the result may share memory with arguments and constants.

    Raises:
        ArgumentError: for arguments that do not match the signature.
        RuntimeShapeError: for sizes that do not agree.
    """
    func = module.functions.get(name)
    if not isinstance(func, Function):
        raise ArgumentError(f"the module has no graph function `{name}`", code="argument-name")
    if len(args) != len(func.params):
        raise ArgumentError(f"{name}: expected {len(func.params)} arguments, got {len(args)}", code="argument-count")
    pairs: list[Pair] = []
    symbols = dict.fromkeys(d for p in func.params for d in free_dims_of_type(p.type))
    for param, arg in zip(func.params, args, strict=True):
        pairs.extend(match_value(param.type, arg, f"argument `{param.name}`"))
    dims: dict[str, int] = {}
    bind_dims(pairs, dims, tuple(symbols), name)
    check_relations(func.where, dims, name)
    frame = _Frame(module, libraries, dims, dict(zip(func.params, args, strict=True)))
    result = frame.body(func.body)
    unknown = tuple(d for d in free_dims_of_type(func.ret) if d.name not in dims)
    learn_result(func.ret, result, dims, unknown, f"function `{name}`")
    return result


class _Frame:
    """One call of a graph function: values of its variables and dims."""

    def __init__(self, module: IRModule, libraries: Libraries, dims: dict[str, int], values: dict[Var, Value]) -> None:
        self.module = module
        self.libraries = libraries
        self.dims = dims
        self.values = values

    def body(self, body: Body) -> Value:
        for binding in body.bindings:
            if isinstance(binding, Check):
                self._check(binding)
            elif isinstance(binding, MatchCast):
                self._match_cast(binding)
            else:
                self._bind(binding)
        return self.eval(body.result)

    def _bind(self, binding: Bind) -> None:
        for d in binding.defines:  # a loop binds its symbols anew in every iteration
            self.dims.pop(d.name, None)
        value = self.loop(binding.value) if isinstance(binding.value, Loop) else self.eval(binding.value)
        learn_result(binding.var.type, value, self.dims, binding.defines, f"`{binding.var.name}`")
        self.values[binding.var] = value

    def _match_cast(self, binding: MatchCast) -> None:
        for d in binding.defines:
            self.dims.pop(d.name, None)
        value = self.eval(binding.value)
        what = f"match_cast of `{binding.var.name}`"
        try:
            pairs = list(match_value(binding.var.type, value, "the value"))
            bind_dims(pairs, self.dims, binding.defines, what)
        except (ArgumentError, RuntimeShapeError) as error:
            raise RuntimeShapeError(error.message, span=binding.span, notes=error.notes) from error
        self.values[binding.var] = value

    def _check(self, check: Check) -> None:
        if not holds(check.relation, self.dims):
            raise_failure(check, [self.size(a) for a in check.args])

    def size(self, d: DimLike) -> int:
        return exact(d, self.dims)

    def eval(self, expr: Expr) -> Value:
        match expr:
            case Var():
                if expr not in self.values:
                    raise InternalError(f"variable `{expr.name}` is used before its binding")
                return self.values[expr]
            case Constant():
                return expr.data
            case ShapeExpr():
                return tuple(self.size(d) for d in expr.dims)
            case TupleExpr():
                return tuple(self.eval(f) for f in expr.fields)
            case TupleGetItem():
                items = self.eval(expr.value)
                if not isinstance(items, tuple):
                    raise InternalError("a field is taken of a value that is not a tuple")
                field: Value = items[expr.index]
                return field
            case If():
                return self.body(expr.then if bool(self._array(expr.cond)) else expr.other)
            case Body():
                return self.body(expr)
            case _:
                return self._call(expr)

    def loop(self, expr: Loop) -> Value:
        """Iterate; scan outputs of no iteration are empty, and so is each axis that only the body knows."""
        limit = None if expr.trips is None else int(np.asarray(self.eval(expr.trips)).reshape(-1)[0])
        goes_on = expr.start is None or bool(self._array(expr.start))
        carried = tuple(self.eval(v) for v in expr.init)
        outside = dict(self.dims)
        rows: list[tuple[Value, ...]] = []
        while goes_on and (limit is None or len(rows) < limit):
            for d in expr.dims:
                self.dims.pop(d.name, None)
            for p, v in zip(expr.params, (np.array(len(rows), np.int64), *carried), strict=True):
                owned = tuple(d for d in free_dims_of_type(p.type) if d in expr.dims)
                learn_result(p.type, v, self.dims, owned, f"`{p.name}`")
                self.values[p] = v
            results = self.body(expr.body)
            assert isinstance(results, tuple)
            goes_on, carried = bool(results[0]), results[1 : 1 + len(carried)]
            rows.append(results[1 + len(carried) :])
            if any(np.shape(a) != np.shape(b) for a, b in zip(rows[0], rows[-1], strict=True)):
                raise RuntimeShapeError("loop: the elements of a scan output differ in shape", span=expr.span)
        self.dims.clear()
        self.dims.update(outside)
        assert isinstance(expr.type, TupleType)
        wanted = expr.type.fields[len(carried) :]
        return (*carried, *(self._stacked([r[n] for r in rows], t) for n, t in enumerate(wanted)))

    def _stacked(self, rows: list[Value], t: Type) -> Array:
        """The elements of one scan output."""
        if rows:
            return np.stack([np.asarray(r) for r in rows])
        assert isinstance(t, TensorType)
        known = (self.size(d) if all(s.name in self.dims for s in free_dims(d)) else 0 for d in t.shape[1:])
        return np.zeros((0, *known), info(t.dtype).numpy)

    def _call(self, expr: Expr) -> Value:
        if isinstance(expr, OpCall):
            return self._op(expr)
        self._sized(expr.type)
        match expr:
            case FuncCall():
                return run_graph(self.module, expr.callee, tuple(self.eval(a) for a in expr.args), self.libraries)
            case CallTIR():
                return self._call_tir(expr)
            case CallDPS():
                return self._call_dps(expr)
            case _:
                raise InternalError(f"the interpreter does not know the expression {type(expr).__name__}")

    def _sized(self, t: Type) -> None:
        """Fail where a size of a result that is known before the call does not fit 64 bits."""
        if isinstance(t, TupleType):
            for part in t.fields:
                self._sized(part)
            return
        known = [self.size(d) for d in type_dims(t) if all(s.name in self.dims for s in free_dims(d))]
        if isinstance(t, TensorType):
            check_bytes(known, info(t.dtype).bytes)

    def _array(self, expr: Expr) -> Array:
        value = self.eval(expr)
        if not isinstance(value, np.ndarray):
            raise InternalError("a tensor was expected, and a tuple or shape came")
        return value

    def _op(self, expr: OpCall) -> Value:
        attrs = map_attrs(expr.attrs, self.size)
        args: Any = tuple(self.eval(a) for a in expr.args)
        types = tuple(_exact_type(a.type, v) for a, v in zip(expr.args, args, strict=True))
        try:  # what inference left open is decided by the sizes
            expr.op.infer(types, attrs, InferCtx(expr.op.name, Facts(), span=expr.span))
        except ShapeMismatchError as error:
            raise RuntimeShapeError(error.message, span=expr.span, notes=error.notes) from None
        except SymError:  # a size that there is none of: said in the user's symbols
            pass
        self._sized(expr.type)
        try:
            result = expr.op.evaluate(args, tuple(a.type for a in expr.args), attrs, expr.type)
        except RelaxirError:
            raise
        except IndexError as error:
            raise RuntimeIndexError(f"{expr.op.name}: {error}", span=expr.span) from error
        except (ValueError, OverflowError) as error:  # NumPy's words for sizes that do not fit
            raise RuntimeShapeError(f"{expr.op.name}: {error}", span=expr.span) from error
        return _normal(result, expr.type)

    def _flat_args(self, args: Sequence[Expr]) -> list[Array]:
        flat: list[Array] = []
        for value in (self.eval(a) for a in args):
            flat.extend(_leaves(value))
        return flat

    def _call_tir(self, expr: CallTIR) -> Value:
        func = self.module.functions.get(expr.callee)
        if not isinstance(func, PrimFunc):
            raise InternalError(f"the module has no tensor program `{expr.callee}`")
        if len(func.dims) != len(expr.dims):
            raise InternalError(f"`{expr.callee}` takes {len(func.dims)} dims and was given {len(expr.dims)}")
        dims = {d.name: self.size(value) for d, value in zip(func.dims, expr.dims, strict=True)}
        if not ends(func, dims):
            raise RuntimeFailure(too_long(expr.callee), span=expr.span)
        results = allocate_results(expr.type, self.dims)
        if is_idle(func, dims):
            return rebuild(expr.type, iter(results))
        scratch = tuple(np.zeros(tuple(exact(d, dims) for d in b.shape), info(b.dtype).numpy) for b in func.scratch)
        inputs = [np.ascontiguousarray(a).reshape(a.shape) for a in self._flat_args(expr.args)]
        run_prim_func(func, (*inputs, *results, *scratch), dims)
        return rebuild(expr.type, iter(results))

    def _call_dps(self, expr: CallDPS) -> Value:
        target = expr.target
        if isinstance(target, str):
            if target not in self.libraries:
                raise UnsupportedError(
                    f"the interpreter has no implementation of the library function `{target}`",
                    span=expr.span,
                    help="pass libraries={name: function of the input and output arrays}",
                )
            fn: Callable[..., object] = self.libraries[target]
        else:
            fn = target
        results = allocate_results(expr.type, self.dims)
        fn(*self._flat_args(expr.args), *results)
        return rebuild(expr.type, iter(results))


def _exact_type(t: Type, value: Value) -> Type:
    """The type with the sizes of a value."""
    if isinstance(t, TupleType) and isinstance(value, tuple):
        return TupleType(
            tuple(_exact_type(f, v) for f, v in zip(t.fields, value, strict=True) if not isinstance(v, int))
        )
    if isinstance(t, ShapeType) and isinstance(value, tuple):
        return ShapeType(tuple(v for v in value if isinstance(v, int)))
    return TensorType(value.shape, t.dtype) if isinstance(t, TensorType) and isinstance(value, np.ndarray) else t


def _leaves(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for item in value if not isinstance(item, int) for leaf in _leaves(item)]
    return [value]


def _normal(result: Any, t: Type) -> Value:
    """What a reference returned as a value: scalars become arrays, lists tuples, shape values tuples of ints."""
    if isinstance(t, ShapeType):
        return tuple(int(v) for v in np.asarray(result).reshape(-1))
    if isinstance(t, TupleType):
        return tuple(_normal(item, part) for item, part in zip(result, t.fields, strict=True))
    if isinstance(t, AnyType) or isinstance(result, tuple):
        return tuple(result) if isinstance(result, list | tuple) else np.asarray(result)
    return np.asarray(result)
