"""Reading of dimensions, relations, declarations of symbols, and types."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.ir.types import AnyType, FuncType, PrimType, ShapeType, TensorType, TupleType, Type
from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.support.errors import ParseError, UnsupportedError, reason
from relaxir.sym import Dim, DimLike, Relation, SymError, dim, parse, parse_where
from relaxir.text.source import Source, member, number

DIM_FUNCTIONS: Final = frozenset({"min", "max", "ceildiv", "broadcast", "floordiv", "mod"})
RANGES: Final = ("min", "max", "multiple_of")
FRESH: Final = (*RANGES, "where")
TYPE_NAMES: Final = ("Any", "Func", "Prim", "Shape", "Tensor", "Tuple")


def read_dim(node: ast.expr, dims: Mapping[str, Dim], source: Source) -> DimLike:
    """A dimension expression; a string holds one whose names are those of the function's body."""
    if isinstance(node, ast.Name) and node.id in dims:
        return dims[node.id]
    value = number(node)
    if type(value) is int:
        return value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return read_dim(source.inner(node), dims, source)
    check_names(node, dims, source)
    try:
        return parse(ast.unparse(node), dims)
    except (SymError, RecursionError) as error:
        raise source.error(f"not a dimension: {reason(error)}", node) from None


def check_names(node: ast.expr, dims: Mapping[str, Dim], source: Source) -> None:
    """Every name of a dimension expression must be a symbol in scope."""
    functions = {id(c.func) for c in ast.walk(node) if isinstance(c, ast.Call)}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and id(part) not in functions and part.id not in dims:
            raise undefined_dim(part.id, dims, part, source)


def undefined_dim(name: str, dims: Iterable[str], node: ast.AST, source: Source) -> ParseError:
    """The error for a symbol that is not declared."""
    help_text = f'declare it: `{name} = R.dim("{name}")`'
    if difflib.get_close_matches(name, list(dims), n=1):
        return source.unknown("dimension", name, dims, node)
    return source.error(f"dimension `{name}` is not declared", node, "parse-undefined-name", help=help_text)


def read_shape(node: ast.expr, dims: Mapping[str, Dim], source: Source) -> tuple[DimLike, ...]:
    """A tuple of dimensions."""
    return tuple(read_dim(d, dims, source) for d in source.items(node))


def read_relations(node: ast.expr, dims: Mapping[str, Dim], source: Source) -> tuple[Relation, ...]:
    """A comparison, or a string of several: ``"1 <= n <= m, n % 4 == 0"``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if not node.value.strip():
            return ()
        plain = ast.copy_location(ast.Constant(node.value), node)
        node = source.inner(plain)
    check_names(node, dims, source)
    try:
        return parse_where(ast.unparse(node), dims)
    except (SymError, RecursionError) as error:
        raise source.error(f"not a relation between dimensions: {reason(error)}", node) from None


def read_dim_declaration(call: ast.Call, source: Source, options: Sequence[str] = RANGES) -> Dim:
    """``R.dim("n", min=4, max=64, multiple_of=4)``; ``options`` are the keywords that may stand there."""
    args = source.arguments(call, ("name",), options)
    return make_dim(source.string(args["name"]), args, call, source)


def make_dim(
    name: str, args: Mapping[str, ast.expr], node: ast.AST, source: Source, low: int = 0, high: int | None = None
) -> Dim:
    """A symbol from the range arguments that are given."""
    largest = args.get("max")
    unbounded = isinstance(largest, ast.Constant) and largest.value is None
    try:
        return dim(
            name,
            source.integer(args["min"]) if "min" in args else low,
            (None if unbounded else source.integer(largest)) if largest is not None else high,
            source.integer(args["multiple_of"]) if "multiple_of" in args else 1,
        )
    except SymError as error:
        raise source.error(reason(error), node) from None


def read_dtype(node: ast.expr, source: Source) -> str:
    """A dtype by its short or long name."""
    name = source.string(node)
    try:
        return canonical_dtype(name)
    except UnsupportedError as error:
        raise source.error(error.message, node, help=error.help) from None


def read_type(node: ast.expr, dims: Mapping[str, Dim], source: Source) -> Type:
    """``R.Tensor((n, 4), "f32")`` and the other types."""
    name = member(node, "R")
    if name == "Any":
        return AnyType()
    reader = _READERS.get(name or "")
    if reader is None or not isinstance(node, ast.Call):
        if name is not None:
            raise source.unknown("type", f"R.{name}", (f"R.{t}" for t in TYPE_NAMES), node)
        raise source.error('expected a type such as R.Tensor((n, 4), "f32")', node)
    # a parameter's own name is read by its function
    plain = ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k.arg != "name"]), node)
    try:
        return reader(plain, dims, source)
    except SymError as error:
        raise source.error(reason(error), node) from None


def _tensor(call: ast.Call, dims: Mapping[str, Dim], source: Source) -> Type:
    args = source.arguments(call, ("shape", "dtype"))
    return TensorType(read_shape(args["shape"], dims, source), read_dtype(args["dtype"], source))


def _shape(call: ast.Call, dims: Mapping[str, Dim], source: Source) -> Type:
    return ShapeType(read_shape(source.arguments(call, ("dims",))["dims"], dims, source))


def _prim(call: ast.Call, dims: Mapping[str, Dim], source: Source) -> Type:
    return PrimType(read_dtype(source.arguments(call, ("dtype",))["dtype"], source))


def _tuple(call: ast.Call, dims: Mapping[str, Dim], source: Source) -> Type:
    source.arguments(call, (), (), rest=True)
    return TupleType(tuple(read_type(f, dims, source) for f in call.args))


def _func(call: ast.Call, dims: Mapping[str, Dim], source: Source) -> Type:
    args = source.arguments(call, ("params", "ret"), ("pure",))
    # symbols that the surrounding function lacks are the function type's own
    own = {**dims}
    for part in (n for side in (args["params"], args["ret"]) for n in ast.walk(side)):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            own.setdefault(part.value, Dim(part.value))
    params = tuple(read_type(p, own, source) for p in source.items(args["params"]))
    pure = source.boolean(args["pure"]) if "pure" in args else True
    return FuncType(params, read_type(args["ret"], own, source), pure)


_READERS: Final[Mapping[str, Callable[[ast.Call, Mapping[str, Dim], Source], Type]]] = MappingProxyType(
    {"Tensor": _tensor, "Shape": _shape, "Prim": _prim, "Tuple": _tuple, "Func": _func}
)
