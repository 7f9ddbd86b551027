"""Random chains of stages, scheduled for random machines and configurations, compute what they did."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from relaxir.cost import Config, TargetInfo
from relaxir.sym import DimLike, dim
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, const, maximum
from tests.schedule.agree import TARGET, agree
from tests.schedule.programs import F

CONFIGS = (None, Config(mr=3, nr=8, block=8), Config(mr=6, nr=16, block=12, unroll=2))
TARGETS = (TARGET, TargetInfo(64, 32, masked=True), TargetInfo(16, 32, threads=1))


class Chain:
    """A program under construction; every step reads the value made last and makes a new one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.build = ProgramBuilder(f"chain{seed}")
        self.dims: tuple[DimLike, ...] = (
            dim("n"),
            dim("m"),
            self.random.choice((1, 3, 8, 20)),
            self.random.choice((2, 5, 40)),
        )
        rank = self.random.randint(1, 3)
        self.value = self.build.input("x", tuple(self.random.choice(self.dims) for _ in range(rank)), F)
        self.count = 0

    def fresh(self, shape: tuple[DimLike, ...]) -> Buffer:
        """A new value: a temporary, or now and then a result."""
        self.count += 1
        make = self.build.output if self.random.random() < 0.2 else self.build.temp
        return make(f"v{self.count}", shape, F)

    def scale(self, x: Buffer) -> Buffer:
        y = self.fresh(x.shape)
        self.build.compute(y, lambda *i: maximum(x[i] * 0.5, const(0.1, F)))
        return y

    def reduce(self, x: Buffer) -> Buffer:
        axis = self.random.randrange(len(x.shape))
        y = self.fresh(x.shape[:axis] + x.shape[axis + 1 :])
        combine = self.random.choice((Combine.SUM, Combine.MAX))
        self.build.reduce(y, (x.shape[axis],), combine, lambda *i: x[(*i[:axis], i[-1], *i[axis:-1])])
        return y

    def product(self, x: Buffer) -> Buffer:
        columns, transposed = self.random.choice(self.dims), self.random.random() < 0.5
        depth = x.shape[-1]
        w = self.build.input(f"w{self.count}", (columns, depth) if transposed else (depth, columns), F)
        y = self.fresh((*x.shape[:-1], columns))

        def element(*i: Expr) -> Expr:
            return x[(*i[:-2], i[-1])] * (w[i[-2], i[-1]] if transposed else w[i[-1], i[-2]])

        self.build.reduce(y, (depth,), Combine.SUM, element)
        return y

    def permute(self, x: Buffer) -> Buffer:
        order = self.random.sample(range(len(x.shape)), len(x.shape))
        y = self.fresh(tuple(x.shape[a] for a in order))
        self.build.compute(y, lambda *i: x[tuple(i[order.index(a)] for a in range(len(order)))])
        return y

    def centre(self, x: Buffer) -> Buffer:
        top = self.build.temp(f"t{self.count}", x.shape[:-1], F)
        self.build.reduce(top, (x.shape[-1],), Combine.MAX, lambda *i: x[i])
        y = self.fresh(x.shape)
        self.build.compute(y, lambda *i: x[i] - top[i[:-1]])
        return y

    def program(self) -> PrimFunc:
        steps: tuple[Callable[[Buffer], Buffer], ...] = (
            self.scale,
            self.reduce,
            self.product,
            self.permute,
            self.centre,
        )
        for _ in range(self.random.randint(1, 4)):
            if self.value.shape:
                self.value = self.random.choice(steps)(self.value)
        last = self.value
        out = self.build.output("out", last.shape, F)
        self.build.compute(out, lambda *i: last[i])
        return self.build.build()


@pytest.mark.parametrize("seed", range(24))
def test_random_chain(seed: int) -> None:
    chain = Chain(seed)
    func = chain.program()
    agree(func, (0, 1, 5, 18), chain.random.choice(TARGETS), chain.random.choice(CONFIGS))
