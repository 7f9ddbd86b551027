"""Reading of ``R.const``: the inverse of `relaxir.ir.const_text`."""

from __future__ import annotations

import ast
import struct
from collections.abc import Mapping

import numpy as np

from relaxir.ir.const_text import DEFAULT_NAN
from relaxir.ir.expr import Array, Constant
from relaxir.ir.expr import const as make_constant
from relaxir.ir.types import TensorType
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import DType, info
from relaxir.text.source import Source, number
from relaxir.text.types import read_dtype
from relaxir.tir.build import INTEGER_LIMITS


def read_constant(call: ast.Call, arrays: Mapping[str, Array], source: Source) -> Constant:
    """A constant: its elements, ``R.const([1, 2], "f32")``, or a key, ``R.const("w0", shape, "f32", sha256="...")``.

    Raises:
        ParseError: with code ``parse-constant`` where data is missing, or not what the text says.
    """
    if len(call.args) == 2 and not call.keywords:
        return _inline(call.args[0], None, read_dtype(call.args[1], source), source)
    args = source.arguments(call, ("value", "shape", "dtype"), ("sha256",))
    shape = tuple(source.integer(d) for d in source.items(args["shape"]))
    name = read_dtype(args["dtype"], source)
    if "sha256" in args:
        return _keyed(call, source.string(args["value"]), shape, name, source.string(args["sha256"]), arrays, source)
    return _inline(args["value"], shape, name, source)


def _keyed(
    call: ast.Call,
    key: str,
    shape: tuple[int, ...],
    dtype: str,
    digest: str,
    arrays: Mapping[str, Array],
    source: Source,
) -> Constant:
    if key not in arrays:
        help_text = "pass constants=: a mapping, or the path of the .npz file saved beside the text"
        raise source.error(f"no data for constant `{key}`", call, "parse-constant", help=help_text)
    data = arrays[key]
    stored = info(dtype).numpy
    if data.shape != shape or data.dtype != stored:
        got = f"{data.dtype}{list(data.shape)}"
        raise source.error(
            f"constant `{key}` is {dtype}{list(shape)} in the text, but its data is {got}", call, "parse-constant"
        )
    constant = make_constant(data, dtype)
    if constant.digest != digest:
        raise source.error(
            f"the data of constant `{key}` is not what the text was written with", call, "parse-constant"
        )
    return constant


def _inline(node: ast.expr, shape: tuple[int, ...] | None, dtype: str, source: Source) -> Constant:
    elements: list[ast.expr] = []
    nested = _collect(node, elements, source)
    if shape is None:
        shape = nested
    elif not (nested == shape or (elements == [] and 0 in shape)):
        raise source.error(
            f"the elements have shape {list(nested)}, the text says {list(shape)}", node, "parse-constant"
        )
    row = info(dtype)
    bits = [_element(e, row, source) for e in elements]
    unsigned = np.dtype(f"uint{row.numpy.itemsize * 8}")
    data = np.array(bits, unsigned).view(row.numpy).reshape(shape)
    data.setflags(write=False)
    return Constant(data, TensorType(shape, dtype))


def _collect(node: ast.expr, elements: list[ast.expr], source: Source) -> tuple[int, ...]:
    """Flatten nested lists; returns their shape."""
    if not isinstance(node, ast.List):
        elements.append(node)
        return ()
    shapes = [_collect(e, elements, source) for e in node.elts]
    for e, s in zip(node.elts, shapes, strict=True):
        if s != shapes[0]:
            raise source.error(f"ragged list: {list(s)} beside {list(shapes[0])}", e, "parse-constant")
    return (len(shapes), *(shapes[0] if shapes else ()))


def _element(node: ast.expr, row: DType, source: Source) -> int:
    """Bit pattern of one element."""
    if not row.is_float:
        value = int(source.boolean(node)) if row.name == "bool" else source.integer(node)
        low, high = (0, 1) if row.name == "bool" else INTEGER_LIMITS[row.name]
        if not low <= value <= high:
            raise source.error(f"{value} does not fit {row.name}", node, "parse-constant")
        return value % (1 << row.bits)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith("nan"):
            return _nan(node, node.value, row, source)
        return _round(source.real(node.value, node), row)
    value_or_none = number(node)
    if value_or_none is None:
        raise source.error("expected a number", node, "parse-constant")
    try:
        return _round(float(value_or_none), row)
    except OverflowError:
        raise source.error(
            f"a number of more than 308 digits does not fit {row.name}", node, "parse-constant"
        ) from None


def _nan(node: ast.AST, text: str, row: DType, source: Source) -> int:
    if text == "nan":
        return DEFAULT_NAN[row.name]
    try:
        bits = int(text.removeprefix("nan:"), 16)
    except ValueError:
        bits = -1
    if not 0 <= bits < 1 << row.bits:
        raise source.error(f"`{text}` is not a NaN of {row.name}", node, "parse-constant")
    return bits


def _round(value: float, row: DType) -> int:
    """Bits of the nearest value of a float dtype."""
    if row.name == "float64":
        return int.from_bytes(struct.pack("<d", value), "little")
    if row.name == "bfloat16":
        return int(float32_to_bfloat16(np.array(value)).item())
    with np.errstate(over="ignore"):
        rounded = np.array(value).astype(row.numpy)
    return int(rounded.view(f"uint{row.bits}"))
