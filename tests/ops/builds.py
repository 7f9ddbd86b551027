"""Modules made of operators' examples, and the ways to run them that must all agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relaxir.ir import (
    Attrs,
    BlockBuilder,
    Example,
    IRModule,
    Op,
    PendingCall,
    ShapeExpr,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    Var,
    const,
)
from relaxir.ir.types import free_dims_of_type, map_type
from relaxir.support.errors import RelaxirError
from relaxir.sym import DimLike, SymError, dim, evaluate
from tests.ops import cases


def complete(op: Op[Any], example: Any) -> Any:
    """An example without attributes means the operator's defaults."""
    return replace(example, attrs=op.Attrs()) if type(example.attrs) is Attrs else example


@dataclass(frozen=True)
class Case:
    """One example at one assignment of sizes."""

    name: str
    op: Op[Any]
    example: Example
    types: tuple[Type, ...]
    attrs: Attrs
    env: Mapping[str, int]
    arrays: tuple[np.ndarray, ...]
    holds: bool
    """Whether the run-time checks of inference hold."""
    note: str = ""
    """What is special about the operands."""

    def function(self, number: int, static: bool, folded: bool) -> str:
        """Name of its function in `module_of`: the dynamic one serves all cases of the example."""
        return f"{self.name}_{'folded' if folded else 'static'}_{number}" if static or folded else self.name

    def expected(self) -> tuple[Type, Any]:
        """Result type for these sizes (symbols that depend on data stay), and what the reference gives."""
        types, attrs = fixed_types(self.types, self.env), cases.fixed(self.attrs, dict(self.env))
        result, _ = cases.infer(self.op, types, attrs, {})
        arrays = iter(self.arrays)
        # a shape operand is a tuple of ints
        values = tuple(t.dims if isinstance(t, ShapeType) else next(arrays) for t in types)
        return result, self.op.evaluate(values, types, attrs, result)


def fixed_types(types: Sequence[Type], env: Mapping[str, int]) -> tuple[Type, ...]:
    """Types with their symbols replaced by sizes."""
    return tuple(map_type(t, lambda d: evaluate(d, env)) for t in types)


def runnable(types: Sequence[Type], attrs: Attrs) -> bool:
    """Whether every symbol is defined by a tensor operand, so that the example is a function by itself."""
    known = {s for t in types if isinstance(t, TensorType) for s in free_dims_of_type(t)}
    used = {s for t in types for s in free_dims_of_type(t)} | set(cases.scope_of((), attrs).values())
    return used <= known


def cases_of(op: Op[Any], limit: int = 99) -> Iterator[Case]:
    """Examples of an operator, at up to ``limit`` assignments each."""
    for i, raw in enumerate(op.examples):
        example = complete(op, raw)
        scope = cases.scope_of(example.args, example.attrs, example.min_size, example.sizes)
        types = tuple(cases.read_type(a, scope) for a in example.args)
        if not runnable(types, example.attrs):
            continue
        _, ctx = cases.infer(op, types, example.attrs, scope)
        for count, env in enumerate(cases.assignments(example, scope)):
            if count == limit:
                break
            arrays = cases.operands(types, env, example)
            name = f"{op.name}_{i}"
            yield Case(name, op, example, types, example.attrs, env, arrays, cases.holds(ctx, env))


def widened(found: Sequence[Case]) -> list[Case]:
    """The cases of one example with each distinct constant extent a symbol too, where the operator's rule allows it."""
    first = found[0]
    sizes = sorted(
        {d for t in first.types if isinstance(t, TensorType) for d in t.shape if isinstance(d, int) and d > 1}
    )
    chosen: dict[int, DimLike] = {}
    types = first.types
    for size in sizes:
        trial = chosen | {size: dim(f"w{size}")}
        wide = tuple(
            TensorType(tuple(trial.get(d, d) if isinstance(d, int) else d for d in t.shape), t.dtype)
            if isinstance(t, TensorType)
            else t
            for t in first.types
        )
        if all(allowed(c, wide) for c in found):
            chosen, types = trial, wide
    extra = {f"w{size}": size for size in chosen}
    return [replace(c, types=types, env={**c.env, **extra}) for c in found] if chosen else []


def allowed(case: Case, types: tuple[Type, ...]) -> bool:
    """Whether the rule accepts the types, and gives the same result for the case's sizes."""
    env = {
        **case.env,
        **{d.name: int(d.name[1:]) for t in types for d in free_dims_of_type(t) if d.name not in case.env},
    }
    symbols = {d.name: d for t in types for d in free_dims_of_type(t)}
    try:
        result, ctx = cases.infer(case.op, types, case.attrs, symbols)
    except (RelaxirError, SymError):
        return False
    if ctx.defined or not isinstance(result, TensorType | TupleType):
        return False
    exact, _ = (
        cases.infer(case.op, fixed_types(case.types, case.env), cases.fixed(case.attrs, dict(case.env)), {})
        if case.holds
        else (None, ctx)
    )
    same = exact is None or fixed_types((result,), env)[0] == exact
    return same and cases.holds(ctx, env) == case.holds


def module_of(
    found: Sequence[Case], static: bool = False, folded: bool = False, base: IRModule | None = None
) -> IRModule:
    """One function a case: with symbols, with the case's sizes in their place, or with its operands as constants too."""
    bb = BlockBuilder(base)
    for k, case in enumerate(found):
        types = fixed_types(case.types, case.env) if static or folded else case.types
        attrs = cases.fixed(case.attrs, dict(case.env)) if static or folded else case.attrs
        names = [p.name for p in case.op.params[:-1]]
        params = [
            Var(f"{names[i] if i < len(names) else 'v'}{i}", t)
            for i, t in enumerate(types)
            if isinstance(t, TensorType)
        ]
        values = (
            [const(a, t.dtype) for a, t in zip(case.arrays, (p.type for p in params), strict=True)]
            if folded
            else params
        )
        rest = iter(values)
        args = tuple(ShapeExpr(t.dims) if isinstance(t, ShapeType) else next(rest) for t in types)
        with bb.function(case.function(k, static, folded), [] if folded else params):
            with bb.dataflow():
                result = bb.emit_output(PendingCall(case.op, args, attrs, None))
            bb.emit_func_output(result)
    return bb.get()
