"""Branches that the code of a program took on its sizes while torch traced it.

Torch writes down every comparison of sizes that it evaluates, those of its own bookkeeping among them (how elements
lie in memory), whose other outcome would give the same results. Only where a comparison was made tells them apart.
Programs that were saved and loaded have lost the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram

TORCH: Final = str(Path(torch.__file__).parent)
"""Where torch's own code is."""
TRACER: Final = str(Path(TORCH, "_dynamo", "variables"))
"""Where it evaluates the comparisons of code that it interprets."""


def branches(program: ExportedProgram) -> Iterator[Any]:
    """What the program's own code found true of sizes: comparisons in torch's symbols."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    envs = (getattr(getattr(value, "fake_mode", None), "shape_env", None) for value in values)
    for guard in getattr(next((e for e in envs if e is not None), None), "guards", ()):
        place = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        if own(getattr(place, "filename", TORCH)):
            yield guard.expr


def own(file: str) -> bool:
    """Whether a comparison made in a file is one of the program."""
    return not file.startswith(TORCH) or file.startswith(TRACER)
