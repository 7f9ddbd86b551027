"""Layers and third-party packages stay where they belong, and the package imports fast."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hygiene.source import ROOT, package

# Processor time beside that of what has to be imported anyway: a slow or busy machine fails nothing.
IMPORT = """
import time
start = time.process_time()
import networkx, numpy, sympy
middle = time.process_time()
import relaxir
print((time.process_time() - middle) / (middle - start))
"""


def test_contracts() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "homes"),
    [
        ("sympy", ("relaxir.sym",)),
        ("llvmlite", ("relaxir.backends.llvm",)),
        ("networkx", ("relaxir.ir", "relaxir.passes", "relaxir.tuning")),
        ("onnx", ("relaxir.frontends",)),
        ("torch", ("relaxir.frontends", "relaxir.tuning")),
        ("matplotlib", ("relaxir.measure",)),
        ("onnxruntime", ("relaxir.measure",)),
    ],
)
def test_third_party(name: str, homes: tuple[str, ...]) -> None:
    # The contracts say the same; this also sees TYPE_CHECKING imports and needs no tool.
    wrong = []
    for src in package():
        if not any(src.name == home or src.name.startswith(home + ".") for home in homes):
            for node in ast.walk(src.tree):
                modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                wrong += [f"{src.path}:{node.lineno}" for m in modules if m.partition(".")[0] == name]
    assert not wrong


def test_import_is_fast() -> None:
    env = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
    }  # what is imported twice is compiled once
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 1.0


def test_import_leaves_optional_packages_alone() -> None:
    code = "import sys, relaxir; print([m for m in ('matplotlib', 'onnx', 'onnxruntime', 'rich', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
