"""Reading of attribute values: the inverse of `relaxir.tir.literals.value_text`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from relaxir.ir.expr import Array
from relaxir.sym import Dim
from relaxir.text.constants import read_constant
from relaxir.text.source import Source, member, number
from relaxir.text.types import read_dim

NO_DIMS: Final[Mapping[str, Dim]] = MappingProxyType({})


def read_value(
    node: ast.expr, source: Source, dims: Mapping[str, Dim] = NO_DIMS, arrays: Mapping[str, Array] | None = None
) -> object:
    """None, bool, number, str, bytes, dimension; tuples, lists and mappings of them; with ``arrays`` constants too."""
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, bool | int | float | str | bytes):
            return node.value
        raise source.error(f"a value of type {type(node.value).__name__} is not allowed", node)
    value = number(node)
    if value is not None:
        return value
    if isinstance(node, ast.Tuple):
        return tuple(read_value(v, source, dims, arrays) for v in node.elts)
    if isinstance(node, ast.List):
        return [read_value(v, source, dims, arrays) for v in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise source.error("`**` is not allowed in IR text", node)
        keys = [read_value(k, source, dims) for k in node.keys if k is not None]
        return dict(zip(keys, (read_value(v, source, dims, arrays) for v in node.values), strict=True))
    if isinstance(node, ast.Call) and member(node, "I") == "float":
        return source.real(source.string(source.arguments(node, ("value",))["value"]), node)
    if isinstance(node, ast.Call) and member(node, "R") == "const" and arrays is not None:
        return read_constant(node, arrays, source)
    return read_dim(node, dims, source)


def read_attributes(
    keywords: Iterable[ast.keyword], source: Source, own: Iterable[str], arrays: Mapping[str, Array] | None = None
) -> tuple[dict[str, ast.expr], dict[str, object]]:
    """Keywords of a decorator: those in ``own`` as nodes, all others (and those of ``attrs={...}``) as attributes."""
    special: dict[str, ast.expr] = {}
    attrs: dict[str, object] = {}
    for k in keywords:
        if k.arg is None:
            raise source.error("`**` is not allowed in IR text", k.value)
        if k.arg == "attrs":
            given = read_value(k.value, source, arrays=arrays)
            if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
                raise source.error("attrs must map strings to values", k.value)
            attrs.update(given)
        elif k.arg in own:
            special[k.arg] = k.value
        else:
            attrs[k.arg] = read_value(k.value, source, arrays=arrays)
    return special, attrs
