"""The source files that the hygiene tests read, parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Dotted module name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def source(text: str, path: str = "relaxir/sample.py") -> Source:
    """Make a source from text, as the tests of the checkers need it."""
    return Source(path, text, ast.parse(text))


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """All Python files under the given folders of the repository."""
    paths = (p for folder in folders for p in sorted((ROOT / folder).rglob("*.py")))
    return tuple(source(p.read_text(encoding="utf-8"), p.relative_to(ROOT).as_posix()) for p in paths)


def package() -> tuple[Source, ...]:
    """All files of the package itself."""
    return sources("relaxir")


def everything() -> tuple[Source, ...]:
    """All Python files of the repository."""
    return sources("relaxir", "tests", "examples", "benchmarks", "tools")
