"""The IR after each pass, and the comparison of every stage with the reference interpreter."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import relaxir as rx
from relaxir.cli.inputs import make_inputs, read_inputs
from relaxir.ir import IRModule
from relaxir.ir.expr import Array
from relaxir.passes import PassContext, Pipeline
from relaxir.passes.instruments import PrintEach, agrees, difference
from relaxir.pipelines import DEFAULT
from relaxir.runtime.signature import signature_of
from relaxir.support.errors import PassError


def stage_text(module: IRModule, after: str, changed: bool) -> str:
    """Text of the module after the named pass (the last of that name), or after each.

    Raises:
        PassError: no pass of that name.
    """
    if not after:
        return str(module)
    if after == "all":
        out = io.StringIO()
        DEFAULT.run(module, PassContext(instruments=(PrintEach(changed=changed, out=out),)))
        return out.getvalue()
    names = [p.name for p in DEFAULT]
    if after not in names:
        raise PassError(f"no pass `{after}`", code="pass-unknown", help=f"the passes are {', '.join(dict.fromkeys(names))}")
    last = len(names) - 1 - names[::-1].index(after)
    return str(Pipeline(DEFAULT.passes[: last + 1]).run(module, PassContext()))


@dataclass(frozen=True, slots=True)
class Row:
    """Outcome of one stage."""

    name: str
    difference: float
    ok: bool
    seconds: float


def compare_stages(
    module: IRModule, function: str, files: Sequence[str], sizes: Mapping[str, int], seed: int, rtol: float
) -> Iterator[Row]:
    """Outcome of each stage in order, then of the compiled code."""
    signature = signature_of(function, module.graph_functions()[function])
    feeds = read_inputs(files, signature) if files else {}
    feeds = {**make_inputs(signature, sizes, seed, have=feeds, default=2), **feeds}
    arrays = [feeds[i.name] for i in signature.inputs]

    def evaluate(m: IRModule) -> tuple[Array, ...]:
        return as_tuple(rx.evaluate(m, function, *arrays))

    start = time.perf_counter()
    expected = evaluate(module)
    yield Row("input", 0.0, True, time.perf_counter() - start)
    ctx = PassContext()
    current = module
    for step in DEFAULT:
        start = time.perf_counter()
        after = step.run(current, ctx)
        if after is current:
            continue
        current = after
        yield compare(step.name, evaluate(current), expected, rtol, start)
    start = time.perf_counter()
    yield compare("compiled", as_tuple(rx.compile(module)[function](*arrays)), expected, rtol, start)


def compare(name: str, got: Sequence[Array], want: Sequence[Array], rtol: float, start: float) -> Row:
    """One row of the table."""
    ok = len(got) == len(want) and all(agrees(g, w, rtol, rtol) for g, w in zip(got, want, strict=True))
    worst = max((difference(g, w) for g, w in zip(got, want, strict=True)), default=0.0)
    return Row(name, worst, ok, time.perf_counter() - start)


def as_tuple(result: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """Results as a tuple."""
    return result if isinstance(result, tuple) else (result,)
