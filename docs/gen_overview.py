"""Write docs/design/overview.md: one sentence for each file, its own docstring's first, in the order data flows.

``python docs/gen_overview.py`` writes the page, ``--check`` fails if it is not what it would write.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from writer import publish

from relaxir.passes import PASSES

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
# Overview

One sentence for each file, in the order in which a program meets them. The sentences are the files' own, and
`make docs` writes this page. The layers, lowest first, are `support`, `sym`, `tir`, `ir`, `cost`, then `ops`, `text`,
`schedule` and `runtime`, then `passes`, `backends` and `frontends`, then `pipelines`, `api`, `measure`, `cli`;
`setup.cfg` has them in checked form.
"""

SECTIONS = (
    ("The public face", ("relaxir", "relaxir/cli")),
    ("What everything uses", ("relaxir/support",)),
    ("Dimensions and proofs", ("relaxir/sym",)),
    (
        "Building a program",
        ("relaxir/frontends", "relaxir/frontends/onnx", "relaxir/frontends/torch", "relaxir/ir", "relaxir/text"),
    ),
    ("What operators mean", ("relaxir/ops",)),
    (
        "From graph to loops",
        ("relaxir/passes", "relaxir/tir", "relaxir/cost", "relaxir/schedule", "relaxir/schedule/rules"),
    ),
    ("From loops to machine code", ("relaxir/backends", "relaxir/backends/llvm")),
    ("Running it", ("relaxir/runtime", "relaxir/runtime/interp")),
    ("Measuring it", ("relaxir/measure",)),
)
"""Folders under headings, in the order of the page."""

FIRST = (
    "relaxir/__init__.py", "relaxir/api.py", "relaxir/pipelines.py",
    "relaxir/cli/__init__.py", "relaxir/cli/commands.py",
    "relaxir/support/errors.py", "relaxir/support/spans.py",
    "relaxir/sym/expr.py", "relaxir/sym/normalize.py", "relaxir/sym/canonical.py", "relaxir/sym/facts.py",
    "relaxir/frontends/onnx/load.py", "relaxir/frontends/onnx/importer.py",
    "relaxir/ir/types.py", "relaxir/ir/expr.py", "relaxir/ir/op.py", "relaxir/ir/module.py", "relaxir/ir/bindings.py",
    "relaxir/ir/builder.py",
    "relaxir/text/module.py", "relaxir/text/graph.py", "relaxir/text/tensor.py",
    "relaxir/ops/namespace.py", "relaxir/ops/common.py", "relaxir/ops/elementwise.py", "relaxir/ops/indexing.py",
    "relaxir/passes/base.py",
    "relaxir/tir/expr.py", "relaxir/tir/buffer.py", "relaxir/tir/stmt.py", "relaxir/tir/host.py", "relaxir/tir/func.py",
    "relaxir/cost/work.py", "relaxir/cost/config.py", "relaxir/cost/chooser.py",
    "relaxir/schedule/apply.py", "relaxir/schedule/primitives.py",
    "relaxir/backends/llvm/target.py", "relaxir/backends/llvm/build.py", "relaxir/backends/llvm/emit.py",
    "relaxir/runtime/executable.py",
)  # fmt: skip
"""Files that come before the others of their folder, in this order."""


def order(path: str) -> tuple[int, int, str]:
    """Sort key within a folder: the package itself, the leading files, passes as they run, the rest by name."""
    if path.endswith("__init__.py"):
        return (0, 0, path)
    if path in FIRST:
        return (1, FIRST.index(path), path)
    modules = [p.__module__.replace(".", "/") + ".py" for p in PASSES]
    return (2, modules.index(path), path) if path in modules else (3, 0, path)


def sentence(path: Path) -> str:
    """First sentence of a file's docstring, as the rest of a line of the page."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0].split())
    first = text.removesuffix(":").removesuffix(".").split(". ")[0]
    return first.replace("``", "`") + "."


def lines(folder: str) -> Iterator[str]:
    """The folder with its own sentence, then its files."""
    paths = sorted((p.relative_to(ROOT).as_posix() for p in (ROOT / folder).glob("*.py")), key=order)
    yield f"**`{folder}/`** {sentence(ROOT / folder / '__init__.py')}\n"
    files = [f"- `{p}`: {sentence(ROOT / p)}" for p in paths if not p.endswith("__init__.py")]
    yield from (*files, "") if files else ()


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, folders in SECTIONS:
        parts += [f"## {title}\n", *(line for folder in folders for line in lines(folder))]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(publish({"design/overview.md": page()}, "gen_overview.py"))
