"""Checks of what a caller passes where Python itself would not say what is wrong, or say it late."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from relaxir.support.errors import ArgumentError


def check_kind(what: str, value: object, kinds: type | tuple[type, ...], help: str = "") -> None:
    """Refuse a value of another kind.

    Raises:
        ArgumentError: naming the argument and the kinds.
    """
    if not isinstance(value, kinds):
        names = " or ".join(k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise ArgumentError(
            f"{what}: expected {names}, got {type(value).__name__}",
            code="argument-type",
            help=help or f"pass {names}",
        )


def check_function(name: object, functions: Iterable[str]) -> None:
    """Refuse the name of a function that a module does not have.

    Raises:
        ArgumentError: naming the functions that are there.
    """
    known = list(functions)
    if name not in known:
        shown = ", ".join(f"`{n}`" for n in known) or "no functions"
        raise ArgumentError(f"no function `{name}`", code="argument-name", help=f"the module has {shown}")


def check_count(what: str, value: Any, low: int = 1, high: int = (1 << 31) - 1) -> int:
    """A whole number within a range, as an int.

    Raises:
        ArgumentError: another kind of value, or one outside the range.

    >>> check_count("threads", 2)
    2
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ArgumentError(
            f"{what}: expected a whole number, got {type(value).__name__}",
            code="argument-type",
            help=f"pass an int of at least {low}",
        )
    if not low <= number <= high:
        raise ArgumentError(f"{what}: must be {low} to {high}, got {number}", help=f"pass an int of at least {low}")
    return number


def check_fixed(name: str, axis: int, size: int, asked: int) -> None:
    """Refuse another size for an axis than the one that a model fixes.

    Raises:
        ArgumentError: naming the input, the axis and both sizes.
    """
    if asked != size:
        raise ArgumentError(
            f"axis {axis} of input `{name}` is {size} in the model, and {asked} is asked for",
            code="argument-extent",
            help="leave it out, or give a range if the model can take other sizes",
        )
