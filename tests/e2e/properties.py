"""What must hold of every random program: strategies, each with its check. `tests.fuzz` searches them at length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from relaxir.frontends.onnx import from_onnx
from relaxir.runtime.interp import evaluate
from tests.e2e.agreement import Setup, agree, assignments, results, same
from tests.e2e.random_graphs import Program, programs
from tests.e2e.random_kernels import caller
from tests.e2e.random_onnx import SIZES as ONNX_SIZES
from tests.e2e.random_onnx import OnnxProgram, models
from tests.frontends.onnx_session import run_onnxruntime
from tests.strategies import block_programs, graph_modules, loop_programs

SIZES: Final = (0, 1, 3, 7, 17)
WHOLE: Final = Setup(sizes=SIZES, whole=True)
ONNX_TOLERANCE: Final = 1e-4
"""Relative to the largest magnitude of a result: onnxruntime sums in another order."""


@dataclass(frozen=True)
class Property:
    """Programs, and what must hold of each.

    Attributes:
        examples: draws programs.
        check: raises where one is compiled, or interpreted, wrongly.
    """

    examples: st.SearchStrategy[Any]
    check: Callable[[Any], None]

    def search(self, how: Callable[[Any], Any], tick: Callable[[int], None] = lambda done: None) -> None:
        """Check examples; the failure that is raised is that of the smallest example found, which is shown.

        Args:
            how: settings, number of examples and the like.
            tick: called with the number of examples so far.
        """
        done = 0

        @how
        @given(self.examples)
        def run(example: Any) -> None:
            nonlocal done
            done += 1
            tick(done)
            self.check(example)

        run()


def same_as_onnxruntime(program: OnnxProgram) -> None:
    """Interpreted as onnxruntime runs it, and compiled as interpreted."""
    note(repr(program))
    module = from_onnx(program.proto)
    ours = Program(module)
    for env in assignments(ours.symbols, ONNX_SIZES):
        feeds = program.feeds(env)
        with np.errstate(all="ignore"):
            got = results(evaluate(module, "main", *feeds.values()))
        same(got, run_onnxruntime(program.proto, feeds), [str(g.dtype) for g in got], ONNX_TOLERANCE)
    agree(ours, Setup(sizes=ONNX_SIZES))


PROPERTIES: Final[Mapping[str, Property]] = MappingProxyType(
    {
        "fusible graphs": Property(programs(), lambda p: agree(p, Setup(sizes=SIZES))),
        "graphs with control flow": Property(graph_modules(), lambda m: agree(Program(m), Setup(sizes=SIZES))),
        "tensor programs in block form": Property(block_programs(exact=True), lambda f: agree(caller(f), WHOLE)),
        "tensor programs in loop form": Property(loop_programs(exact=True), lambda f: agree(caller(f), WHOLE)),
        "onnx models": Property(models(), same_as_onnxruntime),
    }
)
