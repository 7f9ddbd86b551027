"""Printing of graph-level IR (placeholder until the text form lands)."""

from __future__ import annotations

from collections.abc import Mapping


def module_text(functions: Mapping[str, object], attrs: Mapping[str, object]) -> str:
    """Text of a module."""
    return "\n".join(f"{name}: {type(f).__name__}" for name, f in functions.items())
