"""Write docs/reference/ops: one page for each family of operators, from the operators' own docstrings and examples.

``python docs/gen_ops.py`` writes the pages, ``--check`` fails if they are not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from writer import publish

from relaxir.ir import Attrs, BadExample, Example, Op
from relaxir.ops import OPS


def families() -> Mapping[str, tuple[Op[Any], ...]]:
    """Operators by the file that holds them, both in alphabetical order."""
    found: dict[str, tuple[Op[Any], ...]] = {}
    for op in sorted(OPS, key=lambda o: o.name):
        family = type(op).__module__.rsplit(".", 1)[1]
        found[family] = (*found.get(family, ()), op)
    return dict(sorted(found.items()))


def summary_of(family: str) -> str:
    """First sentence of a family's module."""
    return (sys.modules[f"relaxir.ops.{family}"].__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def field_docs(record: type[Attrs]) -> Mapping[str, str]:
    """Docstring lines below the fields of an attribute record, inherited ones too."""
    docs: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        if cls in (object, Attrs):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(body, ast.ClassDef)
        for name, doc in zip(body.body, body.body[1:], strict=False):
            if isinstance(name, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docs[ast.unparse(name.target)] = " ".join(str(doc.value.value).split())
    return docs


def default_of(field: Field[Any]) -> str:
    """``axis=-1``, or the bare name of an attribute that must be given."""
    return field.name if field.default is MISSING else f"{field.name}={field.default!r}"


def signature(op: Op[Any]) -> str:
    """How the operator is called."""
    operands = [f"*{p.name}" if p.variadic else f"{p.name}=None" if p.optional else p.name for p in op.params]
    return f"R.{op.name}({', '.join((*operands, *map(default_of, fields(op.Attrs))))})"


def attributes(op: Op[Any]) -> Iterator[str]:
    """Bullet list of attributes."""
    docs = field_docs(op.Attrs)
    for field in fields(op.Attrs):
        yield f"- `{field.name}: {field.type}`" + (f" — {docs[field.name]}" if field.name in docs else "")


def given(attrs: Attrs) -> str:
    """Attributes of an example that differ from their defaults."""
    changed = (f for f in fields(attrs) if getattr(attrs, f.name) != f.default)
    return ", ".join(f"{f.name}={getattr(attrs, f.name)}" for f in changed)


def row(example: Example | BadExample, result: str) -> str:
    """Table row of an example: operands, attributes, result or error."""
    attrs = given(example.attrs)
    operands = ", ".join(f"`{a}`" for a in example.args)
    return f"| {operands} | {f'`{attrs}`' if attrs else ''} | {result} |"


def section(op: Op[Any]) -> Iterator[str]:
    """Everything about one operator."""
    yield f"## {op.name}\n\n```python\n{signature(op)}\n```\n\n{inspect.getdoc(type(op))}\n"
    yield "\n".join(f"- `{p.name}`" + (f" — {p.doc}" if p.doc else "") for p in op.params) + "\n" * bool(op.params)
    if listed := "\n".join(attributes(op)):
        yield f"Attributes:\n\n{listed}\n"
    rows = [row(e, f"`{e.out if isinstance(e.out, str) else '(' + ', '.join(e.out) + ')'}`") for e in op.examples]
    rows += [row(e, f"error `{e.code}`") for e in op.bad_examples]
    yield "| operands | attributes | result |\n|---|---|---|\n" + "\n".join(dict.fromkeys(rows)) + "\n"


def pages() -> Mapping[str, str]:
    """Every page by its file name."""
    found = {
        f"{family}.md": "\n".join(
            (f"# {summary_of(family).rstrip('.')}\n", *(line for op in ops for line in section(op)))
        )
        for family, ops in families().items()
    }
    index = [
        f"- [{family}]({family}.md): {', '.join(f'`{o.name}`' for o in ops)}" for family, ops in families().items()
    ]
    found["index.md"] = (
        f"# Operators\n\n{len(OPS)} operators; these pages are generated from their classes.\n\n"
        + "\n".join(index)
        + "\n"
    )
    return found


def main() -> int:
    """Write or check; the exit status."""
    return publish({f"reference/ops/{name}": text for name, text in pages().items()}, "gen_ops.py", "reference/ops")


if __name__ == "__main__":
    sys.exit(main())
