"""Shape arithmetic of exported models becomes dimensions, never tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import TensorType
from relaxir.ops.symbolic import constant_array, dims_of, evaluate_symbolic, symbolic_array
from relaxir.sym import Facts, Relation, ceildiv, dim, evaluate, floordiv, max_, to_text

n, m = dim("n", min=1), dim("m")
POSITIVE = Facts((n, m))


def run(name: str, *args: Any, facts: Facts = POSITIVE, types: Any = (), **attrs: Any) -> Any:
    op = ops.TABLE[name]
    arrays = tuple(None if a is None else np.asarray(a, object if dims(a) else None) for a in args)
    return evaluate_symbolic(op, arrays, op.Attrs(**attrs), facts, types)


def dims(value: Any) -> bool:
    return any(hasattr(v, "free_symbols") for v in np.ravel(np.asarray(value, object)))


def text(array: Any) -> str:
    return str(
        [to_text(d) if not isinstance(d, bool) else d for d in array.tolist()] if array.ndim else to_text(array[()])
    )


def test_a_chain_of_an_exported_model() -> None:
    """Shape, Gather, Unsqueeze, Concat, Reshape's target: (n, 16 * m) of x: (n, m, 16)."""
    x = TensorType((n, m, 16), "float32")
    shape = run("shape_of", None, types=(x,))
    batch = run("take", shape, 0)
    rows = run("multiply", run("take", shape, 1), run("take", shape, -1))
    target = run("concat", *(run("expand_dims", d, axes=(0,)) for d in (batch, rows)))
    assert dims_of(target) == (n, 16 * m)
    assert run("size", None, types=(x,))[()] == 16 * n * m
    assert dims_of(run("prod", shape, axes=(0,), keepdims=True)) == (16 * n * m,)


@pytest.mark.parametrize(
    ("name", "args", "attrs", "want"),
    [
        ("add", ([n, 2], 1), {}, "['n + 1', '3']"),
        ("subtract", ([n, 2], [n, m]), {}, "['0', '2 - m']"),
        ("divide", ([4 * m, -7], 2), {}, f"['{to_text(2 * m)}', '-3']"),
        ("divide", (n, 2), {}, "n // 2"),
        ("floor_divide", (-7, 2), {}, "-4"),
        ("floor_mod", ([4 * n, -7], 2), {}, "['0', '1']"),
        ("trunc_mod", (-7, 2), {}, "-1"),
        ("minimum", (n, 1), {}, "1"),
        ("maximum", (n, 1), {}, "n"),
        ("negative", ([n],), {}, "['-n']"),
        ("abs", (-n,), {}, "n"),
        ("sign", ([n, -n, 0],), {}, "['1', '-1', '0']"),
        ("equal", ([n, 3], [-1, 3]), {}, "[False, True]"),
        ("less", (m, n + m), {}, "True"),
        ("where", ([True, False], [n, n], [m, m]), {}, "['n', 'm']"),
        ("astype", ([n, 3],), {"dtype": "int32"}, "['n', '3']"),
        ("astype", ([n, 0],), {"dtype": "bool"}, "[True, False]"),
        ("astype", ([True, 300],), {"dtype": "int8"}, "['1', '44']"),
        ("strided_slice", ([n, m, 4],), {"axes": (0,), "begin": (2,), "size": (2,), "step": (-2,)}, "['4', 'n']"),
        ("squeeze", ([n],), {"axes": (0,)}, "n"),
        ("reshape", ([n, m],), {"shape": (2, 1)}, "[[n], [m]]"),
        ("broadcast_to", ([n],), {"shape": (2,)}, "['n', 'n']"),
        ("cumsum", ([n, m, 1],), {}, "['n', 'm + n', 'm + n + 1']"),
        ("cumsum", ([n, m, 1],), {"exclusive": True, "reverse": True}, "['m + 1', '1', '0']"),
        ("max", ([n, n + 1],), {"axes": (0,)}, "n + 1"),
        ("sum", ([[n, 1], [m, 2]],), {"axes": (0,)}, "['m + n', '3']"),
        ("gather_elements", ([n, m], [1, 0]), {}, "['m', 'n']"),
        ("stack", (n, m), {}, "['n', 'm']"),
        ("tile", ([n],), {"repeats": (2,)}, "['n', 'n']"),
        ("logical_and", ([True, False], [True, True]), {}, "[True, False]"),
    ],
)
def test_rules(name: str, args: Any, attrs: Any, want: str) -> None:
    got = run(name, *args, **attrs)
    shown = text(got) if got.ndim < 2 else str(got.tolist())
    assert shown.replace("'True'", "True") == want


@pytest.mark.parametrize(
    ("name", "args", "attrs"),
    [
        ("equal", (n, m), {}),
        ("where", ([n], [1], [2]), {}),
        ("add", (None, 1), {}),
        ("add", (1.5, 1), {}),
        ("floor_divide", (n, 0), {}),
        ("divide", (n, 0), {}),
        ("take", ([n, m], m), {}),
        ("take", ([n, m], 5), {}),
        ("strided_slice", ([n, m],), {"axes": (0,), "begin": (0,), "size": (m,)}),
        ("exp", (1,), {}),
        ("astype", ([n],), {"dtype": "float32"}),
        ("astype", ([n],), {"dtype": "int8"}),
        ("add", (np.zeros(5000, np.int64), 1), {}),
    ],
)
def test_gives_up(name: str, args: Any, attrs: Any) -> None:
    """What depends on data, is not an integer, or would fail is left to the program."""
    assert run(name, *args, **attrs) is None


def test_splits() -> None:
    first, second = run("split", [n, m, 3], sizes=(2, 1))
    assert dims_of(first) == (n, m)
    assert dims_of(second) == (3,)


def test_facts_decide() -> None:
    facts = Facts((n, m), (Relation("<", n, m),))
    assert run("less", n, m, facts=facts)[()] is True
    assert run("maximum", n, m, facts=facts)[()] == m
    assert run("maximum", n, m)[()] == max_(n, m)


def test_signs_known_at_run_time() -> None:
    """Quotients round to zero for any signs."""
    s, t = dim("s", min=-9), dim("t", min=-9)
    facts = Facts((s, t))
    quotient, rest = run("divide", s, t, facts=facts)[()], run("trunc_mod", s, t, facts=facts)[()]
    size = run("abs", s, facts=facts)[()]
    for a in range(-7, 8):
        assert evaluate(size, {"s": a}) == abs(a)
        for b in (-3, -1, 2, 5):
            env = {"s": a, "t": b}
            assert evaluate(quotient, env) == int(a / b)
            assert evaluate(rest, env) == int(np.fmod(a, b))


def test_resize_arithmetic() -> None:
    """Ceil and floor divisions of convolution sizes."""
    half = run("floor_divide", run("add", n, 1), 2)[()]
    assert POSITIVE.prove_equal(half, ceildiv(n, 2)).value == "proved"
    assert run("floor_divide", n, 2)[()] == floordiv(n, 2)


def test_arrays() -> None:
    array = symbolic_array([n, 3])
    assert array is not None
    assert constant_array(array) is None
    three = symbolic_array(np.array([3], np.int32))
    assert three is not None
    assert constant_array(three, "int32").dtype == np.int32
    assert symbolic_array(np.ones(2, np.float32)) is None
    empty = symbolic_array(np.zeros((0,), np.float32))
    assert empty is not None
    assert dims_of(empty) == ()
