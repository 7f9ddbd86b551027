"""The bar appears on a terminal for long work, and never elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relaxir.cli import progress


@pytest.mark.parametrize(("delay", "terminal", "shown"), [(0.0, True, True), (60.0, True, False), (0.0, False, False)])
def test_bar(monkeypatch: pytest.MonkeyPatch, delay: float, terminal: bool, shown: bool) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress, "DELAY", delay)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=out, force_terminal=terminal, width=80))
    with progress.progress_bar("working") as tick:
        tick(1, 3)
    assert ("working" in out.getvalue() and "1/3" in out.getvalue()) is shown
