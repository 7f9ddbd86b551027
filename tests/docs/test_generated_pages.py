"""Generated pages are current: the scripts would write what is there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(p.name for p in (ROOT / "docs").glob("gen_*.py"))
EXTRA = {"gen_torch.py": "torch"}
"""Optional package that a script reads its table with."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_pages_are_current(script: str) -> None:
    if script in EXTRA:
        pytest.importorskip(EXTRA[script])
    done = subprocess.run(
        [sys.executable, f"docs/{script}", "--check"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        env={"PYTHONPATH": "."},
    )
    assert done.returncode == 0, done.stderr


def test_make_docs_writes_every_page() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert not [s for s in SCRIPTS if f"docs/{s}" not in makefile]
