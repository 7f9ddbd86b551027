"""Host programs through the real runtime: memory, checks, calls, branches, loops."""

import ctypes
from functools import partial

import numpy as np

from relaxir.backends.llvm.api_ir import HostFunction
from relaxir.backends.llvm.compile import CompileOptions, compile_objects
from relaxir.backends.llvm.emit import emit_module, run_together
from relaxir.backends.llvm.emit_sites import SiteTable, code_name
from relaxir.backends.llvm.host_emit import Surroundings
from relaxir.backends.llvm.library import Library
from relaxir.backends.llvm.target import Target
from relaxir.sym import dim
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    Assert,
    BindDim,
    BinOp,
    Buffer,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Extent,
    For,
    ForKind,
    If,
    OpenFrame,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Store,
    Var,
    While,
    as_expr,
    binary,
    const,
)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    )  # fmt: skip


CODES = {"f": 2, "i": 0, "u": 1, "b": 6}


def tensor(array, keep, null=False):
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*([0] * array.ndim if null else array.shape))
    keep.append((shape, array))
    data = None if null else array.ctypes.data
    return DLTensor(data, (1, 0), array.ndim, CODES[array.dtype.kind], array.itemsize * 8, 1, shape, None, 0)


class Program:
    """A loaded library with host programs and kernels."""

    def __init__(self, funcs, weights=None, constants=(), target="native", workers=None):
        self.sites = SiteTable()
        goal = Target.parse(target)
        self.names = [n for n, f in funcs.items() if f.is_host]
        kernels = {n: f for n, f in funcs.items() if not f.is_host}
        hosts = {n: f for n, f in funcs.items() if f.is_host}
        around = Surroundings(constants, kernels, together=run_together(hosts.values()))
        texts = [emit_module(kernels, goal, self.sites, around)] if kernels else []
        texts.append(emit_module(hosts, goal, self.sites, around))
        library = Library.from_texts(
            texts, goal, functions=[HostFunction(n, len(f.inputs), f.outputs) for n, f in hosts.items()],
            sites=self.sites.sites, weights=weights,
            compiler=partial(compile_objects, options=CompileOptions("sroa"), workers=workers),
        )  # fmt: skip
        self.loaded = library.load()
        self.context = self.loaded.create()

    def call(self, name, inputs, outputs, null=True):
        keep = []
        ins = (DLTensor * max(len(inputs), 1))(*(tensor(a, keep) for a in inputs))
        outs = (DLTensor * max(len(outputs), 1))(*(tensor(a, keep, null) for a in outputs))
        code = self.loaded.cdll.rx_call(self.context, self.names.index(name), ins, len(inputs), outs, len(outputs))
        if code:
            return code_name(code), self.loaded.last_error(self.context)
        results = []
        for out, example in zip(outs, outputs, strict=True):
            shape = [out.shape[i] for i in range(out.ndim)]
            count = int(np.prod(shape))
            raw = ctypes.string_at(out.data, count * example.itemsize) if count else b""
            results.append(np.frombuffer(raw, example.dtype).reshape(shape))
            if null:
                self.loaded.cdll.rx_free(self.context, out.data)
        stats = np.zeros(5, np.int64)
        self.loaded.cdll.rx_stats(self.context, stats.ctypes.data)
        assert stats[1] == 0, "a result block leaked"
        return results


n, m = dim("n"), dim("m")


def elementwise(name, fn, inputs=1):
    k = dim("k")
    params = [Buffer(f"x{i}", (k,), "float32") for i in range(inputs)]
    y, i = Buffer("y", (k,), "float32"), Var("i")
    return PrimFunc((*params, y), For(i, Size(k), Store(y, (i,), fn(*(p[i] for p in params))), ForKind.VECTOR), (k,), 1)


DOUBLE = elementwise("double", lambda x: x + x)
ADD = elementwise("add", lambda a, b: a + b, 2)
HOST = {"scope": "host"}


def host(params, body, outputs=1):
    return PrimFunc(params, Seq(tuple(body)), (), outputs, 0, HOST)


def vec(name, shape=(n,), dtype="float32", scope=Scope.GLOBAL):
    return Buffer(name, shape, dtype, scope)


def main_program():
    x, w, t, u, y = (
        vec("x", (n, 4)),
        vec("w", (4,)),
        vec("t", (n * 4,), scope=Scope.FRAME),
        vec("u", (n * 4,)),
        vec("y", (n * 4,)),
    )
    flat = vec("flat", (n * 4,))
    return host(
        (x, y),
        [
            BindDim(n, Extent(x, 0)),
            Assert(
                binary(BinOp.EQ, Extent(x, 1), 4), "runtime-shape", "main: axis 1 is {}, expected 4", (Extent(x, 1),)
            ),
            Assert(as_expr(n) <= 100, "runtime-shape", "main: n is {}, 100 % is most", (as_expr(n),)),
            ConstantData(w, 1),
            OpenFrame(0, n * 32),
            Alias(flat, x),
            AllocFrame(t, 0, 0),
            CallKernel("double", (flat, t), (n * 4,)),
            AllocFrame(u, 0, n * 16),
            CallKernel("add", (t, flat, u), (n * 4,)),
            AllocOutput(y, 0),
            CallKernel("addw", (u, w, y), (n,)),
        ],
    )


def add_weights():
    k = dim("k")
    x, w, y, i, j = vec("x", (k * 4,)), vec("w", (4,)), vec("y", (k * 4,)), Var("i"), Var("j")
    store = Store(y, (i * 4 + j,), x[i * 4 + j] + w[j])
    return PrimFunc((x, w, y), For(i, Size(k), For(j, const(4), store, ForKind.VECTOR), ForKind.PARALLEL), (k,), 1)


def test_main_program(workers):
    weights = np.zeros(32, np.float32)
    weights[16:20] = [1, 2, 3, 4]
    funcs = {"double": DOUBLE, "add": ADD, "addw": add_weights(), "main": main_program()}
    p = Program(funcs, weights.tobytes(), (0, 64), workers=workers)
    for size in (0, 1, 5, 100):
        x = np.random.default_rng(0).standard_normal((size, 4)).astype(np.float32)
        expected = (3 * x + [1, 2, 3, 4]).astype(np.float32).reshape(-1)
        (y,) = p.call("main", [x], [np.zeros(0, np.float32)])
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        mine = np.zeros(size * 4, np.float32)
        p.call("main", [x], [mine], null=False)
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
    bad = [
        np.zeros((3, 5), np.float32),
        np.zeros((200, 4), np.float32),
        np.zeros((2, 2, 4), np.float32),
        np.zeros((2, 4)),
    ]
    answers = [p.call("main", [b], [np.zeros(0, np.float32)]) for b in bad]
    assert answers == [
        ("runtime-shape", "main: axis 1 is 5, expected 4"),
        ("runtime-shape", "main: n is 200, 100 % is most"),
        ("argument-rank", "main: argument `x` has 3 axes, expected 2"),
        ("argument-dtype", "main: argument `x` is not of type float32"),
    ]
    wrong = p.call("main", [np.zeros((2, 4), np.float32)], [np.zeros(7, np.float32)], null=False)
    assert wrong == ("runtime-shape", "main: result 0, axis 0: the given array has size 7, expected 8")


def test_branch_defines_dims_and_memory(workers):
    c, x, y = vec("c", (), "bool"), vec("x"), vec("y", (m,))
    r, twice = vec("r", (m,)), vec("twice", (n,))
    body = [
        BindDim(n, Extent(x, 0)),
        If(
            c[()],
            Seq(
                (
                    OpenFrame(0, n * 4),
                    AllocFrame(twice, 0, 0),
                    CallKernel("double", (x, twice), (n,)),
                    BindDim(m, as_expr(n)),
                    Alias(r, twice),
                )
            ),
            Seq((BindDim(m, Size(n) // 2), Alias(r, x, n - n // 2))),
        ),
        AllocOutput(y, 0),
        Copy(y, r),
    ]
    p = Program({"double": DOUBLE, "main": host((c, x, y), body)}, workers=workers)
    data = np.arange(9, dtype=np.float32)
    for flag, expected in ((True, data * 2), (False, data[5:])):
        (got,) = p.call("main", [np.array(flag), data], [np.zeros(0, np.float32)])
        np.testing.assert_array_equal(got, expected)


def test_loop_with_frames_and_recursion(workers):
    """A while loop that doubles k times, with a frame per iteration; a host program that calls itself."""
    k, x, y = vec("k", (), "int64"), vec("x"), vec("y")
    count, t = vec("count", (), "int64", Scope.STACK), vec("t")
    step = Seq((
        OpenFrame(0, n * 4), AllocFrame(t, 0, 0), CallKernel("double", (y, t), (n,)), Copy(y, t),
        Store(count, (), count[()] + 1),
    ))  # fmt: skip
    loop = host(
        (k, x, y),
        [
            BindDim(n, Extent(x, 0)), AllocOutput(y, 0), Copy(y, x), AllocFrame(count), Store(count, (), const(0)),
            While(count[()] < k[()], step),
        ],
    )  # fmt: skip
    less, inner = vec("less", (), "int64"), vec("inner")
    recursive = host(
        (k, x, y),
        [
            BindDim(n, Extent(x, 0)),
            AllocOutput(y, 0),
            If(
                k[()] <= 0,
                Copy(y, x),
                Seq((
                    AllocFrame(less), Store(less, (), k[()] - 1), AllocFrame(inner), CallKernel("double", (x, inner), (n,)),
                    CallHost("again", (less, inner), (y,)),
                )),
            ),
        ],
    )  # fmt: skip
    p = Program({"double": DOUBLE, "loop": loop, "again": recursive}, workers=workers)
    data = np.arange(5, dtype=np.float32)
    for name in ("loop", "again"):
        for times in (0, 1, 7):
            (got,) = p.call(name, [np.array(times), data], [np.zeros(0, np.float32)])
            np.testing.assert_array_equal(got, data * 2**times)


def test_kernel_failure_and_library_call(workers):
    k = dim("k")
    idx, x, y, i = vec("idx", (k,), "int64"), vec("x", (m,)), vec("y", (k,)), Var("i")
    inside = binary(BinOp.AND, idx[i] >= 0, idx[i] < Size(m))
    gather = PrimFunc(
        (idx, x, y),
        For(i, Size(k), Seq((
            Assert(inside, "runtime-index", "gather: index {} at {} is outside an axis of size {}", (idx[i], i, Size(m))),
            Store(y, (i,), x[idx[i]]),
        )), ForKind.PARALLEL),
        (k, m), 1,
    )  # fmt: skip
    a, b, out = vec("a", (n,), "int64"), vec("b", (m,)), vec("out", (n,))
    body = [
        BindDim(n, Extent(a, 0)),
        BindDim(m, Extent(b, 0)),
        AllocOutput(out, 0),
        CallKernel("gather", (a, b, out), (n, m)),
    ]
    foreign = [BindDim(n, Extent(a, 0)), AllocOutput(out, 0), CallLibrary("library_fill", (a, out))]
    p = Program({"gather": gather, "main": host((a, b, out), body)}, workers=workers)
    data = np.arange(10, dtype=np.float32)
    for size in (4, 50_000):
        index = np.random.default_rng(0).integers(0, 10, size)
        (got,) = p.call("main", [index, data], [np.zeros(0, np.float32)])
        np.testing.assert_array_equal(got, data[index])
    index[123] = -3
    keep = []
    outs = (DLTensor * 1)(tensor(np.zeros(0, np.float32), keep, True))
    ins = (DLTensor * 2)(tensor(index, keep), tensor(data, keep))
    code = p.loaded.cdll.rx_call(p.context, 0, ins, 2, outs, 1)
    assert code_name(code) == "runtime-index"
    assert p.loaded.last_error(p.context) == "gather: index -3 at 123 is outside an axis of size 10"
    text = emit_module({"f": host((a, out), foreign)}, Target.parse("native"), SiteTable())
    assert "declare extern_weak i32 @library_fill(ptr, ptr)" in text


def test_sizes_that_wrap_are_refused(workers):
    """A result of 2^64 bytes must not become a block of none."""
    x, y = vec("x", (), "int64"), vec("y", (n, n, 2))
    body = [BindDim(n, x[()]), AllocOutput(y, 0)]
    p = Program({"main": host((x, y), body)}, workers=workers)
    example = np.zeros((0, 0, 0), np.float32)
    answer = p.call("main", [np.array(1 << 31)], [example])
    assert answer == ("runtime-overflow", f"main: a size in bytes does not fit 64 bits; n is {1 << 31}")
    assert p.call("main", [np.array(1 << 29)], [example])[0] == "runtime-allocation"
    assert p.call("main", [np.array(-3)], [example]) == ("runtime-shape", "main: n is -3, but must be at least 0")
    (empty,) = p.call("main", [np.array(0)], [example])
    assert empty.shape == (0, 0, 2)
