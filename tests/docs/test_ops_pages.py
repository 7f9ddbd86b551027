"""The generated pages of operators are current."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/gen_ops.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        env={"PYTHONPATH": "."},
    )
    assert done.returncode == 0, done.stderr
