"""Kernels in both forms against NumPy, for small and odd extents, with canaries around every array."""

import numpy as np
import pytest

from relaxir.backends.llvm.emit import emit_module
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.target import Target
from relaxir.support.dtypes import DTYPES, info
from relaxir.sym import ceildiv, dim, floordiv, max_, min_, mod
from relaxir.tir import (
    Alloc,
    Assert,
    Bcast,
    Binary,
    BinOp,
    Buffer,
    Call,
    Combine,
    Const,
    For,
    ForKind,
    If,
    Intrinsic,
    Let,
    Prefetch,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Select,
    Seq,
    Size,
    Store,
    Switch,
    Var,
    While,
    as_expr,
    binary,
    call,
    cast,
    const,
    identity,
    maximum,
    minimum,
    select,
)
from tests.backends.emit_harness import Jit

EXTENTS = (0, 1, 2, 3, 7, 16, 33, 1000)
RNG = np.random.default_rng(3)
n, m = dim("n"), dim("m")
KINDS = (ForKind.VECTOR, ForKind.SERIAL, ForKind.PARALLEL)


def vec(name, dtype="float32", shape=(n,), scope=Scope.GLOBAL):
    return Buffer(name, shape, dtype, scope)


def loop(kind, fn, out, *inputs, extent=None):
    """``out[i] = fn(i)`` over a vector."""
    i = Var("i")
    return PrimFunc(
        (*inputs, out), For(i, as_expr(n if extent is None else extent), Store(out, (i,), fn(i)), kind), (n,), 1
    )


def sample(dtype, shape):
    kind = info(dtype)
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(np.bool_)
    if dtype == "bfloat16":
        return to_bf16(RNG.standard_normal(shape).astype(np.float32))
    if kind.is_float:
        return RNG.standard_normal(shape).astype(dtype)
    return RNG.integers(-100 if dtype.startswith("i") else 0, 100, shape).astype(dtype)


def to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def numbers(dtype, x):
    return from_bf16(x) if dtype == "bfloat16" else x


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64-v2"])
def test_every_type_copies_and_adds(target):
    dtypes = list(DTYPES)
    funcs = {}
    for d in dtypes:
        for kind in KINDS:
            x, z, y = vec("x", d), vec("z", d), vec("y", d)
            op = BinOp.XOR if d == "bool" else BinOp.ADD
            funcs[f"{d}_{kind.value}"] = loop(kind, lambda i, x=x, z=z, op=op: Binary(op, x[i], z[i]), y, x, z)
    jit = Jit(funcs, target)
    for name in funcs:
        d = name.split("_")[0]
        for size in EXTENTS:
            x, z = sample(d, size), sample(d, size)
            y = np.zeros_like(x)
            jit(name, x, z, y)
            if d == "bfloat16":
                expected = to_bf16(from_bf16(x) + from_bf16(z))
            else:
                expected = x ^ z if d == "bool" else x + z
            np.testing.assert_array_equal(y, expected, err_msg=f"{name} {size}")


INT_OPS = {
    BinOp.FLOORDIV: np.floor_divide, BinOp.MOD: np.mod, BinOp.MIN: np.minimum, BinOp.MAX: np.maximum, BinOp.MUL: np.multiply,
    BinOp.SUB: np.subtract, BinOp.AND: np.bitwise_and, BinOp.OR: np.bitwise_or, BinOp.XOR: np.bitwise_xor,
    BinOp.TRUNCDIV: lambda a, b: np.trunc(a.astype(np.float64) / b).astype(a.dtype),
    BinOp.TRUNCMOD: np.fmod, BinOp.LT: np.less, BinOp.GE: np.greater_equal, BinOp.EQ: np.equal,
}  # fmt: skip
FLOAT_OPS = {
    BinOp.DIV: np.divide, BinOp.FLOORDIV: np.floor_divide, BinOp.MOD: np.mod, BinOp.TRUNCMOD: np.fmod, BinOp.MIN: np.minimum,
    BinOp.MAX: np.maximum, BinOp.ATAN2: np.arctan2, BinOp.NE: np.not_equal, BinOp.GT: np.greater, BinOp.LE: np.less_equal,
    BinOp.POW: np.power,
}  # fmt: skip


@pytest.mark.parametrize("kind", [ForKind.VECTOR, ForKind.SERIAL])
def test_binary_operators(kind):
    funcs, cases = {}, []
    for dtype, table in (
        *((d, INT_OPS) for d in ("int8", "int32", "int64", "uint8", "uint32", "uint64")),
        ("float32", FLOAT_OPS), ("float64", FLOAT_OPS),
    ):  # fmt: skip
        for op, reference in table.items():
            x, z, y = vec("x", dtype), vec("z", dtype), vec("y", Binary(op, Const(1, dtype), Const(1, dtype)).dtype)
            name = f"{op.name}_{dtype}"
            funcs[name] = loop(kind, lambda i, x=x, z=z, op=op: Binary(op, x[i], z[i]), y, x, z)
            cases.append((name, dtype, y.dtype, reference))
    jit = Jit(funcs)
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2.5, -2.5, 7])
    for name, dtype, result, reference in cases:
        if info(dtype).is_float:
            a, b = (g.reshape(-1).astype(dtype) for g in np.meshgrid(special, special))
        else:
            a, b = sample(dtype, 133), sample(dtype, 133)
            b[b == 0] = 3
            if dtype.startswith("int"):
                a[0], b[0] = np.iinfo(dtype).min, -1
                a[1], b[1] = -7, 2
                a[2], b[2] = 7, -2
        y = np.zeros(a.shape, result)
        jit(name, a, b, y)
        with np.errstate(all="ignore"):
            expected = reference(a, b)
        if "TRUNCDIV" in name and dtype.startswith("int"):
            y, expected = y[1:], expected[1:]  # the most negative number over -1 wraps; the reference does not
        if "ATAN2" in name or "POW" in name:
            np.testing.assert_allclose(y, expected, rtol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(y, expected, err_msg=name)


def test_shifts_and_integer_powers():
    funcs = {}
    for dtype in ("int32", "uint8", "int64"):
        for op in (BinOp.SHL, BinOp.SHR, BinOp.POW):
            x, z, y = vec("x", dtype), vec("z", dtype), vec("y", dtype)
            funcs[f"{op.name}_{dtype}"] = loop(
                ForKind.VECTOR, lambda i, x=x, z=z, op=op: Binary(op, x[i], z[i]), y, x, z
            )
    jit = Jit(funcs)
    for dtype in ("int32", "uint8", "int64"):
        x, z = sample(dtype, 70), RNG.integers(0, 7, 70).astype(dtype)
        for op, reference in ((BinOp.SHL, np.left_shift), (BinOp.SHR, np.right_shift), (BinOp.POW, np.power)):
            y = np.zeros_like(x)
            jit(f"{op.name}_{dtype}", x, z, y)
            np.testing.assert_array_equal(y, reference(x, z), err_msg=f"{op} {dtype}")
    y = np.zeros(2, np.int32)
    jit("SHR_int32", np.array([-5, 5], np.int32), np.array([40, 40], np.int32), y)
    assert y.tolist() == [-1, 0]


def test_casts_between_all_types():
    funcs = {}
    for a in DTYPES:
        for b in DTYPES:
            x, y = vec("x", a), vec("y", b)
            funcs[f"{a}__{b}"] = loop(ForKind.VECTOR, lambda i, x=x, b=b: cast(x[i], b), y, x)
    jit = Jit(funcs)
    for a in DTYPES:
        x = sample(a, 45)
        for b in DTYPES:
            y = np.zeros(45, info(b).numpy)
            jit(f"{a}__{b}", x, y)
            values = numbers(a, x)
            if b == "bfloat16":
                expected = to_bf16(values.astype(np.float32))
            elif b.startswith("uint") and info(a).is_float:
                expected = np.clip(np.trunc(values), 0, None).astype(b)
            else:
                expected = values.astype(b)
            np.testing.assert_array_equal(y, expected, err_msg=f"{a} to {b}")
    x = np.array([np.nan, np.inf, -np.inf, 300.7, -300.7], np.float32)
    y = np.zeros(5, np.int8)
    jit("float32__int8", x, y)
    assert y.tolist() == [0, 127, -128, 127, -128]


@pytest.mark.parametrize("target", ["native", "x86-64-v2"])
def test_half_precision_by_bits(target):
    """Every half-precision number, and rounding of numbers all over its range, in hardware and in software."""
    h, f, y, z = vec("h", "float16"), vec("f"), vec("y"), vec("z", "float16")
    widen = loop(ForKind.VECTOR, lambda i: cast(h[i], "float32"), y, h)
    narrow = loop(ForKind.VECTOR, lambda i: cast(f[i], "float16"), z, f)
    jit = Jit({"widen": widen, "narrow": narrow}, target)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    out = np.zeros(65536, np.float32)
    jit("widen", halves, out)
    np.testing.assert_array_equal(out, halves.astype(np.float32))
    some = RNG.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    finite = halves[np.isfinite(halves)].astype(np.float32)
    near = finite * RNG.choice([1, 1 + 2.0**-11, 1 - 2.0**-12, 1 + 2.0**-10], finite.shape).astype(np.float32)
    for x in (some, near, np.array([65519.9, 65520, 65536, 2.0**-25, 2.0**-24 * 1.5, 2.0**-14 * 0.9999], np.float32)):
        got = np.zeros(x.shape, np.float16)
        jit("narrow", x, got)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, x.astype(np.float16))


UNARY = {
    Intrinsic.NEG: np.negative, Intrinsic.ABS: np.abs, Intrinsic.SIGN: np.sign, Intrinsic.FLOOR: np.floor, Intrinsic.CEIL: np.ceil,
    Intrinsic.ROUND: np.round, Intrinsic.TRUNC: np.trunc, Intrinsic.ISNAN: np.isnan, Intrinsic.ISINF: np.isinf,
    Intrinsic.EXP: np.exp, Intrinsic.LOG: np.log, Intrinsic.TANH: np.tanh, Intrinsic.SIN: np.sin, Intrinsic.ACOSH: np.arccosh,
    Intrinsic.SQRT: np.sqrt, Intrinsic.TAN: np.tan, Intrinsic.COSH: np.cosh, Intrinsic.ASIN: np.arcsin,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_unary_functions(dtype):
    funcs = {}
    for fn in UNARY:
        x = vec("x", dtype)
        y = vec("y", Call(fn, Const(1.0, dtype)).dtype)
        funcs[fn.value] = loop(ForKind.VECTOR, lambda i, x=x, fn=fn: Call(fn, x[i]), y, x)
    jit = Jit(funcs)
    x = np.concatenate([RNG.standard_normal(50), [0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, 1.5, -2.5]]).astype(dtype)
    for fn, reference in UNARY.items():
        with np.errstate(all="ignore"):
            expected = reference(x)
        y = np.zeros(x.shape, expected.dtype)
        jit(fn.value, x, y)
        tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=0, err_msg=fn.value)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_reductions(target):
    funcs, references = {}, {}
    table = {
        Combine.SUM: np.add, Combine.PROD: np.multiply, Combine.MAX: np.maximum, Combine.MIN: np.minimum,
        Combine.AND: np.logical_and, Combine.OR: np.logical_or,
    }  # fmt: skip
    for how, reference in table.items():
        for dtype in (
            ("bool",) if how in (Combine.AND, Combine.OR) else ("float32", "float64", "int32", "uint8", "float16")
        ):
            for kind in (ForKind.VECTOR, ForKind.SERIAL):
                x, s, i = vec("x", dtype), vec("s", dtype, ()), Var("i")
                start = Store(s, (), identity(how, dtype))
                body = Seq((start, For(i, Size(n), Store(s, (), x[i], how), kind)))
                name = f"{how.value}_{dtype}_{kind.value}"
                funcs[name] = PrimFunc((x, s), body, (n,), 1)
                references[name] = (reference, dtype)
    jit = Jit(funcs, target)
    for name, (reference, dtype) in references.items():
        for size in EXTENTS:
            x = sample(dtype, size)
            if dtype == "float16":
                x = (np.abs(x) * 0.01 + (reference is np.multiply)).astype(dtype)
            s = np.zeros((), x.dtype)
            jit(name, x, s)
            if size == 0 and reference in (np.maximum, np.minimum):
                continue
            expected = reference.reduce(
                x.astype(np.float64) if dtype == "float16" else x, dtype=None if dtype != "uint8" else "uint8"
            )
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(
                    s.astype(np.float64), np.asarray(expected).astype(x.dtype).astype(np.float64),
                    rtol={"float32": 2e-4, "float16": 5e-3}.get(dtype, 1e-9), atol=1e-4 if dtype == "float32" else 0,
                    err_msg=f"{name} {size}",
                )  # fmt: skip
    x = np.zeros(100, np.float32)
    x[37] = np.nan
    s = np.zeros((), np.float32)
    jit("max_float32_vector", x, s)
    assert np.isnan(s)


def test_rows_softmax_and_layernorm():
    """Loop form with cells per row, as a schedule would write it."""
    x, y, i, j = vec("x", shape=(n, m)), vec("y", shape=(n, m)), Var("i"), [Var(f"j{k}") for k in range(3)]
    top, total = vec("top", shape=(), scope=Scope.STACK), vec("total", shape=(), scope=Scope.STACK)
    body = Alloc(top, Alloc(total, Seq((
        Store(top, (), const(float("-inf"), "float32")),
        For(j[0], Size(m), Store(top, (), x[i, j[0]], Combine.MAX), ForKind.VECTOR),
        Store(total, (), const(0.0, "float32")),
        For(j[1], Size(m), Seq((
            Store(y, (i, j[1]), call(Intrinsic.EXP, x[i, j[1]] - top[()])), Store(total, (), y[i, j[1]], Combine.SUM),
        )), ForKind.VECTOR),
        For(j[2], Size(m), Store(y, (i, j[2]), y[i, j[2]] / total[()]), ForKind.VECTOR),
    ))))  # fmt: skip
    softmax = PrimFunc((x, y), For(i, Size(n), body, ForKind.PARALLEL), (n, m), 1)
    jit = Jit({"softmax": softmax})
    for rows, columns in ((0, 5), (3, 0), (1, 1), (4, 7), (5, 16), (3, 100), (2, 1000)):
        a = RNG.standard_normal((rows, columns)).astype(np.float32)
        out = np.zeros_like(a)
        jit("softmax", a, out)
        e = np.exp(a - a.max(axis=1, keepdims=True)) if columns else a
        np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True) if columns else e, rtol=1e-5)


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64-v2"])
def test_broadcast_axes(target):
    """Versions for axes that may have one element, and gathers where there are too many."""
    dims = [dim(c) for c in "abcd"]
    params = [vec(f"x{k}", shape=(d,)) for k, d in enumerate(dims)]
    y, i = vec("y"), Var("i")
    total = params[0][Bcast(i, dims[0])]
    for p, d in zip(params[1:], dims[1:], strict=True):
        total = total + p[Bcast(i, d)]
    func = PrimFunc((*params, y), For(i, Size(n), Store(y, (i,), total), ForKind.VECTOR), (*dims, n), 1)
    jit = Jit({"f": func}, target)
    for size in (1, 2, 5, 17, 33):
        for bits in range(16):
            arrays = [RNG.standard_normal(size if bits >> k & 1 else 1).astype(np.float32) for k in range(4)]
            out = np.zeros(size, np.float32)
            jit("f", *arrays, out)
            np.testing.assert_allclose(out, np.broadcast_to(sum(arrays), size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("kind", [ForKind.VECTOR, ForKind.SERIAL])
def test_lazy_select_conditions_gather_scatter(kind, target):
    x, y, i, index = vec("x"), vec("y"), Var("i"), vec("index", "int64")
    guard = binary(BinOp.AND, as_expr(i - 2) >= 0, as_expr(i - 2) < Size(n))
    shifted = loop(kind, lambda i: Select(binary(BinOp.GE, i, 2), x[i - 2], const(7.0, "float32")), y, x)
    gather = loop(kind, lambda i: x[index[i]] * 2.0, y, x, index)
    strided = PrimFunc((vec("s", shape=(n * 3,)), y), Store(y, (const(0),), const(0.0, "float32")), (n,), 1)
    s = strided.params[0]
    strided = PrimFunc((s, y), For(i, Size(n), Store(y, (i,), s[i * 3 + 1]), kind), (n,), 1)
    scatter = PrimFunc((index, x, y), For(i, Size(n), Store(y, (index[i],), x[i]), kind), (n,), 1)
    masked = PrimFunc(
        (x, y),
        For(i, Size(n), If(x[i] > 0.0, Store(y, (i,), x[i]), Store(y, (i,), const(-1.0, "float32"))), kind),
        (n,),
        1,
    )
    positive = PrimFunc((x, vec("t", shape=())), For(i, Size(n), Store(y, (i,), x[i])), (n,), 1)
    t = positive.params[1]
    positive = PrimFunc((x, t), Seq((
        Store(t, (), const(0.0, "float32")), For(i, Size(n), If(x[i] > 0.0, Store(t, (), x[i], Combine.SUM)), kind))), (n,), 1)  # fmt: skip
    reverse = loop(kind, lambda i: x[Size(n) - 1 - i], y, x)
    iota = loop(kind, lambda i: cast(i * 3, "float32") + cast(Size(n), "float32"), y)
    mods = PrimFunc((x, y), For(i, Size(n), Store(y, ((i // 4) * 4 + i % 4,), x[i]), kind), (n,), 1)
    first = Select(Size(n) >= 8, x[const(0)], const(0.0, "float32"))  # shared by the lanes that a condition leaves
    shared = loop(kind, lambda i: Select(x[i] > 0.0, first, const(1.0, "float32")), y, x)
    funcs = {
        "shared": shared, "shifted": shifted, "gather": gather, "strided": strided, "scatter": scatter, "masked": masked, "positive": positive,
        "reverse": reverse, "iota": iota, "mods": mods,
    }  # fmt: skip
    jit = Jit(funcs, target)
    del guard
    for size in EXTENTS:
        a = RNG.standard_normal(size).astype(np.float32)
        perm = RNG.permutation(size).astype(np.int64)
        head = a[0] if size >= 8 else 0
        expected = {
            "shared": ([a], np.where(a > 0, head, 1).astype(np.float32)),
            "shifted": ([a], np.concatenate([np.full(2, 7, np.float32), a])[:size]),
            "gather": ([a, perm], a[perm] * 2),
            "scatter": ([perm, a], None),
            "masked": ([a], np.where(a > 0, a, -1).astype(np.float32)),
            "reverse": ([a], a[::-1]),
            "iota": ([], (np.arange(size) * 3 + size).astype(np.float32)),
            "mods": ([a], a),
        }
        for name, (inputs, answer) in expected.items():
            out = np.zeros(size, np.float32)
            jit(name, *inputs, out)
            if name == "scatter":
                answer = np.zeros(size, np.float32)
                answer[perm] = a
            np.testing.assert_array_equal(out, answer, err_msg=f"{name} {size}")
        wide = RNG.standard_normal(size * 3).astype(np.float32)
        out = np.zeros(size, np.float32)
        jit("strided", wide, out, dims={"n": size})
        np.testing.assert_array_equal(out, wide[1::3])
        t = np.zeros((), np.float32)
        jit("positive", a, t)
        np.testing.assert_allclose(t, a[a > 0].sum(), rtol=1e-4)


def test_vector_body_with_inner_loops_and_private_buffers():
    """out[j] = sum over k of a[k, j] squared, lanes over j; once with a private cell, once straight into memory."""
    a, y, j, k = vec("a", shape=(m, n)), vec("y"), Var("j"), Var("k")
    acc = vec("acc", shape=(2,), scope=Scope.STACK)
    cell = Alloc(acc, Seq((
        Store(acc, (const(0),), const(0.0, "float32")),
        Store(acc, (const(1),), const(1.0, "float32")),
        For(k, Size(m), Store(acc, (const(0),), a[k, j] * a[k, j], Combine.SUM)),
        Store(y, (j,), acc[const(0)] * acc[const(1)]),
    )))  # fmt: skip
    straight = Seq(
        (Store(y, (j,), const(0.0, "float32")), For(k, Size(m), Store(y, (j,), a[k, j] * a[k, j], Combine.SUM)))
    )
    funcs = {
        name: PrimFunc((a, y), For(j, Size(n), b, ForKind.VECTOR), (m, n), 1)
        for name, b in (("cell", cell), ("straight", straight))
    }
    jit = Jit(funcs)
    for size in EXTENTS:
        data = RNG.standard_normal((6, size)).astype(np.float32)
        for name in funcs:
            out = np.zeros(size, np.float32)
            jit(name, data, out)
            np.testing.assert_allclose(out, (data * data).sum(0), rtol=1e-5)


def test_block_form():
    b = ProgramBuilder("f")
    x, w, y = b.input("x", (n, m), "float32"), b.input("w", (m, 5), "float32"), b.output("y", (n, 5), "float32")
    t = b.temp("t", (n, m), "float32")
    b.compute(t, lambda i, k: maximum(x[i, k], 0.0))
    b.reduce(y, (m,), Combine.SUM, lambda i, j, k: t[i, k] * w[k, j])
    b2 = ProgramBuilder("cumsum")
    x2, y2 = b2.input("x", (n, m), "float32"), b2.output("y", (n, m), "float32")
    cell, k = vec("cell", shape=(), scope=Scope.STACK), Var("k")
    b2.block("scan", (n,), lambda i: Alloc(cell, Seq((
        Store(cell, (), const(0.0, "float32")),
        For(k, Size(m), Seq((Store(cell, (), cell[()] + x2[i, k]), Store(y2, (i, k), cell[()])))),
    ))))  # fmt: skip
    jit = Jit({"f": b.build(), "cumsum": b2.build()})
    for rows, columns in ((0, 3), (1, 1), (3, 0), (7, 9), (33, 40)):
        a, c = (
            RNG.standard_normal((rows, columns)).astype(np.float32),
            RNG.standard_normal((columns, 5)).astype(np.float32),
        )
        out = np.zeros((rows, 5), np.float32)
        jit("f", a, c, out)
        np.testing.assert_allclose(out, np.maximum(a, 0) @ c, rtol=1e-4, atol=1e-5)
        run = np.zeros_like(a)
        jit("cumsum", a, run)
        np.testing.assert_allclose(run, np.cumsum(a, axis=1), rtol=1e-4, atol=1e-5)


def test_parallel_nest_switch_while_prefetch():
    x, y = vec("x", shape=(n, m)), vec("y", shape=(n, m))
    i, j, k = Var("i"), Var("j"), Var("k")
    body = Store(y, (i, j), x[i, j] * cast(i * 100 + j, "float32"))
    nest = PrimFunc((x, y), For(i, Size(n), For(j, Size(m), body, ForKind.PARALLEL), ForKind.PARALLEL), (n, m), 1)
    r = dim("r")
    reg = vec("reg", shape=(r, 8), scope=Scope.REGISTER)
    rows, base = minimum(Size(n) - Var("z"), 3), Var("base")
    del rows
    tile = Alloc(reg, Seq((
        For(i, Size(r), For(j, const(8), Store(reg, (i, j), x[base + i, j] + 1.0), ForKind.VECTOR), ForKind.UNROLL),
        For(k, Size(r), For(j, const(8), Store(y, (base + k, j), reg[Size(r) - 1 - k, j]), ForKind.VECTOR), ForKind.UNROLL),
    )))  # fmt: skip
    step = Var("step")
    tiles = For(step, as_expr(ceildiv(n, 3)), Let(base, step * 3, Seq((
        Prefetch(x, (base, const(0)), 2), Switch(minimum(Size(n) - base, 3), r, 1, 4, tile)))), ForKind.SERIAL)  # fmt: skip
    switch = PrimFunc((x, y), tiles, (n, m), 1)
    cell, out = vec("cell", "int64", (), Scope.STACK), vec("out", "int64", (1,))
    collatz = PrimFunc((vec("start", "int64", (1,)), out), Seq((
        Alloc(cell, Seq((
            Store(cell, (), vec("start", "int64", (1,))[const(0)]), Store(out, (const(0),), const(0)),
        ))),)), (), 1)  # fmt: skip
    start = collatz.params[0]
    collatz = PrimFunc((start, out), Alloc(cell, Seq((
        Store(cell, (), start[const(0)]), Store(out, (const(0),), const(0)),
        While(cell[()] > 1, Seq((
            Store(cell, (), select(binary(BinOp.EQ, cell[()] % 2, 0), cell[()] // 2, cell[()] * 3 + 1)),
            Store(out, (const(0),), out[const(0)] + 1),
        ))),
    ))), (), 1)  # fmt: skip
    jit = Jit({"nest": nest, "switch": switch, "collatz": collatz})
    for rows_, columns in ((0, 8), (1, 8), (2, 8), (3, 8), (8, 8), (301, 8), (400, 700)):
        a = RNG.standard_normal((rows_, columns)).astype(np.float32)
        got = np.zeros_like(a)
        jit("nest", a, got)
        scale = (np.arange(rows_)[:, None] * 100 + np.arange(columns)).astype(np.float32)
        np.testing.assert_array_equal(got, a * scale)
        if columns == 8:
            jit("switch", a, got)
            expected = np.concatenate([a[z : z + 3][::-1] for z in range(0, rows_, 3)] or [a]) + 1
            np.testing.assert_array_equal(got, expected)
    steps = np.zeros(1, np.int64)
    jit("collatz", np.array([27]), steps)
    assert steps[0] == 111


def test_assertions_stop_before_the_access():
    x, y, index, i = vec("x"), vec("y", shape=(m,)), vec("index", "int64", (m,)), Var("i")
    ok = binary(BinOp.AND, index[i] >= 0, index[i] < Size(n))
    guarded = Seq((Assert(ok, "runtime-index", "index {} at {}", (index[i], i)), Store(y, (i,), x[index[i]])))
    funcs = {kind.value: PrimFunc((x, index, y), For(i, Size(m), guarded, kind), (n, m), 1) for kind in KINDS}
    jit = Jit(funcs)
    data = RNG.standard_normal(10).astype(np.float32)
    for kind in KINDS:
        idx = RNG.integers(0, 10, 3000)
        out = np.zeros(3000, np.float32)
        assert jit(kind.value, data, idx, out) == 0
        np.testing.assert_array_equal(out, data[idx])
        idx[[1500, 2999]] = (1 << 40, -1)
        assert jit(kind.value, data, idx, out) != 0
        assert jit.workspace[1] == 1 << 40
        assert jit.workspace[2] == 1500
    assert [s.format for s in jit.sites.sites] == ["index %lld at %lld"]


def test_symbolic_arithmetic():
    """Shape expressions computed natively agree with Python for negative intermediate values too."""
    exprs = [
        floordiv(n - 7, 3), mod(n - 7, 3), ceildiv(n - 7, 3), min_(n, m, 5), max_(n - m, 2), floordiv(n * 4 + 3, 4), n * n - m,
        ceildiv(n, 16) * 16, floordiv(n, m + 1), mod(n, m + 1), ceildiv(n, m + 1), floordiv(n - 20, m + 1),
    ]  # fmt: skip
    y = Buffer("y", (len(exprs),), "int64")
    body = Seq(tuple(Store(y, (const(k),), as_expr(e)) for k, e in enumerate(exprs)))
    jit = Jit({"f": PrimFunc((y,), body, (n, m), 1)})

    def reference(a, b):
        return [
            (a - 7) // 3, (a - 7) % 3, -(-(a - 7) // 3), min(a, b, 5), max(a - b, 2), a, a * a - b, -(-a // 16) * 16,
            a // (b + 1), a % (b + 1), -(-a // (b + 1)), (a - 20) // (b + 1),
        ]  # fmt: skip

    for a in (0, 1, 5, 7, 16, 1000):
        for b in (0, 1, 3, 50):
            got = np.zeros(len(exprs), np.int64)
            jit("f", got, dims={"n": a, "m": b})
            assert got.tolist() == reference(a, b)


def test_unrolled_serial_loop_and_constant_vectors():
    funcs = {}
    for size in (1, 2, 3, 5, 8, 13, 16, 20, 31, 32, 48, 100, 1000):
        x, y, s, i = vec("x", shape=(size,)), vec("y", shape=(size,)), vec("s", shape=()), Var("i")
        reduce_ = Seq((
            Store(s, (), const(0.0, "float32")), For(i, const(size), Store(s, (), x[i], Combine.SUM), ForKind.VECTOR),
            For(Var("q"), const(0), Store(s, (), const(1.0, "float32"))),
        ))  # fmt: skip
        both = Seq((reduce_, For(i, const(size), Store(y, (i,), x[i] + 1.0), ForKind.VECTOR)))
        funcs[f"v{size}"] = PrimFunc((x, y, s), both, (), 2)
    x, y, i = vec("x"), vec("y"), Var("i")
    funcs["unroll"] = PrimFunc((x, y), For(i, Size(n), Store(y, (i,), x[i] * 3.0), ForKind.SERIAL, 4), (n,), 1)
    jit = Jit(funcs)
    for name, func in funcs.items():
        if name == "unroll":
            for size in EXTENTS:
                a = RNG.standard_normal(size).astype(np.float32)
                out = np.zeros_like(a)
                jit(name, a, out)
                np.testing.assert_array_equal(out, a * 3)
            continue
        size = func.params[0].shape[0]
        a = RNG.standard_normal(size).astype(np.float32)
        out, total = np.zeros_like(a), np.zeros((), np.float32)
        jit(name, a, out, total)
        np.testing.assert_array_equal(out, a + 1)
        np.testing.assert_allclose(total, a.sum(), rtol=1e-4, atol=1e-5)


def test_the_text_is_the_same_every_time():
    func = loop(ForKind.VECTOR, lambda i: call(Intrinsic.TANH, vec("x")[i]), vec("y"))
    x, y = vec("x"), vec("y")
    func = loop(ForKind.VECTOR, lambda i: call(Intrinsic.TANH, x[i]), y, x)
    target = Target.parse("x86-64-v3")
    assert emit_module({"f": func}, target, SiteTable()) == emit_module({"f": func}, target, SiteTable())
