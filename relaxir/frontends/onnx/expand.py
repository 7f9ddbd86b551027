"""Operators that the ONNX standard itself defines by simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, helper

from relaxir.ir.types import TensorType
from relaxir.support.dtypes import info
from relaxir.sym import is_const


def function_nodes(proto: NodeProto, types: Sequence[TensorType | None] | None, opset: int) -> list[NodeProto] | None:
    """Nodes that compute ``proto``, with its own names for inputs and outputs; None if the standard has no definition.

    With ``types`` None only whether there is a definition is asked, by an empty list.
    """
    if proto.domain not in ("", "ai.onnx"):
        return None
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    if types is None:
        return []
    body = _body(schema, proto, types, opset)
    return None if body is None else _instantiate(body, proto)


def _body(schema: Any, proto: NodeProto, types: Sequence[TensorType | None], opset: int) -> FunctionProto | None:
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if schema.has_function and versions:
        found = schema.get_function_with_opset_version(max(versions))
        return FunctionProto.FromString(found) if isinstance(found, bytes) else found  # type: ignore[no-any-return]  # onnx has no types here
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    protos = [_type_proto(t).SerializeToString() for t in types]
    text = schema.get_context_dependent_function_with_opset_version(max(versions), proto.SerializeToString(), protos)
    return FunctionProto.FromString(text)


def _type_proto(t: TensorType | None) -> TypeProto:
    if t is None:
        return TypeProto()
    code = getattr(onnx.TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(t.dtype, info(t.dtype).name.upper()))
    shape = [int(d) if is_const(d) else None for d in t.shape]
    return helper.make_tensor_type_proto(code, shape)


def _instantiate(body: FunctionProto, proto: NodeProto) -> list[NodeProto]:
    """The function's nodes under unique names, with the call's attributes in place."""
    attrs = {a.name: a for a in body.attribute_proto} | {a.name: a for a in proto.attribute}
    prefix = f"{proto.name or proto.op_type}/{proto.output[0] if proto.output else ''}/"
    names = dict(zip(body.input, proto.input, strict=False)) | dict(zip(body.output, proto.output, strict=False))
    nodes: list[NodeProto] = []
    for inner in body.node:
        copy = NodeProto()
        copy.CopyFrom(inner)
        copy.name = prefix + (inner.name or inner.op_type)
        del copy.input[:], copy.output[:], copy.attribute[:]
        copy.input.extend(_renamed(n, names, body, prefix) for n in inner.input)
        copy.output.extend(names.get(n) or f"{prefix}{n}" if n else "" for n in inner.output)
        for a in inner.attribute:
            if not a.ref_attr_name:
                copy.attribute.append(a)
            elif a.ref_attr_name in attrs:
                given = AttributeProto()
                given.CopyFrom(attrs[a.ref_attr_name])
                given.name = a.name
                copy.attribute.append(given)
        nodes.append(copy)
    return nodes


def _renamed(name: str, names: dict[str, str], body: FunctionProto, prefix: str) -> str:
    if not name or (name in body.input and name not in names):
        return ""
    return names[name] if name in names else f"{prefix}{name}"
