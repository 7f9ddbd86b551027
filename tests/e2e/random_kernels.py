"""Random tensor programs, called by a function whose operands define their symbols."""

from __future__ import annotations

from dataclasses import replace

from relaxir.ir import BlockBuilder, ShapeType, TensorType, Var
from relaxir.tir import PrimFunc
from tests.e2e.random_graphs import Program


def caller(func: PrimFunc) -> Program:
    """``main`` takes the program's symbols as a shape, and its inputs."""
    bb = BlockBuilder()
    name = bb.add_func("kernel", replace(func, attrs={"name": "kernel"}))  # drawn attributes would mislead passes
    inputs = [Var(b.name, TensorType(b.shape, b.dtype)) for b in func.inputs]
    results = [TensorType(b.shape, b.dtype) for b in func.results]
    params = [Var("sizes", ShapeType(func.dims)), *inputs] if func.dims else inputs
    with bb.function("main", params):
        with bb.dataflow():
            out = results[0] if len(results) == 1 else results
            result = bb.emit_output(bb.call_tir(name, inputs, out, func.dims))
        bb.emit_func_output(result)
    return Program(bb.get())
