"""The importer's tables fit the operators that exist, and the page about them is current."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import onnx

from relaxir.frontends.onnx.convert_math import BINARY, REDUCTIONS, UNARY
from relaxir.frontends.onnx.convert_microsoft import BESIDE_STANDARD
from relaxir.frontends.onnx.table import CONVERTERS
from relaxir.ops import TABLE

ROOT = Path(__file__).resolve().parents[2]
EMITTERS = {"emit", "emit_tuple", "unary", "binary", "with_alpha", "variadic", "arg_reduction", "scan", "softmax"}


def emitted() -> set[str]:
    """Literal operator names that converters emit."""
    found: set[str] = set()
    for path in (ROOT / "relaxir" / "frontends" / "onnx").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                if name in EMITTERS:
                    found.add(str(call.args[0].value))
    return found


def test_emitted_operators_exist() -> None:
    names = emitted() | set(UNARY.values()) | set(BINARY.values()) | {name for _, name, _ in REDUCTIONS}
    assert names <= set(TABLE), names - set(TABLE)


def test_converters_are_of_the_standard() -> None:
    own = [name for domain, name in CONVERTERS if domain == "" and not onnx.defs.has(name, "")]
    assert set(own) <= set(BESIDE_STANDARD)


def test_every_operator_has_a_row() -> None:
    page = (ROOT / "docs" / "reference" / "onnx.md").read_text()
    assert not [s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and f"| {s.name} | " not in page]
    assert not [name for domain, name in CONVERTERS if f"| {name} | " not in page and name not in BESIDE_STANDARD]


def test_page_is_current_and_its_types_are_true() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "docs/gen_onnx.py", "--check", "--sample"],
        cwd=ROOT, capture_output=True, check=False, text=True, env={"PYTHONPATH": "."},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
