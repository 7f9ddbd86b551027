"""Every operator's examples as compiled code: four builds must agree with the reference, and stay inside their memory.

Many functions share a module, a chunk of the table each: compiling them one by one would take minutes. The build for
any size is run at all sizes; the others at fewer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from relaxir.ir import Op
from tests.ops.compiled import BUILDS, chunks, failing

SIZES: Final = {"dynamic": 7, "wide": 3, "static": 1, "folded": 1, "reference": 3}
"""Assignments of sizes for each example; `static` and `folded` compile a function for each."""

CHUNKS: Final = [pytest.param(c, id=f"{c[0].name}-{c[-1].name}") for c in chunks()]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled objects of this run only: the runtime library is the same in all modules."""
    return tmp_path_factory.mktemp("objects")


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("group", CHUNKS)
def test_build_agrees(group: tuple[Op[Any], ...], build: str, cache: Path) -> None:
    ran, bad = failing(BUILDS[build], group, SIZES[build], cache)
    assert ran or build == "wide"
    assert not bad, "\n".join(f"{case}: {text}" for case, text in bad.items())
