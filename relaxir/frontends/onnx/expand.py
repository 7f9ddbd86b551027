"""Operators that the ONNX standard itself defines by simpler ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, helper

from relaxir.frontends.onnx.graphs import describe
from relaxir.ir.types import TensorType
from relaxir.support.dtypes import info
from relaxir.support.errors import LoadError
from relaxir.sym import is_const


@dataclass(frozen=True)
class Expansion:
    """An operator's definition by simpler ones.

    Attributes:
        inputs: names of its inputs, in order.
        outputs: names of its outputs, in order.
        nodes: what computes the outputs, in the function's own names.
        opset: version of the standard in which they are written.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeProto, ...]
    opset: int


def has_function(proto: NodeProto, opset: int) -> bool:
    """Whether the standard defines the operator by simpler ones."""
    schema = schema_of(proto, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def expand(proto: NodeProto, types: Sequence[TensorType | None], opset: int, default: int) -> Expansion | None:
    """The definition of an operator for operands of these types; None if the standard has none.

    ``opset`` is that of the operator's domain, ``default`` the one of the standard's own operators.
    """
    schema = schema_of(proto, opset)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return None
    body = _body(schema, proto, types, opset)
    if body is None:
        return None
    inner = next((o.version for o in body.opset_import if o.domain in ("", "ai.onnx")), default)
    return Expansion(tuple(body.input), tuple(body.output), tuple(_instantiate(body, proto, schema)), inner)


def schema_of(proto: NodeProto, opset: int) -> Any:
    """What the standard says of a node's operator; None for an operator that it does not know."""
    return _schema(proto.op_type, opset, "" if proto.domain == "ai.onnx" else proto.domain)


@lru_cache(maxsize=1024)
def _schema(op: str, opset: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


def check_counts(proto: NodeProto, opset: int) -> None:
    """Refuse a node with more inputs or outputs than the standard gives its operator.

    Raises:
        LoadError: naming the first one too many.
    """
    schema = schema_of(proto, opset)
    if schema is None:
        return
    for kind, names, most in (("input", proto.input, schema.max_input), ("output", proto.output, schema.max_output)):
        if len(names) > most:
            raise LoadError(
                f"{describe(proto)}: {kind} {most} `{names[most]}` is one too many: opset {opset} has {most} of them"
            )


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
    return FunctionProto.FromString(text) if text else None  # empty: not defined for these types


def _type_proto(t: TensorType | None) -> TypeProto:
    if t is None:
        return TypeProto()
    code = getattr(onnx.TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(t.dtype, info(t.dtype).name.upper()))
    shape = [int(d) if is_const(d) else None for d in t.shape]
    return helper.make_tensor_type_proto(code, shape)


def _instantiate(body: FunctionProto, proto: NodeProto, schema: Any) -> list[NodeProto]:
    """The function's nodes with the call's attributes in place; value names stay those of the function."""
    defaults = (a.default_value for a in schema.attributes.values() if a.default_value.name)
    attrs = {a.name: a for a in (*defaults, *body.attribute_proto, *proto.attribute)}
    prefix = f"{proto.name or next(iter(proto.output), '')}/"
    return [_with_attributes(inner, attrs, prefix) for inner in body.node]


def _with_attributes(node: NodeProto, attrs: Mapping[str, AttributeProto], prefix: str) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = prefix + (node.name or next(iter(node.output), node.op_type))
    del copy.attribute[:]
    for a in node.attribute:
        if a.ref_attr_name and a.ref_attr_name not in attrs:
            continue  # the call leaves it out, and it has no default
        given = copy.attribute.add()
        given.CopyFrom(attrs[a.ref_attr_name] if a.ref_attr_name else a)
        given.name = a.name
        if given.HasField("g"):
            inner = [_with_attributes(n, attrs, prefix) for n in given.g.node]
            del given.g.node[:]
            given.g.node.extend(inner)
    return copy
