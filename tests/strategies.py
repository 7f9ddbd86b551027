"""Hypothesis strategies for well-typed programs: dimensions, tensor programs in block and loop form, graph modules.

Every generated tensor program stays inside its buffers for all sizes and writes every element of its results, so it can
be run as well as printed; its comparisons and casts may turn a last-bit difference of floats into a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from relaxir.ir import BlockBuilder, IRModule, TensorType, TupleGetItem, TupleType, Var, const
from relaxir.ir import Expr as GraphExpr
from relaxir.ops import op
from relaxir.support.errors import InferError
from relaxir.sym import Dim, DimLike, SymError, add, ceildiv, dim, floordiv, max_, min_, mod, mul
from relaxir.tir import (
    Alloc,
    Assert,
    BinOp,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    If,
    Intrinsic,
    Let,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    While,
    as_expr,
    binary,
    call,
    cast,
    select,
)
from relaxir.tir import Var as LoopVar
from relaxir.tir import const as literal
from relaxir.tir.visit import free_dims_of

Draw = Callable[..., object]


def scaled(examples: int) -> settings:
    """Settings of a test for which the profile's number of examples is too many: ten times more in the profile fuzz."""
    usual = settings.get_profile("dev").max_examples
    return settings(max_examples=examples * settings.default.max_examples // usual)  # type: ignore[union-attr]  # set


NAMES = ("n", "m", "k", "size", "batch")
FLOATS = ("float32", "float64")
UNARY = ("exp", "tanh", "negative", "abs", "sqrt", "sigmoid")
BINARY = ("add", "multiply", "subtract", "maximum")


@st.composite
def symbols(draw: Draw, names: tuple[str, ...] = NAMES) -> Dim:
    """A symbol, now and then with a range or a multiple."""
    name = draw(st.sampled_from(names))
    low, step = draw(st.sampled_from([(0, 1), (0, 1), (1, 1), (4, 4)]))
    return dim(name, min=low, max=draw(st.sampled_from([None, None, 64])), multiple_of=step)


@st.composite
def dims(draw: Draw, scope: tuple[Dim, ...], depth: int = 2) -> DimLike:
    """An expression over the symbols of ``scope``."""
    if depth == 0 or not scope or draw(st.booleans()):
        return draw(st.sampled_from([*scope, 1, 3, 4]))
    a, b = draw(dims(scope, depth - 1)), draw(dims(scope, depth - 1))
    try:
        return draw(st.sampled_from([add, mul, min_, max_, floordiv, mod, ceildiv]))(a, b)
    except SymError:
        return a


# ---- tensor programs -------------------------------------------------------------------------------------------------


@dataclass
class Env:
    """What an expression may use: loop variables with their extents, scalars, buffers."""

    loops: list[tuple[LoopVar, DimLike]]
    buffers: list[Buffer]
    scalars: list[LoopVar] = field(default_factory=list)
    dims: tuple[Dim, ...] = ()
    exact: bool = False
    """Only small whole numbers and operations that are exact on them: any order of evaluation gives the same."""

    def loads(self, dtype: str) -> list[Expr]:
        """Elements that are in range: each axis is indexed by a loop of its extent."""
        found: list[Expr] = [v for v in self.scalars if v.dtype == dtype]
        by_extent = {e: v for v, e in self.loops}
        for b in self.buffers:
            if b.dtype == dtype and all(e in by_extent for e in b.shape):
                found.append(b.at(tuple(by_extent[e] for e in b.shape)))
        return found


@st.composite
def scalars(draw: Draw, env: Env, dtype: str, depth: int = 3) -> Expr:
    """A scalar expression of a dtype (a float, int64 or bool)."""
    if dtype == "bool":
        kind = draw(st.sampled_from(["int64", "float32"]))
        a, b = draw(scalars(env, kind, depth - 1)), draw(scalars(env, kind, depth - 1))
        test = binary(draw(st.sampled_from([BinOp.LT, BinOp.LE, BinOp.EQ, BinOp.NE, BinOp.GT])), a, b)
        return call(Intrinsic.NOT, test) if draw(st.booleans()) else test
    if depth <= 0 or draw(st.integers(0, 3)) == 0:
        return draw(_leaves(env, dtype))
    a = draw(scalars(env, dtype, depth - 1))
    b = draw(scalars(env, dtype, depth - 1))
    choice = draw(st.integers(0, 5))
    if choice == 0:
        return select(draw(scalars(env, "bool", depth - 1)), a, b)
    if choice == 1:
        other = "int64" if dtype != "int64" else "float32"
        return cast(draw(scalars(env, other, depth - 1)), dtype)
    if choice == 2:
        return call(
            Intrinsic.NEG
            if dtype == "int64"
            else draw(st.sampled_from(EXACT_INTRINSICS if env.exact else FLOAT_INTRINSICS)),
            a,
        )
    ops = (BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.MIN, BinOp.MAX)
    return binary(draw(st.sampled_from(ops)), a, b)


FLOAT_INTRINSICS = (Intrinsic.EXP, Intrinsic.NEG, Intrinsic.TANH, Intrinsic.ABS, Intrinsic.FLOOR, Intrinsic.SQRT)
EXACT_INTRINSICS = (Intrinsic.NEG, Intrinsic.ABS, Intrinsic.FLOOR)


@st.composite
def _leaves(draw: Draw, env: Env, dtype: str) -> Expr:
    loads = env.loads(dtype)
    if loads and draw(st.booleans()):
        return draw(st.sampled_from(loads))
    if dtype == "int64":
        ints: list[Expr] = (
            [v for v, _ in env.loops] + [Size(d) for d in env.dims] + [literal(draw(st.integers(-9, 99)))]
        )
        return draw(st.sampled_from(ints))
    if env.exact:
        return literal(draw(st.integers(-3, 3)), dtype)
    width = 64 if dtype == "float64" else 32
    return literal(draw(st.floats(width=width)), dtype)


@st.composite
def block_programs(draw: Draw, exact: bool = False) -> PrimFunc:
    """A tensor program in block form: maps and reductions over symbolic domains; see `Env.exact`."""
    scope = tuple({d.name: d for d in draw(st.lists(symbols(), min_size=1, max_size=2))}.values())
    dtype = draw(st.sampled_from(FLOATS))
    f = ProgramBuilder("program")
    shape = tuple(draw(st.lists(dims(scope, 1), min_size=1, max_size=2)))
    buffers = [f.input(f"x{i}", shape, dtype) for i in range(draw(st.integers(1, 2)))]
    stages = draw(st.integers(1, 3))
    for number in range(stages):
        last = number == stages - 1
        out = (f.output if last else f.temp)(f"y{number}", shape, dtype)
        if draw(st.booleans()):
            f.compute(out, _stage(draw, shape, buffers, scope, dtype, exact))
        else:
            kinds = [Combine.SUM, Combine.MAX, Combine.MIN, *([] if exact else [Combine.PROD])]
            combine = draw(st.sampled_from(kinds))
            over = draw(dims(scope, 1))
            f.reduce(out, (over,), combine, _stage(draw, (*shape, over), buffers, scope, dtype, exact))
        buffers = [*buffers, out]
    return f.build(pattern=draw(st.text(max_size=5)), level=draw(st.integers(0, 9)))


def _stage(
    draw: Draw, domain: tuple[DimLike, ...], buffers: list[Buffer], scope: tuple[Dim, ...], dtype: str, exact: bool
) -> Callable[..., Expr]:
    """The scalar of one point of a domain, drawn when the stage is built."""
    return lambda *i: draw(scalars(Env(list(zip(i, domain, strict=True)), buffers, dims=scope, exact=exact), dtype))


@st.composite
def loop_programs(draw: Draw, exact: bool = False) -> PrimFunc:
    """A tensor program in loop form, with every kind of statement of kernels; see `Env.exact`."""
    scope = tuple({d.name: d for d in draw(st.lists(symbols(), min_size=1, max_size=2))}.values())
    dtype = draw(st.sampled_from(FLOATS))
    shape = tuple(draw(st.lists(dims(scope, 1), min_size=1, max_size=2)))
    x, out = Buffer("x", shape, dtype), Buffer("out", shape, dtype)
    loops = tuple((LoopVar("i"), e) for e in shape)
    env = Env(list(loops), [x], dims=scope, exact=exact)
    body = draw(_statement(env, Store(out, tuple(v for v, _ in loops), draw(scalars(env, dtype))), 3))
    for position, (v, e) in reversed(list(enumerate(loops))):
        kinds = [ForKind.SERIAL, ForKind.PARALLEL] if position == 0 else [ForKind.SERIAL, ForKind.SERIAL]
        kind = draw(st.sampled_from(kinds))
        body = For(v, as_expr(e), body, kind, draw(st.sampled_from([1, 4])) if kind is ForKind.SERIAL else 1)
    if draw(st.booleans()):
        body = Seq((Assert(binary(BinOp.GE, Size(scope[0]), 0), "runtime-index", "bad {}", (Size(scope[0]),)), body))
    return PrimFunc((x, out), body, free_dims_of((x, out), body))


@st.composite
def _statement(draw: Draw, env: Env, store: Store, depth: int) -> Stmt:
    """``store`` wrapped in, or preceded by, other statements."""
    if depth == 0:
        return store
    dtype = store.buffer.dtype
    kind = draw(st.sampled_from(["let", "cell", "if", "switch", "while", "seq", "vector", "end"]))
    if kind == "let":
        var = LoopVar("v", dtype)
        inner = replace(env, scalars=[*env.scalars, var])
        value = draw(scalars(env, dtype, 2))
        body = Store(store.buffer, store.indices, binary(BinOp.ADD, var, store.value))
        return Let(var, value, draw(_statement(inner, body, depth - 1)))
    if kind == "cell":
        cell = Buffer("acc", (), dtype, Scope.STACK)
        k = LoopVar("k")
        loop = For(k, as_expr(draw(dims(env.dims, 1))), Store(cell, (), draw(scalars(env, dtype, 2)), Combine.SUM))
        finish = Store(store.buffer, store.indices, cell[()])
        return Alloc(cell, Seq((Store(cell, (), literal(0.0, dtype)), loop, draw(_statement(env, finish, depth - 1)))))
    if kind == "if":
        test, then = draw(scalars(env, "bool", 2)), draw(_statement(env, store, depth - 1))
        return If(test, then, store) if draw(st.booleans()) else Seq((store, If(test, then)))
    if kind == "switch":
        r = dim("r", min=1, max=3)
        small = Buffer("tile", (r, 2), dtype, Scope.REGISTER)
        fill = For(LoopVar("j"), Size(r), Store(small, (literal(0), literal(1)), store.value), ForKind.UNROLL)
        body = Alloc(small, Seq((fill, store)))
        return Seq((Switch(as_expr(draw(dims(env.dims, 1))), r, 1, 4, body), store))
    if kind == "while":
        count = Buffer("count", (), "int64", Scope.STACK)
        step = Seq((store, Store(count, (), binary(BinOp.ADD, count[()], 1))))
        start = Store(count, (), literal(0))
        return Alloc(count, Seq((start, While(binary(BinOp.LT, count[()], 2), step))))
    if kind == "vector":
        lanes = Buffer("lanes", (8,), dtype, Scope.STACK)
        v = LoopVar("v")
        return Alloc(lanes, Seq((For(v, literal(8), Store(lanes, (v,), store.value), ForKind.VECTOR), store)))
    if kind == "seq":
        return Seq((draw(_statement(env, store, depth - 1)), Seq(()), store))
    return store


# ---- graph modules ---------------------------------------------------------------------------------------------------


@st.composite
def tensor_types(draw: Draw, scope: tuple[Dim, ...], dtype: str = "float32") -> TensorType:
    """A tensor type over the symbols of ``scope``."""
    return TensorType(tuple(draw(st.lists(dims(scope, 1), max_size=3))), dtype)


@st.composite
def graph_modules(draw: Draw, steps: int = 6) -> IRModule:
    """A module with a well-typed function ``main`` over random operators.

    Its parameters are ``sizes``, an int8 tensor that has one axis for each symbol, ``flag`` and some tensors.
    """
    scope = tuple({d.name: d for d in draw(st.lists(symbols(), min_size=1, max_size=3))}.values())
    bb = BlockBuilder()
    params = [Var("sizes", TensorType(scope, "int8")), Var("flag", TensorType((), "bool"))]
    params += [Var(f"x{i}", draw(tensor_types(scope))) for i in range(draw(st.integers(1, 3)))]
    pool: list[GraphExpr] = list(params[2:])
    attrs = draw(
        st.dictionaries(
            st.text(max_size=6), st.one_of(st.text(), st.integers(), st.floats(), st.booleans()), max_size=2
        )
    )
    with bb.function("main", params, attrs=attrs):
        if draw(st.booleans()):
            with bb.dataflow():
                for _ in range(draw(st.integers(1, steps))):
                    _step(draw, bb, pool, scope, params[1], False)
                pool = [bb.emit_output(pool[-1])]
        for _ in range(draw(st.integers(0, 3))):
            _step(draw, bb, pool, scope, params[1], True)
        bb.emit_func_output(pool[-1] if draw(st.booleans()) else tuple(pool))
    return bb.get()


def _step(
    draw: Draw, bb: BlockBuilder, pool: list[GraphExpr], scope: tuple[Dim, ...], flag: Var, control: bool
) -> None:
    """Emit one more value into the pool; what has no type is left out."""
    a = draw(st.sampled_from(pool))
    kinds = ["unary", "binary", "constant", "reshape", "sum", "tuple", *(["if", "cast"] if control else [])]
    kind = draw(st.sampled_from(kinds))
    assert isinstance(a.type, TensorType)
    try:
        if kind == "unary":
            pool.append(bb.emit(getattr(op, draw(st.sampled_from(UNARY)))(a)))
        elif kind == "binary":
            pool.append(bb.emit(getattr(op, draw(st.sampled_from(BINARY)))(a, draw(st.sampled_from(pool)))))
        elif kind == "constant":
            shape = draw(st.sampled_from([(), (3,), (2, 2), (0, 3), (9, 9)]))
            values = draw(st.lists(st.floats(width=32), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
            pool.append(bb.emit(const(np.array(values, np.float32).reshape(shape))))
        elif kind == "reshape":
            size: DimLike = 1
            for d in a.type.shape:
                size = mul(size, d)
            pool.append(bb.emit(op.reshape(a, shape=(size, 1))))
        elif kind == "sum" and a.type.rank:
            pool.append(bb.emit(op.sum(a, axes=(0,), keepdims=draw(st.booleans()))))
        elif kind == "tuple":
            packed = bb.emit((a, const(1.5)))
            assert isinstance(packed.type, TupleType)
            pool.append(bb.emit(TupleGetItem(packed, 0)))
        elif kind == "cast":
            fresh = dim(f"c{len(pool)}", max=draw(st.sampled_from([None, 9])))
            pool.append(bb.match_cast(a, TensorType((fresh, *a.type.shape[1:]) if a.type.rank else (), "float32")))
        elif kind == "if":
            pool.append(bb.if_then_else(flag, lambda: op.exp(a), lambda: a))
    except InferError:
        return
