"""Compiled builds of operators' examples, run on guarded memory in child processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxir import ops
from relaxir.api import compile as rx_compile
from relaxir.ir import IRModule, Op, ShapeType
from relaxir.passes import Pass
from relaxir.pipelines import REFERENCE
from relaxir.runtime.executable import CompiledFunction, Executable
from relaxir.support.errors import RelaxirError, RuntimeIndexError, RuntimeShapeError
from tests.ops import cases
from tests.ops.builds import Case, cases_of, module_of, widened
from tests.ops.guarded import call_guarded
from tests.ops.isolated import failures
from tests.ops.special import special

Found = Sequence[Case]

CHUNK: Final = 40
"""Functions to a module, about: one compilation for many keeps the tests short."""


def dynamic(found: Found) -> list[Case]:
    """As the example says; again on special operands."""
    return [*found, *special(found)]


def plain(found: Found) -> list[Case]:
    """As the example says."""
    return list(found)


def wide(found: Found) -> list[Case]:
    """Constant extents are symbols too; nothing where the example has none."""
    return widened(found)


def fixed(found: Found) -> list[Case]:
    """Only the sizes that satisfy the checks, of examples that have symbols: the others are constant already."""
    return [c for c in found if c.holds and c.env]


def constant(found: Found) -> list[Case]:
    """Only the sizes that satisfy the checks."""
    return [c for c in found if c.holds]


class Build:
    """One way to compile a case."""

    def __init__(
        self,
        choose: Callable[[Found], list[Case]],
        static: bool = False,
        folded: bool = False,
        pipeline: Pass | None = None,
    ) -> None:
        self.choose, self.static, self.folded, self.pipeline = choose, static, folded, pipeline

    def cases(self, op: Op[Any], limit: int) -> list[Case]:
        """What is compiled and run of an operator."""
        by_example: dict[str, list[Case]] = {}
        for c in cases_of(op, limit):
            by_example.setdefault(c.name, []).append(c)
        return [c for found in by_example.values() for c in self.choose(found)]

    def module(self, found: Found) -> IRModule:
        """All the functions."""
        one_each = found if self.static or self.folded else tuple({c.name: c for c in found}.values())
        return module_of(one_each, static=self.static, folded=self.folded)

    def compile(self, found: Found, cache: Path | bool = False) -> Executable:
        """Native code for all the functions."""
        return rx_compile(self.module(found), threads=1, pipeline=self.pipeline, cache=cache, jobs=1)

    def run(self, exe: Executable, case: Case, k: int) -> None:
        """Run one case and compare with the reference."""
        function = exe[case.function(k, self.static, self.folded)]
        arrays = () if self.folded else case.arrays
        if not case.holds:
            raises(RuntimeShapeError, function, arrays)
            return
        try:
            result, want = case.expected()
        except IndexError:
            raises(RuntimeIndexError, function, arrays)
            return
        if isinstance(result, ShapeType):
            assert tuple(int(v) for v in np.asarray(function(*arrays))) == tuple(want)
            return
        wants = want if isinstance(want, tuple) else (want,)
        got = call_guarded(function.into, arrays, [np.full_like(w, 1) for w in wants])
        for g, w, t in zip(got, wants, cases.outputs(result), strict=True):
            cases.close(g, w, t, case.example)


def raises(kind: type[RelaxirError], function: CompiledFunction, arrays: Sequence[np.ndarray]) -> None:
    """A call that must fail."""
    try:
        function(*arrays)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


BUILDS: Final[Mapping[str, Build]] = MappingProxyType(
    {
        "dynamic": Build(dynamic),
        "wide": Build(wide),
        "static": Build(fixed, static=True),
        "folded": Build(constant, folded=True),
        "reference": Build(plain, pipeline=REFERENCE),
    }
)


def chunks(size: int = CHUNK) -> list[tuple[Op[Any], ...]]:
    """The operator table in groups of about ``size`` examples."""
    found: list[tuple[Op[Any], ...]] = []
    group: list[Op[Any]] = []
    for op in ops.OPS:
        group.append(op)
        if sum(len(o.examples) for o in group) >= size:
            found.append(tuple(group))
            group = []
    return [*found, tuple(group)] if group else found


def label(case: Case) -> str:
    """A case in a message."""
    sizes = ",".join(f"{k}={v}" for k, v in case.env.items())
    return f"{case.name}({sizes}){case.note}"


def failing(
    build: Build, group: Sequence[Op[Any]], limit: int, cache: Path | bool = False
) -> tuple[int, dict[str, str]]:
    """How many cases ran at ``limit`` assignments of sizes for each example, and what failed with the reason."""
    found = [c for op in group for c in build.cases(op, limit)]
    if not found:
        return 0, {}
    labels = [label(c) for c in found]
    try:
        exe = build.compile(found, cache)
    except Exception as error:  # any: the compiler's own bugs are what is looked for
        one_by_one = {c.name: [d for d in found if d.name == c.name] for c in found}
        groups = list(one_by_one.values())

        def work(i: int) -> None:
            alone = build.compile(groups[i], cache)
            for k, c in enumerate(groups[i]):
                build.run(alone, c, k)

        bad = failures(list(one_by_one), work)
        return len(found), bad or {"all together": repr(error)}
    return len(found), failures(labels, lambda i: build.run(exe, found[i], i))
