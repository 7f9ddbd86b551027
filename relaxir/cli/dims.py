"""The one grammar of sizes: ``NAME=8`` and ``NAME=1,8,64`` are sizes, ``NAME=1..64`` and ``NAME=1..`` are ranges.

A range is what an ONNX model is imported with; sizes are what generated inputs have. A command that makes no inputs
takes a size as the range that holds nothing else, so that ``compile --dim batch=8`` compiles for 8 alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

import relaxir as rx
from relaxir.support.names import symbol_name
from relaxir.sym import DimLike

F = TypeVar("F", bound=Callable[..., Any])
INT64_MAX: Final = (1 << 63) - 1
FORMS: Final = "write NAME=8, NAME=1,8,64 or NAME=1..64"


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes from ``low`` to ``high``, or without an upper end."""

    low: int
    high: int | None

    def dim(self, name: str) -> DimLike:
        """The dimension of that range, or its only size."""
        return self.low if self.low == self.high else rx.dim(symbol(name), min=self.low, max=self.high)


@dataclass(frozen=True, slots=True)
class Dims:
    """What a command line says of dimensions, by the names that stand there."""

    ranges: Mapping[str, Range] = field(default_factory=lambda: MappingProxyType({}))
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def declared(self) -> dict[str, DimLike]:
        """The ranges, as importers take them."""
        return {name: found.dim(name) for name, found in self.ranges.items()}

    def points(self) -> list[dict[str, int]]:
        """Every combination of the sizes, the last name changing fastest; one, without names, where there are none."""
        return [dict(zip(self.sizes, sizes, strict=True)) for sizes in product(*self.sizes.values())]


def symbol(name: str) -> str:
    """What the symbol of a model's dimension is called: ``batch size`` becomes ``batch_size``."""
    return symbol_name(name) or "d"


def parse_dim(option: str) -> tuple[str, Range | tuple[int, ...]]:
    """One ``NAME=SIZES``: the name with a range, or with its sizes.

    Raises:
        ValueError: what is wrong, in words.
    """
    name, equals, text = option.rpartition("=")  # a name may be any text, a size has no `=`
    if not (name.strip() and equals and text):
        raise ValueError(f"`{option}` is no size of a dimension; {FORMS}")
    try:
        return name.strip(), parse_sizes(text)
    except ValueError as error:
        raise ValueError(f"`{option}`: {error}; {FORMS}") from error


def parse_sizes(text: str) -> Range | tuple[int, ...]:
    """``1..64`` and ``1..`` as a range, ``8`` and ``1,8`` as sizes.

    Raises:
        ValueError: what is wrong, in words.
    """
    low, dots, high = text.partition("..")
    if not dots:
        return tuple(map(parse_size, text.split(",")))
    found = Range(parse_size(low), parse_size(high) if high.strip() else None)
    if found.high is not None and found.high < found.low:
        raise ValueError(f"no size lies between {found.low} and {found.high}")
    return found


def parse_size(text: str) -> int:
    """A whole number of at least 0 in 64 bits.

    Raises:
        ValueError: what is wrong, in words.
    """
    word = text.strip()
    if re.fullmatch(r"-[0-9]+", word):
        raise ValueError(f"a size is at least 0, not {word}")
    if not re.fullmatch(r"[0-9]+", word):
        raise ValueError(f"a size is a whole number, not `{word}`" if word else "a size is missing")
    if len(word) > len(str(INT64_MAX)) or int(word) > INT64_MAX:
        raise ValueError("the size does not fit 64 bits")
    return int(word)


def collect_dims(options: Iterable[str], fixes: bool = False, most: int | None = None) -> Dims:
    """What all options of a command line say; the arguments are those of `dims_option`.

    Raises:
        ValueError: what is wrong, in words.
    """
    ranges: dict[str, Range] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for name, value in map(parse_dim, options):
        if isinstance(value, tuple) and most is not None and len(value) > most:
            raise ValueError(
                f"`{name}` has {len(value)} sizes, and this command takes one; `relaxir bench` tries several"
            )
        if isinstance(value, tuple) and fixes:
            value = Range(value[0], value[0])
        if name in (ranges if isinstance(value, Range) else sizes):
            raise ValueError(f"`{name}` is given twice; give each dimension once")
        if isinstance(value, Range):
            ranges[name] = value
        else:
            sizes[name] = value
    return Dims(ranges, sizes)


class DimOption(click.Option):
    """``-d NAME=SIZES``; ``-s`` and ``--size``, as it was called for inputs once, mean the same."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Accept the old names without a place in the help."""
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=["-s", "--size"], dest=self.name, action="append", nargs=1)


def dims_option(help: str, metavar: str, *, fixes: bool = False, most: int | None = 1) -> Callable[[F], F]:
    """The option of a command.

    Args:
        help: what it does there.
        metavar: the forms that make sense there.
        fixes: a size is the range that holds nothing else.
        most: how many sizes a dimension may have.
    """

    def collect(ctx: click.Context, param: click.Parameter, options: tuple[str, ...]) -> Dims:
        try:
            return collect_dims(options, fixes, most)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return click.option(
        "-d",
        "--dim",
        "dims",
        cls=DimOption,
        multiple=True,
        callback=collect,
        metavar=metavar,
        help=help,
    )
