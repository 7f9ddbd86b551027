"""The interpreter on graph functions: binding of sizes, calls, control flow, errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from relaxir.ir.attrs import Attrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import (
    Bind,
    BindingBlock,
    Body,
    CallDPS,
    CallTIR,
    Check,
    FuncCall,
    Function,
    If,
    MatchCast,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
    const,
)
from relaxir.ir.module import IRModule
from relaxir.ir.op import Op
from relaxir.ir.types import AnyType, ShapeType, TensorType
from relaxir.ops.unary import Exp
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import ArgumentError, InternalError, RuntimeShapeError, UnsupportedError
from relaxir.sym import DimLike, Relation, dim
from relaxir.tir import Combine, ProgramBuilder

N, M, K, L = dim("n"), dim("m"), dim("k", min=1), dim("l")


def tensor(*shape, dtype="float32"):
    return TensorType(shape, dtype)


def function(params, bindings, result, where=()):
    return Function(tuple(params), Body((BindingBlock(tuple(bindings)),), result), result.type, where)


class Untyped(Op[Attrs]):
    """Types are as the calls state them."""

    def infer(self, args, attrs, ctx):
        return AnyType()


class Add(Untyped):
    name = "add"

    def reference(self, args, attrs):
        return args[0] + args[1]


@dataclass(frozen=True, slots=True)
class ShapeAttrs(Attrs):
    shape: tuple[DimLike, ...] = ()


class Reshape(Untyped):
    name = "reshape"
    Attrs = ShapeAttrs

    def reference(self, args, attrs):
        assert all(type(d) is int for d in attrs.shape)
        return args[0].reshape(attrs.shape)


class ToShape(Untyped):
    name = "tensor_to_shape"

    def reference(self, args, attrs):
        return args[0]


class Nonzero(Untyped):
    name = "nonzero"

    def reference(self, args, attrs):
        return np.nonzero(args[0])[0]


def op(kind, args, type_, attrs=None):
    return OpCall(kind(), tuple(args), attrs or Attrs(), type_)


def test_operators_dims_and_fresh_results():
    x, y, z = Var("x", tensor(N, 2 * M)), Var("y", tensor(N, 2 * M)), Var("z", tensor(2 * N * M))
    f = function(
        [x],
        [Bind(y, op(Exp, [x], y.type)), Bind(z, op(Reshape, [y], z.type, ShapeAttrs((2 * N * M,))))],
        TupleExpr((z, x, z)),
    )
    a = np.random.rand(3, 4).astype("f4")
    out = evaluate(IRModule({"main": f}), "main", a)
    np.testing.assert_allclose(out[0], np.exp(a).reshape(-1))
    assert not np.may_share_memory(out[1], a) and not np.may_share_memory(out[0], out[2])
    with pytest.raises(RuntimeShapeError, match="axis 1 of argument `x` must be `m \\* 2` = 4, got 5"):
        evaluate(IRModule({"main": f}), "main", np.zeros((3, 5), "f4"))


def test_argument_errors():
    x, y = Var("x", tensor(N, 4)), Var("y", tensor(N, K))
    m = IRModule({"main": function([x, y], [], x, (Relation("<=", N, K),))})
    good = np.zeros((2, 4), "f4")
    evaluate(m, "main", good, good)
    cases = (
        ((good,), ArgumentError, "expected 2 arguments, got 1"),
        ((good.astype("f8"), good), ArgumentError, "argument `x` must be float32, got float64"),
        ((good[0], good), ArgumentError, "argument `x` must have rank 2 as f32\\[n, 4\\], got 1"),
        ((good[:, :3], good), ArgumentError, "main: axis 1 of argument `x` must be 4, got 3"),
        ((good, np.zeros((3, 4), "f4")), RuntimeShapeError, "axis 0 of argument `y` must be `n` = 2, got 3"),
        ((good, np.zeros((2, 0), "f4")), ArgumentError, "`k` must be at least 1, got 0"),
        ((good, np.zeros((2, 1), "f4")), RuntimeShapeError, "needs n <= k, but the sides are 2 and 1"),
    )
    for args, error, text in cases:
        with pytest.raises(error, match=text):
            evaluate(m, "main", *args)


def test_tensor_programs():
    f = ProgramBuilder("rowsum")
    p, q, r = f.input("p", (N, M), "float32"), f.output("q", (N,), "float32"), f.output("r", (N, M), "float32")
    f.reduce(q, (M,), Combine.SUM, lambda i, k: p[i, k])
    f.compute(r, lambda i, j: p[i, j] - q[i])
    x = Var("x", tensor(K, 2 * L))
    out = Var("t", TupleExpr((Var("a", tensor(K)), Var("b", tensor(K, 2 * L)))).type)
    second = Var("s", tensor(K, 2 * L))
    main = function(
        [x], [Bind(out, CallTIR("rowsum", (x,), (2 * L, K), out.type)), Bind(second, TupleGetItem(out, 1))], second
    )
    func = f.build()
    assert [d.name for d in func.dims] == ["m", "n"]
    a = np.random.rand(3, 4).astype("f4")
    got = evaluate(IRModule({"main": main, "rowsum": func}), "main", a.T.copy().T)
    np.testing.assert_allclose(got, a - a.sum(1, keepdims=True), rtol=1e-6)


def test_data_dependent_sizes():
    x, ix, s = Var("x", tensor(N, dtype="int64")), Var("ix", tensor(L, dtype="int64")), Var("s", ShapeType((M, K)))
    y = Var("y", tensor(M, K, dtype="int64"))
    main = function(
        [x],
        [
            Bind(ix, op(Nonzero, [x], ix.type), (L,)),
            Bind(s, op(ToShape, [ix], s.type), (M, K)),
            Bind(y, op(Reshape, [ix], y.type, ShapeAttrs((M, K)))),
        ],
        TupleExpr((ix, y, ShapeExpr((L, M + K)))),
    )
    got, reshaped, shape = evaluate(IRModule({"main": main}), "main", np.array([0, 5, 6]))
    assert got.tolist() == [1, 2] and reshaped.tolist() == [[1, 2]] and shape == (2, 3)


def test_match_cast_and_check():
    x, y = Var("x", tensor(N, M)), Var("y", tensor(K, K))
    main = function([x], [MatchCast(y, x, (K,)), Check(Relation("<=", K, 3), "runtime-shape", "k is {}", (K,))], y)
    m = IRModule({"main": main})
    assert evaluate(m, "main", np.ones((3, 3), "f4")).shape == (3, 3)
    with pytest.raises(RuntimeShapeError, match="axis 1 of the value must be `k` = 2, got 3"):
        evaluate(m, "main", np.ones((2, 3), "f4"))
    with pytest.raises(RuntimeShapeError, match="k is 4"):
        evaluate(m, "main", np.ones((4, 4), "f4"))


def test_recursion_and_branches():
    c, x = Var("c", tensor(dtype="int64")), Var("x", tensor(N))
    less, y, z = Var("l", tensor(dtype="bool")), Var("y", tensor(N)), Var("z", tensor(N))
    d = Var("d", tensor(dtype="int64"))

    class Positive(Untyped):
        name = "positive"

        def reference(self, args, attrs):
            return args[0] > 0

    again = Body(
        (
            BindingBlock(
                (
                    Bind(d, op(Add, [c, const(-1)], d.type)),
                    Bind(y, op(Add, [x, x], x.type)),
                    Bind(z, FuncCall("main", (d, y), x.type)),
                )
            ),
        ),
        z,
    )
    stop = Body((), x)
    out = Var("o", tensor(N))
    main = function([c, x], [Bind(less, op(Positive, [c], less.type)), Bind(out, If(less, again, stop, x.type))], out)
    got = evaluate(IRModule({"main": main}), "main", np.asarray(3), np.ones(2, "f4"))
    assert got.tolist() == [8, 8]


def test_libraries():
    x, y = Var("x", tensor(N)), Var("y", tensor(N, 2))

    def twice(a, out):
        out[:] = a[:, None]

    for target in (twice, "twice"):
        m = IRModule({"main": function([x], [Bind(y, CallDPS(target, (x,), y.type))], y)})
        got = evaluate(m, "main", np.arange(2, dtype="f4"), libraries={"twice": twice})
        assert got.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(UnsupportedError, match="no implementation of the library function `twice`"):
        evaluate(m, "main", np.arange(2, dtype="f4"))


def test_wrong_inference_is_found():
    x, y = Var("x", tensor(N)), Var("y", tensor(2 * N))
    m = IRModule({"main": function([x], [Bind(y, op(Exp, [x], y.type))], y)})
    with pytest.raises(InternalError, match="the value of `y` contradicts its type"):
        evaluate(m, "main", np.ones(2, "f4"))


def test_bfloat16_goes_through_references():
    x = Var("x", tensor(N, dtype="bfloat16"))
    y = Var("y", x.type)
    m = IRModule({"main": function([x], [Bind(y, op(Exp, [x], x.type))], y)})
    assert evaluate(m, "main", np.array([0, 0x3F80], "u2")).tolist() == [0x3F80, 0x402E]


def test_builder_modules_run():
    bb = BlockBuilder()
    x = Var("x", tensor(N, 4))
    with bb.function("main", (x,)):
        bb.emit_func_output(bb.emit(op(Exp, [x], x.type)))
    a = np.zeros((2, 4), "f4")
    assert evaluate(bb.get(), "main", a).sum() == 8
