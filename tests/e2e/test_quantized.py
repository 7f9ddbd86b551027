"""Integer products: exact at every shape, for every target that runs here, packed or not."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import BlockBuilder, IRModule, TensorType, Var
from relaxir.sym import DimLike, dim

RNG = np.random.default_rng(3)
ZERO = np.array(0)
TARGETS = ("native", "x86-64-v3", "x86-64")


def draw(dtype: str, *shape: int) -> np.ndarray:
    """Random integers of the whole range."""
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def product(
    a: tuple[DimLike, ...], b: np.ndarray | tuple[DimLike, ...], types: tuple[str, str], *zeros: object
) -> IRModule:
    """``matmul_integer`` of an operand and a weight, or of two operands."""
    bb = BlockBuilder()
    params = [Var("a", TensorType(a, types[0]))]
    if isinstance(b, tuple):
        params.append(Var("b", TensorType(b, types[1])))
    with bb.function("main", params):
        with bb.dataflow():
            right = params[1] if isinstance(b, tuple) else b
            gv = bb.emit_output(rx.op.matmul_integer(params[0], right, *zeros))
        bb.emit_func_output(gv)
    return bb.get()


def want(a: np.ndarray, b: np.ndarray, za: np.ndarray = ZERO, zb: np.ndarray = ZERO) -> np.ndarray:
    """The product in int64."""
    return np.asarray(np.matmul(a.astype(np.int64) - za, b.astype(np.int64) - zb)).astype(np.int32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("k", "n"), [(64, 32), (66, 33), (19, 70), (384, 5)])
def test_weight(target: str, k: int, n: int) -> None:
    b = draw("int8", k, n)
    main = rx.compile(product((dim("m"), k), b, ("uint8", "int8")), target=target)["main"]
    for m in (0, 1, 2, 7, 8, 9, 33, 100):
        a = draw("uint8", m, k)
        np.testing.assert_array_equal(main(a), want(a, b))


@pytest.mark.parametrize("target", TARGETS)
def test_two_operands(target: str) -> None:
    batch, m, k, n = (dim(s) for s in "bmkn")
    main = rx.compile(product((batch, m, k), (batch, k, n), ("uint8", "int8")), target=target)["main"]
    for shape in ((2, 3, 5, 7), (1, 1, 1, 1), (1, 9, 64, 40), (2, 17, 35, 33), (0, 2, 3, 4), (1, 4, 0, 3)):
        a, b = draw("uint8", *shape[:3]), draw("int8", shape[0], *shape[2:])
        np.testing.assert_array_equal(main(a, b), want(a, b))


def test_fixed_depth_is_packed_on_the_fly() -> None:
    main = rx.compile(product((dim("m"), 67), (67, dim("n")), ("uint8", "int8")))["main"]
    for m, n in ((1, 1), (2, 40), (20, 31), (33, 64)):
        a, b = draw("uint8", m, 67), draw("int8", 67, n)
        np.testing.assert_array_equal(main(a, b), want(a, b))


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8")])
def test_types_and_zero_points(types: tuple[str, str]) -> None:
    b = draw(types[1], 40, 24)
    za, zb = draw(types[0]), draw(types[1], 24)
    main = rx.compile(product((dim("m"), 40), b, types, za, zb))["main"]
    for m in (1, 3, 16):
        a = draw(types[0], m, 40)
        np.testing.assert_array_equal(main(a), want(a, b, za, zb))


def test_extremes_do_not_saturate() -> None:
    """255 * -128 in every place: pairs of products leave 16 bits."""
    b = np.full((256, 16), -128, np.int8)
    a = np.full((4, 256), 255, np.uint8)
    for target in TARGETS:
        main = rx.compile(product((dim("m"), 256), b, ("uint8", "int8")), target=target)["main"]
        np.testing.assert_array_equal(main(a), want(a, b))
