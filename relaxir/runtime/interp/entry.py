"""Calling a module's function by name, whatever stage of the pipeline the module is at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from relaxir.ir.expr import Function
from relaxir.ir.module import IRModule
from relaxir.ir.types import ShapeType
from relaxir.runtime.interp.binding import Value
from relaxir.runtime.interp.graph import NO_LIBRARIES, Array, Libraries, run_graph
from relaxir.runtime.interp.host import run_host
from relaxir.support.errors import RuntimeFailure, reason
from relaxir.tir import PrimFunc


def evaluate(
    module: IRModule,
    name: str,
    *args: Any,
    libraries: Libraries = NO_LIBRARIES,
    constants: Sequence[Array] | None = None,
) -> Any:
    """Call function ``name`` of a module.

    Args:
        module: any stage: graph functions of operators, of calls of tensor programs, or host programs.
        name: the function.
        args: arrays (bfloat16 as uint16 bits), tuples of them, or tuples (or vectors) of ints for shape values; a host
            program takes the same, and gives its results flattened.
        libraries: Python implementations of library symbols, given the inputs and then the outputs to fill.
        constants: the constant table for host programs, by default the module's own.

    Returns:
        A fresh array, or a tuple; shape values are tuples of ints. Nothing aliases an argument.

    Raises:
        ArgumentError: for arguments that do not match the signature.
        RuntimeShapeError, RuntimeIndexError, RuntimeFailure: when a check of the program fails.
    """
    try:
        return _evaluate(module, name, args, libraries, constants)
    except MemoryError as error:
        raise RuntimeFailure(f"{name}: {reason(error)}", code="runtime-allocation") from error
    except RecursionError:
        raise RuntimeFailure(
            f"{name}: calls are nested too deeply", help="give the recursion a base case, or write it as a loop"
        ) from None


def _evaluate(
    module: IRModule, name: str, args: Sequence[Any], libraries: Libraries, constants: Sequence[Array] | None
) -> Any:
    values = tuple(_argument(a) for a in args)
    if isinstance(module.functions.get(name), PrimFunc):
        results = run_host(module, name, tuple(_flat(values)), constants, libraries)
        return results[0] if len(results) == 1 else results
    func = module.functions.get(name)
    if isinstance(func, Function) and len(func.params) == len(values):
        pairs = zip(values, func.params, strict=True)
        values = tuple(_sizes(v) if isinstance(p.type, ShapeType) else v for v, p in pairs)
    return _fresh(run_graph(module, name, values, libraries))


def _sizes(value: Value) -> Value:
    """A shape argument given as compiled functions take it, an integer vector, as a tuple."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i":
        return tuple(int(v) for v in value)
    return value


def _argument(value: Any) -> Value:
    if isinstance(value, tuple | list):
        return tuple(v if isinstance(v, int) else _argument(v) for v in value)
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _flat(value: Value) -> Iterator[Array]:
    """Tensors of a value as host programs take them: tuples flattened, shape values as int64 vectors."""
    if isinstance(value, np.ndarray):
        yield value
    elif value and all(isinstance(v, int) for v in value):
        yield np.asarray(value, np.int64)
    else:
        for item in value:
            yield from _flat(item)


def _fresh(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(v if isinstance(v, int) else _fresh(v) for v in value)
    return np.array(value, order="C", copy=True)
