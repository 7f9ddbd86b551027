"""Packing a weight ahead of time and reading it packed gives the same result."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.cost import Config, RuleChooser
from relaxir.schedule import contraction_plans, pack_func, rewrite_to_packed, schedule
from relaxir.support.errors import ScheduleError
from relaxir.sym import dim
from relaxir.tir import Prefetch, PrimFunc
from relaxir.tir.visit import walk
from tests.schedule.agree import TARGET, array, run
from tests.schedule.programs import add, batched, conv, matmul

N = dim("n")


def check_packed(func: PrimFunc, n: int, config: Config | None = None, rule: str = "contraction") -> None:
    config = config or RuleChooser().choose(func, TARGET)
    (plan,) = [p for p in contraction_plans(func, config) if p.operand == 1]
    rng = np.random.default_rng(0)
    dims = {"n": n} if func.dims else {}
    inputs = [array(b, dims, rng) for b in func.inputs]
    packer = schedule(pack_func(func, plan.operand, config), TARGET, config)
    (packed,) = run(packer, [inputs[1]], {})
    packed = packed.reshape(plan.packed_type(config)[0])
    done = schedule(rewrite_to_packed(func, plan.operand, config), TARGET, config)
    assert done.attrs["rules"] == (rule,)
    expected = run(func, inputs, dims)
    got = run(done, [inputs[0], packed, *inputs[2:]], dims)
    for e, g in zip(expected, got, strict=True):
        np.testing.assert_allclose(g.reshape(e.shape), e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("k", "m"), [(5, 16), (8, 33), (2, 7), (12, 96), (3, 2)])
def test_packed_product_agrees(transposed: bool, k: int, m: int) -> None:
    for n in (0, 1, 2, 7, 13, 97):
        check_packed(matmul(N, k, m, transposed), n)


@pytest.mark.parametrize("config", [Config(mr=m, nr=8, block=b) for m, b in ((1, 8), (3, 8), (6, 8), (4, 4), (5, 1))])
def test_every_number_of_rows_has_its_tile(config: Config) -> None:
    for n in (*range(20), 31, 33):
        check_packed(matmul(N, 2, 12), n, config)


def test_one_row_asks_for_every_line_of_its_panels_once() -> None:
    config = Config(mr=6, nr=32, panels=4, unroll=4, ahead=8192)
    func = matmul(1, 64, 256)
    (plan,) = [p for p in contraction_plans(func, config) if p.operand == 1]
    done = schedule(rewrite_to_packed(func, plan.operand, config), TARGET, config)
    places = [s.indices for s in walk(done.body) if isinstance(s, Prefetch)]
    assert len(places) == len(set(map(str, places))) == 4 * 4 * 2  # panels, steps of an iteration, lines of a step


def test_constant_rows_agree() -> None:
    for n in (1, 6, 7, 96, 100):
        check_packed(matmul(n, 9, 40), n)


def test_batched_weights_pack_with_their_batch() -> None:
    check_packed(batched(3, N, 4, 20, transposed=True), 5)


@pytest.mark.parametrize(
    "func",
    [
        conv(2, 3, 5, N, 20, 3, 1, 1),  # a whole panel of channels and a part of one
        conv(1, 2, N, N, 16, 3, 2, 1),
        conv(1, 8, N, 3, 16, 3, 1, 1, bias=False),  # few positions, known
        conv(3, 2, 4, N, 33, 2),  # neither padded nor strided
        conv(1, 2, 4, N, 16, 2, 2),
    ],
)
def test_convolutions_of_few_positions_and_many_agree(func: PrimFunc) -> None:
    for n in (2, 3, 7, 16, 33):
        check_packed(func, n, rule="windows")


def test_only_factors_of_contractions_pack() -> None:
    assert contraction_plans(add(N, 4), Config()) == ()
    assert [p.operand for p in contraction_plans(conv(1, 4, 8, 66, 8, 3), Config())] == []  # whole vectors of positions
    assert [p.operand for p in contraction_plans(conv(1, 4, 8, N, 8, 3, depthwise=True), Config())] == []
    with pytest.raises(ScheduleError, match="parameter 0 of the program cannot be packed"):
        pack_func(add(N, 4), 0, RuleChooser().choose(add(N, 4), TARGET))
