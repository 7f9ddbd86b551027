"""Every rule: the scheduled program computes what the block form does, for sizes from 0 up."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.cost import Config, TargetInfo
from relaxir.schedule import schedule
from relaxir.sym import dim
from relaxir.tir import Alloc, Combine, For, ForKind, PrimFunc, Scope, Store, Switch
from relaxir.tir.visit import buffers_of, walk
from tests.schedule.agree import TARGET, agree, array, run
from tests.schedule.programs import (
    add,
    add_bias,
    add_broadcast,
    batched,
    columnwise,
    conv,
    cumsum,
    gather,
    layer_norm,
    matmul,
    reduce,
    softmax,
    transpose,
)

N, M, K = dim("n"), dim("m"), dim("k")
SMALL = (0, 1, 3, 7, 33)


def kinds(func: PrimFunc) -> list[ForKind]:
    return [s.kind for s in walk(func.body) if isinstance(s, For)]


@pytest.mark.parametrize(
    "func", [add(N, 4), add(N, M), add_bias(N, M), gather(N, M), transpose(N, M), transpose(32, N), transpose(32, 48)]
)
def test_injective(func: PrimFunc) -> None:
    done = agree(func, rules=("injective",))
    assert ForKind.VECTOR in kinds(done)
    assert ForKind.VECTOR not in [s.kind for v in walk(done.body) if isinstance(v, For) and v.kind is ForKind.VECTOR
                                  for s in walk(v.body) if isinstance(s, For)]  # fmt: skip


def test_contiguous_axes_become_one() -> None:
    done = schedule(add(N, 4), TARGET)
    assert [len(b.shape) for b in done.params] == [1, 1, 1]
    assert kinds(done) == [ForKind.PARALLEL, ForKind.VECTOR]


def test_broadcast_of_a_symbolic_axis_has_two_versions() -> None:
    func = add_broadcast(N, M, K)
    done = schedule(func, TARGET)
    for n, m, k in ((0, 3, 1), (5, 9, 1), (5, 9, 9), (2, 0, 0), (3, 1, 1)):
        dims = {"n": n, "m": m, "k": k}
        rng = np.random.default_rng(0)
        inputs = [array(b, dims, rng) for b in func.inputs]
        np.testing.assert_array_equal(run(done, inputs, dims)[0], run(func, inputs, dims)[0])


@pytest.mark.parametrize("over", [(1,), (0,), (0, 1)])
@pytest.mark.parametrize("combine", [Combine.SUM, Combine.MAX])
def test_reduction(over: tuple[int, ...], combine: Combine) -> None:
    agree(reduce((N, M), over, combine), rules=("reduction",))


@pytest.mark.parametrize("over", [(1,), (0, 2), (0,), (2,), (1, 2)])
def test_reduction_of_three_axes(over: tuple[int, ...]) -> None:
    agree(reduce((N, 5, M), over), SMALL, rules=("reduction",))


def test_rows_share_one_loop_and_keep_scalars_private() -> None:
    for func in (softmax(N, M), softmax(N, 24), layer_norm(2, N, 24)):
        done = agree(func, SMALL, rules=("rows",))
        assert done.workspaces == 0
        assert [k for k in kinds(done) if k is ForKind.PARALLEL] == [ForKind.PARALLEL]
        assert all(b.scope is Scope.STACK for b in buffers_of(done.body) if b not in done.params)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("m", [1, 8, 16, 37])
def test_product(transposed: bool, m: int) -> None:
    done = agree(matmul(N, 10, m, transposed), (*SMALL, 97, 200))
    assert done.workspaces == 0


def test_product_of_symbolic_sizes() -> None:
    agree(matmul(N, K, M), (0, 1, 5, 20), rules=("contraction",))
    agree(batched(2, N, K, M, transposed=False), (0, 1, 5, 20), rules=("contraction",))
    agree(batched(2, N, K, M, transposed=True), (0, 1, 5, 20))


@pytest.mark.parametrize("transposed", [False, True])
def test_batched_product(transposed: bool) -> None:
    agree(batched(N, 5, 8, M, transposed), SMALL, rules=("contraction",))
    agree(batched(2, N, 8, 32, transposed), SMALL, rules=("contraction",))


@pytest.mark.parametrize("config", [Config(mr=m, nr=8, block=b) for m, b in ((1, 8), (3, 8), (6, 8), (4, 4), (5, 1))])
def test_every_number_of_rows_has_its_tile(config: Config) -> None:
    agree(matmul(N, 2, 12, transposed=True), (*range(20), 31, 33), config=config)
    agree(matmul(N, 2, 12), (*range(20), 31, 33), config=config)
    for n in (2, 7, 9, 11, 19, 25):
        agree(matmul(n, 2, 12), config=config)


def test_tiles_have_constant_register_buffers() -> None:
    done = schedule(matmul(N, 64, 64), TARGET)
    bound = {s.dim for s in walk(done.body) if isinstance(s, Switch)}
    registers = [s.buffer for s in walk(done.body) if isinstance(s, Alloc) and s.buffer.scope is Scope.REGISTER]
    assert registers
    assert all(isinstance(d, int) or d in bound for b in registers for d in b.shape)


@pytest.mark.parametrize("config", [Config(mr=1, nr=8), Config(mr=4, nr=24, unroll=2), Config(mr=3, nr=16, block=4)])
def test_every_configuration_is_right(config: Config) -> None:
    agree(matmul(N, 10, 37), SMALL, config=config)


@pytest.mark.parametrize("target", [TargetInfo(4, 16), TargetInfo(64, 32, masked=True), TargetInfo(16, 32, threads=1)])
def test_every_machine_is_right(target: TargetInfo) -> None:
    for func in (matmul(N, 10, 37), softmax(N, 9), add(N, 4)):
        done = agree(func, SMALL, target=target)
        assert target.threads > 1 or ForKind.PARALLEL not in kinds(done)


@pytest.mark.parametrize(
    ("func", "rule"),
    [
        (conv(1, 8, N, M, 5, 1), "contraction"),
        (conv(2, 3, N, M, 7, 3, 1, 1), "windows"),
        (conv(1, 4, N, M, 7, 3, 2, 1), "windows"),
        (conv(1, 4, N, 33, 6, 3, 2, 0), "windows"),
        (conv(1, 8, N, M, 8, 5, 1, 2, depthwise=True), "windows"),
        (conv(2, 8, N, 20, 8, 3, 2, 1, depthwise=True), "windows"),
    ],
)
def test_convolution(func: PrimFunc, rule: str) -> None:
    agree(func, (3, 7, 18), rules=(rule,))


def test_scan_runs_rows_apart() -> None:
    agree(cumsum(N, M), SMALL, rules=("fallback",))


def test_results_are_written_once() -> None:
    done = schedule(matmul(8, 4, 16), TARGET)
    stored = [s for s in walk(done.body) if isinstance(s, Store) and s.buffer.scope is Scope.GLOBAL]
    assert {s.buffer.name for s in stored} == {"z"}
    assert len(stored) == 1


def test_a_lane_axis_of_both_factors() -> None:
    agree(columnwise(N, 5, M), SMALL, rules=("contraction",))
    agree(columnwise(3, N, 20), SMALL, rules=("contraction",))
