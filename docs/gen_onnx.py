"""Write docs/reference/onnx.md: the ONNX operators that can be imported, from the importer's own tables.

``python docs/gen_onnx.py`` writes the page, ``--check`` fails if it is not what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from relaxir.frontends.onnx.importer import SUPPORTED_OPSETS
from relaxir.frontends.onnx.table import CONVERTERS

OUT = Path(__file__).resolve().parent / "reference" / "onnx.md"
HEAD = """# ONNX operators

<!-- made by docs/gen_onnx.py: do not edit -->

`relaxir.from_onnx` imports models of opset {low} and later. A model with other operators is refused, with all of its
nodes in one error. What a size depends on (targets, pads, axes, counts) may be constant, computed from shapes, or known
only at run time, unless a note says otherwise.

Not imported: strings, sequences, optionals, sparse tensors, complex numbers, floats of 8 bits, integers of 4 bits.

## {count} operators with a converter

| operator | note |
|---|---|
"""
MIDDLE = """
## Operators imported through their definition in the standard

The standard defines these by simpler operators; a node is imported if every operator of its definition is.

"""
NOTES = {
    "BatchNormalization": "inference only",
    "Col2Im": "the block shape must be constant",
    "Constant": "no strings, no sparse constants",
    "DFT": "the axis must be constant",
    "Dropout": "inference only",
    "If": "both branches of one rank; a condition known at import takes its branch",
    "Loop": "the number of turns must be known at import, and small",
    "Reshape": "the rank of the target must be known",
    "Resize": "scales and regions of interest must be constant, sizes need not",
    "Scan": "the length must be known at import, and small",
    "Squeeze": "without axes, all extents must be known",
    "Upsample": "scales must be constant",
}


def functions() -> Iterator[str]:
    """Operators without a converter that the newest standard defines by others."""
    newest: dict[str, Any] = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
    for name, schema in sorted(newest.items()):
        if ("", name) not in CONVERTERS and (schema.has_function or schema.has_context_dependent_function):
            yield name


def page() -> str:
    """The whole page."""
    rows = []
    for domain, name in sorted(CONVERTERS):
        rows.append(f"| {f'{domain}: ' if domain else ''}{name} | {NOTES.get(name, '')} |".replace("|  |", "| |"))
    head = HEAD.format(low=SUPPORTED_OPSETS.start, count=len(rows))
    return head + "\n".join(rows) + "\n" + MIDDLE + ", ".join(functions()) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        if not OUT.is_file() or OUT.read_text() != page():
            sys.exit("docs/reference/onnx.md is not current: run python docs/gen_onnx.py")
        return
    OUT.write_text(page())


if __name__ == "__main__":
    main()
