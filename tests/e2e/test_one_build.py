"""One build serves every shape: after `compile` or `load` nothing is built again, counted where texts go to LLVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import relaxir as rx
from relaxir.backends.llvm.compile import CompileOptions, Progress, Workers
from relaxir.backends.llvm.target import Target
from tests.e2e.models import mlp

SHAPES = (1, 2, 7, 16, 33, 257)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by each text sent to a compile worker; LLVM in this process is refused."""
    seen: list[str] = []
    inner = Workers.compile

    def counted(
        self: Workers, texts: Sequence[str], target: Target, options: CompileOptions, progress: Progress | None = None
    ) -> list[bytes]:
        seen.extend(texts)
        return inner(self, texts, target, options, progress)

    def refused(*_: object) -> None:
        pytest.fail("LLVM was called outside the compile workers")

    monkeypatch.setattr(Workers, "compile", counted)
    monkeypatch.setattr(llvm, "parse_assembly", refused)
    monkeypatch.setattr(llvm.TargetMachine, "emit_object", refused)
    return seen


def test_compile_is_the_only_build(builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `compile` sends texts to LLVM: the first call at a shape, `export`, `load`, calls of the loaded library,
    the memory and the cost formulas build nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))  # an object cache would hide a build
    exe = rx.compile(mlp())
    built = len(builds)
    assert built > 0
    exe.export(tmp_path / "mlp.so")
    library = rx.load(tmp_path / "mlp.so")
    for n in SHAPES:
        x = np.ones((n, 24), np.float32)
        np.testing.assert_array_equal(exe["main"](x), library["main"](x))
    rx.memory(exe)
    rx.cost(exe)
    assert len(builds) == built


def test_a_process_that_only_runs_a_library_has_no_llvm(tmp_path: Path) -> None:
    """LLVM would be a third of its memory."""
    rx.compile(mlp()).export(tmp_path / "mlp.so")
    script = (
        "import sys, numpy as np, relaxir as rx\n"
        f"main = rx.load({str(tmp_path / 'mlp.so')!r})['main']\n"
        "main(np.ones((3, 24), np.float32))\n"
        "print('llvmlite.binding' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False"]
