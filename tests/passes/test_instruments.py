"""Instruments see every pass, and the checking ones stop a pipeline at the pass that is wrong."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import IRModule
from relaxir.passes import Canonicalize, DeadCode, Instrument, Pass, PassContext, Pipeline
from relaxir.passes.instruments import CompareEach, DumpFiles, PrintEach, Timing, VerifyEach, agrees, difference
from relaxir.pipelines import DEFAULT
from relaxir.support.clock import Clock
from relaxir.support.errors import InternalError
from tests.e2e import models

X = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)


@dataclass(frozen=True)
class Swap(Pass):
    """A wrong pass: another module comes out."""

    name: ClassVar[str] = "Swap"
    other: IRModule | None = None

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Ignore the input."""
        return self.other or replace(module, functions={n: f for n, f in module.functions.items() if n != "add"})


def run(pipeline: Pipeline, *instruments: Instrument) -> IRModule:
    return pipeline.run(models.mlp(), PassContext(instruments=instruments))


def evaluate(module: IRModule) -> tuple[np.ndarray, ...]:
    result = rx.evaluate(module, "main", X)
    return result if isinstance(result, tuple) else (result,)


def test_verify_each() -> None:
    run(DEFAULT, VerifyEach())
    with pytest.raises(InternalError, match="pass `Swap` returned ill-formed IR"):
        run(Pipeline([*DEFAULT.until("LegalizeOps"), Swap()]), VerifyEach())


def test_timing_adds_up_by_name() -> None:
    clock = Clock()
    timing = Timing(clock)
    run(DEFAULT, timing)
    assert set(clock.seconds) == {p.name for p in DEFAULT}
    assert all(s >= 0 for s in clock.seconds.values())
    first = clock.seconds["Canonicalize"]
    run(Pipeline([Canonicalize()]), timing)
    assert clock.seconds["Canonicalize"] > first


def test_print_each() -> None:
    every, some, changed = io.StringIO(), io.StringIO(), io.StringIO()
    run(DEFAULT, PrintEach(out=every), PrintEach(only=("DeadCode",), out=some), PrintEach(changed=True, out=changed))
    assert every.getvalue().startswith("# before Canonicalize\n# relaxir")
    assert every.getvalue().count("# after ") == len(DEFAULT.passes)
    position = [p.name for p in DEFAULT].index("DeadCode")
    assert some.getvalue().startswith(f"# after {position:02d} DeadCode\n")
    assert some.getvalue().count("# after ") == [p.name for p in DEFAULT].count("DeadCode")
    assert "# after 03 FoldConstant" not in changed.getvalue()
    assert "LegalizeOps" in changed.getvalue()


def test_dump_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "stages"
    run(Pipeline([Canonicalize(), DeadCode()]), DumpFiles(folder))
    assert [p.name for p in sorted(folder.iterdir())] == ["00-input.rx", "01-Canonicalize.rx", "02-DeadCode.rx"]
    assert (folder / "00-input.rx").read_text().startswith("# relaxir")


def test_compare_each() -> None:
    watcher = CompareEach(evaluate)
    run(DEFAULT, watcher)
    assert [n for n, _ in watcher.checked][-1] == "PlanMemory"
    assert max(d for _, d in watcher.checked) < 1e-4
    module = models.mlp()
    negated = rx.parse(str(module).replace("R.gelu(", "R.negative("), None if "sha256" not in str(module) else arrays())
    with pytest.raises(InternalError, match="pass `Swap` changed output 0: largest difference"):
        run(Pipeline([Canonicalize(), Swap(negated)]), CompareEach(evaluate))


def arrays() -> dict[str, np.ndarray]:
    """The constants that the text of the perceptron names."""
    return {"w0": np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)}


def test_instruments_of_compile() -> None:
    out = io.StringIO()
    exe = rx.compile(models.mlp(), instruments=(PrintEach(only=("Schedule",), out=out),))
    assert "# after" in out.getvalue()
    seconds = exe.details["seconds"]
    assert list(seconds)[-5:] == ["emit", "weights", "LLVM", "link", "load"]
    assert {p.name for p in DEFAULT} < set(seconds)


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (np.float32([1, np.nan, np.inf]), np.float32([1, np.nan, np.inf]), True),
        (np.float32([1.00001]), np.float32([1]), True),
        (np.float32([1.1]), np.float32([1]), False),
        (np.float32([np.nan]), np.float32([1]), False),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([1]), np.float64([1]), False),
        (np.int32([1]), np.int32([2]), False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
        (np.zeros((0, 3), np.float32), np.zeros((3, 0), np.float32), False),
    ],
)
def test_agreement(got: np.ndarray, want: np.ndarray, same: bool) -> None:
    assert agrees(got, want, 1e-4, 1e-5) is same


def test_difference() -> None:
    assert difference(np.float32([1, np.nan, 4]), np.float32([1, 2, 3])) == 1
    assert difference(np.zeros(2), np.zeros(3)) == float("inf")
    assert difference(np.zeros(0), np.zeros(0)) == 0
