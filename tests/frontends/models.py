"""Small ONNX models for tests, and how to run what is made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array, Bind, Function, OpCall
from relaxir.ir.module import IRModule
from relaxir.passes import InsertChecks, PassContext
from relaxir.runtime.interp import evaluate


def f32(values: object) -> Array:
    return np.array(values, np.float32)


def i64(values: object) -> Array:
    return np.array(values, np.int64)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> NodeProto:
    """Names are separated by blanks; ``_`` is an omitted input."""
    return helper.make_node(op, ["" if i == "_" else i for i in inputs.split()], outputs.split(), **attrs)


def values(text: str) -> list[ValueInfoProto]:
    """``x float32[n,3]; y int64``: words are symbols; without brackets no shape is stated."""
    found = []
    for item in filter(None, map(str.strip, text.split(";"))):
        match = re.fullmatch(r"(\S+) (\w+)(\[.*\])?", item)
        assert match is not None, item
        name, dtype, dims = match.groups()
        shape = None if dims is None else [int(d) if d.isdigit() else d for d in re.findall(r"\w+", dims)]
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        found.append(helper.make_tensor_value_info(name, code, shape))
    return found


def graph(nodes: Sequence[NodeProto], inputs: str, outputs: str, **consts: Any) -> GraphProto:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in consts.items()]
    return helper.make_graph(list(nodes), "main", values(inputs), values(outputs), stored)


def model(nodes: Sequence[NodeProto], inputs: str, outputs: str, opset: int = 18, **consts: Any) -> ModelProto:
    made = graph(nodes, inputs, outputs, **consts)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def folded(proto: ModelProto, feeds: dict[str, Array], *names: str) -> ModelProto:
    """The model with inputs (all, if none is named) as constants."""
    copy: ModelProto = ModelProto.FromString(proto.SerializeToString())
    chosen = names or tuple(feeds)
    copy.graph.initializer.extend(numpy_helper.from_array(feeds[n], n) for n in chosen)
    rest = [v for v in copy.graph.input if v.name not in chosen]
    del copy.graph.input[:]
    copy.graph.input.extend(rest)
    return copy


def main_of(module: IRModule) -> Function:
    func = module["main"]
    assert isinstance(func, Function)
    return func


def run(proto: ModelProto, **feeds: Array) -> tuple[Array, ...]:
    """Import, insert run-time checks, interpret."""
    module = InsertChecks().run(from_onnx(proto), PassContext())
    found = evaluate(module, "main", *(feeds[p.name] for p in main_of(module).params))
    return found if isinstance(found, tuple) else (found,)


def op_names(module: IRModule) -> list[str]:
    """Operators of ``main``, in order."""
    calls = (b.value for b in main_of(module).body.bindings if isinstance(b, Bind))
    return [c.op.name for c in calls if isinstance(c, OpCall)]
