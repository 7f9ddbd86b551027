"""Write docs/reference/error-codes.md and passes.md, from the errors' and the passes' own docstrings.

``python docs/gen_reference.py`` writes the pages, ``--check`` fails if they are not what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields

from writer import publish

from relaxir.passes import PASSES, Pass
from relaxir.pipelines import DEFAULT
from relaxir.support.errors import ERRORS, RelaxirError

LITERAL = re.compile(r"::\n\n((?:    .*\n|\n)+)")


def markdown(text: str) -> str:
    """A docstring as Markdown: literal blocks are fenced, double backquotes single."""
    fenced = LITERAL.sub(lambda m: f":\n\n```python\n{inspect.cleandoc(m[1])}\n```\n\n", text.rstrip() + "\n")
    return re.sub(r"``([^`\n]+)``", r"`\1`", fenced).rstrip()


def error_section(error: type[RelaxirError]) -> str:
    """The manual page of one class of errors."""
    codes = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in error.CODES.items())
    return f"## {error.__name__}\n\n{markdown(inspect.getdoc(error) or '')}\n\n| code | meaning |\n|---|---|\n{codes}\n"


def errors_page() -> str:
    """All classes, in the order of the manual."""
    head = (
        "# Error codes\n\nEvery class of errors with its codes; `relaxir explain CODE` prints the same. "
        "This page is made\nfrom `relaxir/support/errors.py`; [Errors](errors.md) says how to read an error.\n"
    )
    return "\n".join((head, *map(error_section, ERRORS)))


def example(text: str) -> Iterator[str]:
    """The parts of a pass's module docstring: prose, then what goes in and what comes out."""
    prose, _, rest = text.partition("\nBefore:\n")
    before, _, after = rest.partition("\nAfter:\n")
    yield markdown(prose)
    yield f"Before:\n\n```python\n{inspect.cleandoc(before)}\n```"
    shown, _, more = after.partition("\n\n")
    yield f"After:\n\n```python\n{inspect.cleandoc(shown)}\n```"
    if more.strip():
        yield markdown(inspect.cleandoc(more))


def pass_section(cls: type[Pass]) -> str:
    """One pass."""
    own = [f for f in fields(cls) if f.name not in {b.name for b in fields(Pass)}]
    places = [str(i + 1) for i, step in enumerate(DEFAULT) if type(step) is cls]
    level = f"a module of level {cls.requires.name}"
    gives = f"one of level {cls.ensures.name}" if cls.ensures is not None else "one of the same level"
    facts = f"Takes {level}, gives {gives}. Place in the default pipeline: {', '.join(places) or 'none'}."
    options = "\n".join(f"- `{f.name}: {f.type} = {f.default!r}`" for f in own)
    parts = [f"## {cls.name}", *example(sys.modules[cls.__module__].__doc__ or ""), markdown(inspect.getdoc(cls) or "")]
    return "\n\n".join([*parts, facts, *([f"Options:\n\n{options}"] if options else [])]) + "\n"


def passes_page() -> str:
    """All passes, in the order in which they first run."""
    head = (
        f"# Passes\n\n{len(PASSES)} passes; the default pipeline has {len(DEFAULT.passes)} steps. "
        "This page is made of the\npasses' own docstrings; "
        "[the pipeline](../design/pipeline.md) says what each part is for.\n"
    )
    return "\n".join((head, *map(pass_section, PASSES)))


if __name__ == "__main__":
    sys.exit(
        publish({"reference/error-codes.md": errors_page(), "reference/passes.md": passes_page()}, "gen_reference.py")
    )
