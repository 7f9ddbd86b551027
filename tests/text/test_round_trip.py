"""Everything prints, everything printed reads back, and printing that gives the same text again."""

from __future__ import annotations

import difflib
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given

from relaxir import evaluate
from relaxir.ir import Attrs, BlockBuilder, IRModule, ShapeType, TensorType, TupleType, Var, const
from relaxir.ir.attrs import attr_dims
from relaxir.ir.op import Example, Op
from relaxir.ir.pending import PendingCall
from relaxir.ir.printer import module_arrays
from relaxir.ir.structural import structural_equal
from relaxir.ir.types import parse_type
from relaxir.ir.verify import verify_module
from relaxir.ops import OPS, TABLE, op
from relaxir.sym import Dim, dim, free_dims
from relaxir.text import parse
from relaxir.tir import PrimFunc
from tests.strategies import block_programs, graph_modules, loop_programs


def read_back(module: IRModule) -> IRModule:
    """The module read from its own text; both texts must be the same."""
    text = str(module)
    again = parse(text, TABLE, module_arrays(module.functions, module.attrs))
    difference = difflib.unified_diff(text.split("\n"), str(again).split("\n"), lineterm="", n=0)
    assert text == str(again), "\n".join(difference)
    assert structural_equal(module, again)
    return again


@given(graph_modules())
def test_graph_functions(module: IRModule) -> None:
    assert not verify_module(module)
    assert not verify_module(read_back(module))


@given(block_programs())
def test_block_programs(func: PrimFunc) -> None:
    module = IRModule({"f": func})
    assert not verify_module(module)
    assert not verify_module(read_back(module))


@given(loop_programs())
def test_loop_programs(func: PrimFunc) -> None:
    module = IRModule({"f": func})
    assert not verify_module(module)
    assert not verify_module(read_back(module))


class _Symbols(dict[str, Dim]):
    """Every name is a symbol."""

    def __missing__(self, name: str) -> Dim:
        self[name] = dim(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return True


@pytest.mark.parametrize("operator", OPS, ids=lambda o: o.name)
def test_examples_of_operators(operator: Op[Attrs]) -> None:
    examples = [e for e in operator.examples if not any(a.startswith("shape") for a in e.args)]
    functions = {}
    for number, example in enumerate(examples):
        module = example_module(operator, example)
        functions[f"f{number}"] = module["main"]
        try:
            functions[f"k{number}"] = lowered(operator, module)
        except NotImplementedError:  # host operators have no loops
            continue
    module = IRModule(functions)
    assert not verify_module(module)
    read_back(module)


def example_module(operator: Op[Attrs], example: Example) -> IRModule:
    """A function that does what an example shows."""
    scope = _Symbols()
    params = [Var(f"p{i}", parse_type(t, scope)) for i, t in enumerate(example.args)]
    attrs = operator.Attrs() if type(example.attrs) is Attrs else example.attrs
    sizes = tuple(d for e in attr_dims(attrs) for d in free_dims(e))
    bb = BlockBuilder()
    with bb.function("main", [*params, Var("sizes", ShapeType(sizes))]):
        bb.emit_func_output(bb.emit(PendingCall(operator, tuple(params), attrs, None)))
    return bb.get()


def lowered(operator: Op[Attrs], module: IRModule) -> PrimFunc:
    """The loops of the only call of a module."""
    call = module["main"].body.bindings[0].value  # type: ignore[union-attr]  # as example_module builds it
    outs = call.type.fields if isinstance(call.type, TupleType) else (call.type,)  # type: ignore[union-attr]  # the same holds here
    return operator.lower(tuple(a.type for a in call.args), call.attrs, outs)  # type: ignore[union-attr]  # the same holds here


def exact_module() -> IRModule:
    """Story H18: values and names that a careless printer loses."""
    n = dim("n", min=4, max=64, multiple_of=4)
    floats = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45, 0.1], np.float32)
    payload = np.array([0x7FC00001, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    constants = [
        const(floats),
        const(payload),
        const(np.array([0.1, np.nan])),
        const(np.array([-(2**63)])),
        const(np.array(255, np.uint8)),
        const(np.array([65504], np.float16)),
        const(np.zeros((0, 3), np.float32)),
        const(np.array([1.5, np.nan, -0.0], np.float32), "bfloat16"),
        const(True),
        const(np.arange(65, dtype=np.int16)),
    ]
    bb = BlockBuilder()
    params = [
        Var("lambda", TensorType((n, dim("batch")), "f32")),
        Var("a.b", TensorType((n,), "f32")),
        Var("n", TensorType((), "f32")),
    ]
    with bb.function(
        "for", params, attrs={"note": 'quote " back\\slash\nline \u00e9 \u2028 \ud800', "not an id": 1.5, "where": None}
    ):
        kept = [bb.emit(c, "while") for c in constants]
        bb.emit_func_output((*kept, bb.emit(op.exp(params[0]))))
    module = bb.get()
    return IRModule(module.functions, MappingProxyType({"entries": ("for",), "constants": tuple(constants)}))


def test_exact_values_and_awkward_names() -> None:
    module = exact_module()
    again = read_back(module)
    before, after = module["for"], again["for"]
    assert [p.name for p in after.params] == ["lambda", "a.b", "n"]  # type: ignore[union-attr]  # a graph function
    assert after.attrs == before.attrs
    assert after.params[0].type == before.params[0].type  # type: ignore[union-attr]  # a graph function
    for a, b in zip(before.body.bindings, after.body.bindings, strict=True):  # type: ignore[union-attr]  # graph functions
        if hasattr(a.value, "data"):
            assert a.value.data.tobytes() == b.value.data.tobytes()
            assert a.value.type == b.value.type
    feeds = [np.zeros((4, 7), np.float32), np.zeros(4, np.float32), np.float32(0)]
    results = zip(evaluate(module, "for", *feeds), evaluate(again, "for", *feeds), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in results)
    stored = zip(module.attrs["constants"], again.attrs["constants"], strict=True)  # type: ignore[call-overload]  # both are tuples
    assert all(a.data.tobytes() == b.data.tobytes() for a, b in stored)


HOST = """# relaxir 0.1
@I.module(entries=("main",))
class Module:
    @T.prim_func(workspaces=1)
    def f(x: T.Buffer(("n", 4), "f32"), y: T.Buffer(("n", 4), "f32"), w: T.Buffer((16,), "f32")):
        n = T.dim("n", max=64)
        for i in T.parallel(n):
            T.prefetch(x[i, 0], level=2, write=True)
            for j in T.vector(4):
                y[i, j] = T.combine("max", y[i, j], x[i, j])

    @T.prim_func(scope="host")
    def main(x: T.Buffer(("n", 4), "f32"), out: T.Buffer(("n", 4), "f32")):
        n = T.bind_dim("n", T.extent(x, 0), max=64)
        T.require(T.extent(x, 1) == 4, "argument-extent", "axis 1 of x is {}", T.extent(x, 1))
        T.open_frame(0, n * 16 + 64)
        t = T.alloc_frame((n, 4), "f32", offset=n * 16)
        w = T.alloc_frame((16,), "f32", frame=1)
        c = T.constant(0, (4,), "f32")
        out = T.alloc_output(0, (n, 4), "f32")
        a = T.alias(t, (n * 4,), "f32", offset=4)
        T.call_kernel(Module.f, (x, t, w), dims=(n,))
        if c[0] < 1.0:
            T.copy(out, t)
            b = T.alloc_frame((n,), "f32")
        else:
            b = T.alloc_frame((n,), "f32")
            T.call_library("sgemm", (t, out))
        T.copy(a, b)
        T.call_host(Module.main, (t,), (out,))"""


def test_host_programs() -> None:
    module = parse(HOST, TABLE)
    assert str(module) == HOST
    assert not verify_module(module, 3)


GRAPH = """# relaxir 0.1
@I.module
class Module:
    @T.prim_func
    def double(x: T.Buffer(("n",), "f32"), y: T.Buffer(("n",), "f32")):
        n = T.dim("n")
        with T.block("y", i=n):
            y[i] = x[i] * 2.0

    @R.function(where="n <= m, m % 4 == 0", pure=False, kind="test")
    def main(x: R.Tensor(("n", "m"), "f32"), s: R.Shape(("n * 2",)), t: R.Tuple(R.Tensor(("m",), "f32"), R.Prim("i64"), R.Any), a_y: R.Any(name="a-y"), f: R.Func((R.Tensor(("k",), "f32"),), R.Tensor(("k",), "f32")), c: R.Tensor((), "bool")) -> R.Tensor(("q",), "f32"):
        n = R.dim("n", min=1)
        m = R.dim("m")
        R.check(n * 2 <= m, "runtime-shape", "n is {} and m {}", n, m)
        a: R.Tensor((m,), "f32") = t[0]
        with R.dataflow():
            b: R.Tensor((m,), "f32") = R.call_tir(Module.double, (a,), out=R.Tensor((m,), "f32"), dims=(m,))
            d: R.Tensor((n, m), "f32") = R.add(x, b)
            R.output(b, d)
        e: R.Shape((n, 4)) = R.shape((n, 4))
        q = R.fresh_dim("q", max=64)
        g: R.Tensor((q,), "f32") = R.match_cast(b, R.Tensor((q,), "f32"))
        h: R.Tuple(R.Tensor((q,), "f32"), R.Tensor((1,), "i64")) = R.call_dps_packed("lib", (g, R.const([7], "i64")), out=R.Tuple(R.Tensor((q,), "f32"), R.Tensor((1,), "i64")), pure=False)
        if c:
            i: R.Tensor((q,), "f32") = h[0]
            j: R.Tensor((q,), "f32") = i
        else:
            i: R.Tensor((q,), "f32") = R.exp(g)
            j: R.Tensor((q,), "f32") = i
        j_1: R.Tensor((q,), "f32") = j
        l = R.fresh_dim("l")
        r: R.Tensor((l,), "f32") = Module.main(x, s, t, a_y, f, c)
        return j_1"""


def test_every_graph_form() -> None:
    module = parse(GRAPH, TABLE)
    assert str(module) == GRAPH


def test_what_is_stated_of_fresh_symbols_is_checked_behind_their_binding() -> None:
    stated = GRAPH.replace('R.fresh_dim("q", max=64)', 'R.fresh_dim("q", max=64, where="0 <= q <= m, q <= 64")')
    module = parse(stated, TABLE)
    lines = [line.strip() for line in str(module).splitlines()]
    place = next(i for i, line in enumerate(lines) if line.startswith("g: R.Tensor"))
    # q <= m is not in the symbol's range, and here follows from q being a name for m
    assert lines[place + 1].startswith("h: ")
    other = stated.replace("q <= m, q <= 64", "q <= 7")
    lines = [line.strip() for line in str(parse(other, TABLE)).splitlines()]
    place = next(i for i, line in enumerate(lines) if line.startswith("g: R.Tensor"))
    assert lines[place + 1] == 'R.check(q <= 7, "runtime-shape", "`q <= 7` does not hold; q is {}", q)'
    assert str(parse(str(module), TABLE)) == str(module)


def test_names_of_functions_and_symbols() -> None:
    text = GRAPH.replace("def double", "def double_").replace("@T.prim_func\n", '@T.prim_func(symbol="dou.ble")\n')
    text = text.replace("Module.double", 'Module["dou.ble"]')
    module = parse(text.replace("double_", "dou_ble"), TABLE)
    assert "dou.ble" in module
    assert parse(str(module), TABLE)["dou.ble"].params[0].name == "x"


def test_types_may_be_left_out() -> None:
    module = parse(
        """
@I.module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "f32"), i: R.Tensor(("k",), "i64")):
        with R.dataflow():
            y = R.add(x, 1.0)
            z = R.exp(y)
            R.output(z)
        return z
""",
        TABLE,
    )
    assert str(module["main"].ret) == 'R.Tensor((n, 4), "f32")'  # type: ignore[union-attr]  # a graph function
    read_back(module)


def test_printing_is_the_same_in_every_order() -> None:
    n, m = dim("n"), dim("m")
    assert str(Var("x", TensorType((n * m + 1,), "f32")).type) == str(Var("x", TensorType((1 + m * n,), "f32")).type)


def test_empty_module() -> None:
    assert str(read_back(IRModule({}))) == "# relaxir 0.1\n@I.module\nclass Module:\n    pass"
