"""The table of the torch importer fits torch and the operators that exist, and the page about it is current."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from relaxir.ops import TABLE
from tests.frontends.torch_cases import torch

ROOT = Path(__file__).resolve().parents[2]
FRONTEND = ROOT / "relaxir" / "frontends" / "torch"
CORE = (
    "permute view add addmm mul _softmax clone unsqueeze bmm where expand full_like logical_not scalar_tensor eq any slice "
    "arange _assert_tensor_metadata native_layer_norm mean mm convolution _to_copy embedding index full le pow cat gelu "
    "bitwise_and div relu sub rsqrt select sigmoid squeeze tanh neg sum cos sin gt ge clamp sym_size "
    "_native_batch_norm_legit_no_training max_pool2d_with_indices hardtanh cumsum _assert_scalar minimum reciprocal "
    "native_group_norm lt log split_with_sizes _log_softmax nonzero _embedding_bag upsample_nearest2d topk scatter exp var "
    "sqrt gather repeat ne abs flip argmax"
).split()
"""Packets that the decomposed programs of many models consist of."""


def emitted() -> set[str]:
    """Literal operator names that converters emit."""
    found: set[str] = set()
    for path in FRONTEND.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            name = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
            if name in ("emit", "emit_tuple") and isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant):
                found.add(str(call.args[0].value))
    return found


def test_emitted_operators_exist() -> None:
    """No converter emits an operator that is not there."""
    assert emitted() <= set(TABLE), emitted() - set(TABLE)


def test_rows_are_operators_of_torch() -> None:
    """Every row names an ATen packet."""
    from relaxir.frontends.torch.table import ATEN

    assert [name for name in ATEN if not hasattr(torch.ops.aten, name)] == []


@pytest.mark.parametrize("name", CORE)
def test_core_operators_have_rows(name: str) -> None:
    """What real models need is there."""
    from relaxir.frontends.torch.table import ATEN

    assert name in ATEN


def test_page_is_current() -> None:
    """The page is what the table says."""
    command = [sys.executable, "docs/gen_torch.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr
