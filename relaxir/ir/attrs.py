"""Attribute records of operators: frozen values that fit their annotations, whoever made them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from relaxir.support.dtypes import DTYPES
from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.support.errors import InferError, RelaxirError, UnsupportedError
from relaxir.support.spans import Span
from relaxir.sym import DimLike, normalize, to_text

DTypeName: TypeAlias = Annotated[str, "a data type"]
"""The name of a data type; records hold the canonical one."""


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of all attribute records: frozen dataclasses of ints, floats, strings, dims and tuples of them.

    A record takes what its annotations say and holds it in one plain form: tuples (of lists, or of the single value
    given for one), Python's own numbers, normalised dimensions, canonical names of data types.

    Raises:
        InferError: with code ``attribute``, for a value of another kind.
    """

    def __post_init__(self) -> None:
        record: Any = type(self)  # mypy takes the hash of records for that of their class
        for name, kind in kinds(record):
            given = getattr(self, name)
            value = kind.read(given)
            if value is WRONG:
                raise InferError(
                    f"attribute `{name}` must be {kind.words}, got {shown(given)}",
                    code="attribute",
                    help=_advice(name, kind, given),
                )
            if value is not given:
                object.__setattr__(self, name, value)


A = TypeVar("A", bound=Attrs)
NOWHERE: Final[Mapping[str, Span]] = MappingProxyType({})


def make_attrs(
    op: str, record: type[A], given: Mapping[str, object], span: Span | None, places: Mapping[str, Span] = NOWHERE
) -> A:
    """The record of one call of an operator, from what the caller wrote; ``places`` are those of single attributes.

    Raises:
        InferError: naming the operator, for an unknown attribute, a missing one, or a value of the wrong kind.
    """
    made: Any = record
    known = {f.name: f for f in fields(record)}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean `{close[0]}`?" if close else f"it takes {', '.join(known) or 'none'}"
            place = places.get(name, span)
            raise InferError(f"{op}: no attribute `{name}`", code="attribute", span=place, help=advice)
    for f in known.values():
        if f.name not in given and f.default is MISSING:
            raise InferError(
                f"{op}: attribute `{f.name}` is missing",
                code="attribute",
                span=span,
                help=f"write {f.name}=..., {dict(kinds(made))[f.name].words}",
            )
    try:
        return record(**given)
    except RelaxirError as error:  # it knows neither the operator nor the place
        raise type(error)(f"{op}: {error.message}", code=error.code, span=span, help=error.help) from None


def map_attrs(attrs: A, fn: Callable[[DimLike], DimLike]) -> A:
    """Rewrite every symbolic dimension held in an attribute record (fields and tuples of them)."""

    def visit(v: Any) -> Any:
        if isinstance(v, tuple):
            items = tuple(visit(i) for i in v)
            return v if all(a is b for a, b in zip(items, v, strict=True)) else items
        if is_symbolic(v):
            return fn(v)
        return v

    changed = {}
    for f in fields(attrs):
        old = getattr(attrs, f.name)
        new = visit(old)
        if new is not old:
            changed[f.name] = new
    return replace(attrs, **changed) if changed else attrs


def is_symbolic(value: object) -> bool:
    """Whether a value is a symbolic dimension expression (not a plain number, string, tuple, ...)."""
    return hasattr(value, "free_symbols") and not isinstance(value, int | float | np.generic)


def attr_dims(attrs: Attrs) -> tuple[DimLike, ...]:
    """Symbolic dimensions held in an attribute record."""
    found: list[DimLike] = []

    def note(d: DimLike) -> DimLike:
        found.append(d)
        return d

    map_attrs(attrs, note)
    return tuple(found)


# ---- kinds of values ------------------------------------------------------------------------------------------------

LONGEST: Final = 60
"""Characters of a value that a message shows."""
LARGEST_FLOAT: Final = int(sys.float_info.max)
"""Integers beyond stand for no float."""
INT64: Final = range(-(1 << 63), 1 << 63)
"""What an integer in generated code can be; ONNX says "to the end" by the ends of it."""
WRONG: Final = object()
"""What `Kind.read` gives for a value of another kind."""


class Kind(NamedTuple):
    """What an annotation means: the plain form of a value, words for one value and for several, the choice if small."""

    read: Callable[[Any], Any]
    words: str
    plural: str
    choice: tuple[str, ...] = ()


@cache
def kinds(record: type[Any]) -> tuple[tuple[str, Kind], ...]:
    """The fields of a record, resolved once."""
    hints = get_type_hints(record, include_extras=True)
    return tuple((f.name, kind_of(hints[f.name])) for f in fields(record))


def kind_of(annotation: Any) -> Kind:
    """The kind of values that an annotation describes."""
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    parts = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Literal:
            words = " or ".join(", ".join(map(repr, parts)).rsplit(", ", 1))
            return Kind(lambda v: v if isinstance(v, str) and v in parts else WRONG, words, words, parts)
        case origin if origin is tuple and parts[1:] == (...,):
            return _several(kind_of(parts[0]))
        case origin if origin is tuple:
            return _record(tuple(map(kind_of, parts)))
        case origin if origin in (Union, UnionType):
            return _either(parts)
    raise TypeError(f"no kind of attribute is written {annotation}")


def shown(value: object) -> str:
    """A value in a message: as written where it is short and plain, else its type."""
    if type(value) is int and value not in INT64:
        return "an integer of more than 64 bits"
    if isinstance(value, str | int | float | bool | NoneType):
        text = repr(value)
    elif isinstance(value, tuple | list):
        text = f"({', '.join(map(shown, value[:8]))}{',' if len(value) == 1 else ''})"
    else:
        text = to_text(value) if is_symbolic(value) else ""
    return text if 0 < len(text) <= LONGEST else f"a {type(value).__name__}"


def _integer(value: Any) -> Any:
    whole = int(value) if isinstance(value, np.integer) else value
    return whole if type(whole) is int and whole in INT64 else WRONG


def _number(value: Any) -> Any:
    if type(value) is int:
        return value if abs(value) <= LARGEST_FLOAT else WRONG
    if type(value) is float:
        return value
    return value.item() if isinstance(value, np.integer | np.floating) else WRONG


def _boolean(value: Any) -> Any:
    if type(value) is bool:
        return value
    return bool(value) if isinstance(value, np.bool_) or (type(value) is int and value in (0, 1)) else WRONG


def _string(value: Any) -> Any:
    return str(value) if isinstance(value, str) else WRONG


def _dimension(value: Any) -> Any:
    whole = normalize(value) if is_symbolic(value) else value
    return whole if is_symbolic(whole) else _integer(whole)


def _dtype(value: Any) -> Any:
    if isinstance(value, str) and value in DTYPES:
        return value
    try:
        return canonical_dtype(value)
    except UnsupportedError:
        return WRONG


DIMENSION: Final = Kind(_dimension, "a dimension", "dimensions")
SIMPLE: Final[Mapping[Any, Kind]] = MappingProxyType(
    {
        bool: Kind(_boolean, "True or False", "booleans"),
        int: Kind(_integer, "an integer", "integers"),
        float: Kind(_number, "a number", "numbers"),
        str: Kind(_string, "a string", "strings"),
        NoneType: Kind(lambda v: v if v is None else WRONG, "None", "None"),
        DimLike: DIMENSION,
        DTypeName: Kind(_dtype, "a data type", "data types", tuple(DTYPES)),
    }
)


def _several(item: Kind) -> Kind:
    """Any number of values; one by itself stands for a tuple of it."""

    def read(value: Any) -> Any:
        if not isinstance(value, tuple | list):
            single = item.read(value)
            return WRONG if single is WRONG else (single,)
        items = tuple(map(item.read, value))
        if any(i is WRONG for i in items):
            return WRONG
        same = type(value) is tuple and all(a is b for a, b in zip(items, value, strict=True))
        return value if same else items

    return Kind(read, f"a tuple of {item.plural}", f"tuples of {item.plural}")


def _record(items: tuple[Kind, ...]) -> Kind:
    """One value of each kind."""

    def read(value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(items):
            return WRONG
        values = tuple(item.read(v) for item, v in zip(items, value, strict=True))
        return WRONG if any(v is WRONG for v in values) else values

    text = f"({', '.join(item.words for item in items)})"
    return Kind(read, f"a tuple {text}", f"tuples {text}")


def _either(parts: tuple[Any, ...]) -> Kind:
    """A value of the first kind that takes it."""
    dims = set(get_args(DimLike))
    found = [kind_of(p) for p in parts if p not in dims or not dims <= set(parts)]
    if dims <= set(parts):
        found.insert(0, DIMENSION)

    def read(value: Any) -> Any:
        return next((v for v in (k.read(value) for k in found) if v is not WRONG), WRONG)

    words, plural = (" or ".join(texts) for texts in zip(*((k.words, k.plural) for k in found), strict=True))
    return Kind(read, words, plural, tuple(c for k in found for c in k.choice))


def _advice(name: str, kind: Kind, given: object) -> str:
    """What to write instead."""
    if kind.choice:
        close = difflib.get_close_matches(str(given), kind.choice, n=1)
        return f"did you mean '{close[0]}'?" if close else f"use one of {', '.join(kind.choice)}"
    values = list(given) if isinstance(given, tuple | list) else [given]
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    better = tuple(whole) if isinstance(given, tuple | list) else whole[0]
    return f"write {name}={better}" if kind.read(better) is not WRONG else f"give {kind.words}"
