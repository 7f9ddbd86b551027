"""The IR after each pass, and the comparison of every stage with the reference interpreter."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import relaxir as rx
from relaxir.cli.noise import nudged
from relaxir.ir import IRModule
from relaxir.ir.expr import Array
from relaxir.ir.verify import verify_module
from relaxir.passes import PassContext, Pipeline
from relaxir.passes.instruments import PrintEach, agrees, difference
from relaxir.pipelines import DEFAULT
from relaxir.runtime.arguments import stored
from relaxir.runtime.signature import Signature, TensorSpec
from relaxir.support.bfloat16 import bfloat16_to_float32
from relaxir.support.errors import PassError, RelaxirError

COMPILED = "compiled"
"""Name of the stage after the last pass."""

NOISE_FACTOR = 10  # a program rounds more often than once
NOISE_RUNS = 2  # with different signs

HALVES = ("bfloat16", "float16")
HALF_RTOL = 1e-2  # results of 16 bits carry three decimal digits


def stage_text(module: IRModule, after: str, changed: bool, pipeline: Pipeline = DEFAULT) -> str:
    """Text of the module after the named pass (the last of that name), or after each.

    Raises:
        PassError: no pass of that name.
    """
    if not after:
        return str(module)
    if after == "all":
        out = io.StringIO()
        pipeline.run(module, PassContext(instruments=(PrintEach(changed=changed, out=out),)))
        return out.getvalue().rstrip("\n")
    names = [p.name.lower() for p in pipeline]
    wanted = after.replace("_", "").replace("-", "").lower()
    if wanted not in names:
        known = ", ".join(dict.fromkeys(p.name for p in pipeline))
        raise PassError(f"no pass `{after}`", code="pass-unknown", help=f"`all`, or one of {known}")
    last = len(names) - 1 - names[::-1].index(wanted)
    return str(Pipeline(pipeline.passes[: last + 1]).run(module, PassContext()))


@dataclass(frozen=True, slots=True)
class Row:
    """Outcome of one stage.

    ``problem`` says what is wrong with it, empty if nothing is; ``difference`` is the largest absolute one.
    """

    name: str
    difference: float
    problem: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the stage gives the expected results."""
        return not self.problem


class Comparison:
    """Stages of a module against its first: verified, and run in the interpreter on the same inputs.

    A stage that cannot be made or run is a wrong one; its problem is the error. Differences up to ``rtol`` of the
    largest element are rounding. A larger one is forgiven where the model itself is as sensitive: it is held against
    what becomes of the results when weights, inputs and intermediate results change in their last bit.
    """

    def __init__(
        self, module: IRModule, signature: Signature, arrays: Sequence[Array], rtol: float, pipeline: Pipeline = DEFAULT
    ) -> None:
        self.module = module
        self.signature = signature
        self.arrays = [stored(a, s) for a, s in zip(arrays, signature.inputs, strict=True)]
        self.rtol = rtol
        self.pipeline = pipeline
        start = time.perf_counter()
        self.expected = self.evaluate(module)
        self.first = Row("input", 0.0, "", time.perf_counter() - start)

    def rows(self) -> Iterator[Row]:
        """Every stage in order, up to and including the first wrong one."""
        yield self.first
        current, ctx = self.module, PassContext()
        for step in self.pipeline:
            before = current
            try:
                current = step.run(current, ctx)
            except RelaxirError as error:
                yield Row(step.name, float("inf"), f"the pass failed: {error.message}", 0.0)
                return
            if current is not before:
                row = self.stage(step.name, current)
                yield row
                if not row.ok:
                    return
        yield self.compiled()

    def bisect(self) -> Iterator[Row]:
        """As few stages as find the first wrong one: the compiled code, then by halves between right and wrong ones.

        The rows come in the order of the search; the last wrong one is the first wrong stage. Rightness is taken to
        last once lost, as it does where passes do not undo each other's faults.
        """
        yield self.first
        row = self.compiled()
        yield row
        if row.ok:
            return
        stages = list(self.changes())
        low, high = 0, len(stages)  # the stages before `low` are right, those from `high` on are wrong
        while low < high:
            middle = (low + high) // 2
            row = self.stage(*stages[middle])
            yield row
            low, high = (middle + 1, high) if row.ok else (low, middle)

    def changes(self) -> Iterator[tuple[str, IRModule]]:
        """Modules after the passes that change something, as far as they come."""
        current, ctx = self.module, PassContext()
        for step in self.pipeline:
            before, current = current, step.run(current, ctx)
            if current is not before:
                yield step.name, current

    def stage(self, name: str, module: IRModule) -> Row:
        """Verify and run one stage."""

        def results() -> tuple[Array, ...]:
            violations = verify_module(module)
            if violations:
                raise violations[0]
            return self.evaluate(module)

        return self.row(name, results)

    def compiled(self) -> Row:
        """Run the native code."""

        def results() -> tuple[Array, ...]:
            exe = rx.compile(self.module, pipeline=self.pipeline)
            return readable(exe[self.signature.name](*self.arrays), self.signature)

        return self.row(COMPILED, results)

    def evaluate(self, module: IRModule) -> tuple[Array, ...]:
        """Results of the interpreter."""
        return readable(rx.evaluate(module, self.signature.name, *self.arrays), self.signature)

    def row(self, name: str, results: Callable[[], tuple[Array, ...]]) -> Row:
        """Compare results with the expected ones."""
        start = time.perf_counter()
        try:
            got = results()
        except Exception as error:  # a wrong pass may break the interpreter in any way
            text = error.message if isinstance(error, RelaxirError) else f"{type(error).__name__}: {error}"
            return Row(name, float("inf"), text, time.perf_counter() - start)
        if len(got) != len(self.expected):
            problem = f"gives {len(got)} results instead of {len(self.expected)}"
            return Row(name, float("inf"), problem, time.perf_counter() - start)
        worst, problem = 0.0, ""
        for number, (spec, g, w) in enumerate(zip(self.signature.outputs, got, self.expected, strict=True)):
            rtol = max(self.rtol, HALF_RTOL) if spec.type.dtype in HALVES else self.rtol
            worst = max(worst, difference(g, w))
            if not problem and not agrees(g, w, rtol, rtol) and not self.forgiven(number, g, w):
                problem = f"output `{spec.name}` {describe(g, w)}"
        return Row(name, worst, problem, time.perf_counter() - start)

    def forgiven(self, number: int, got: Array, want: Array) -> bool:
        """Whether a difference is what rounding alone makes of this model at these inputs."""
        if got.dtype != want.dtype or got.shape != want.shape or got.dtype.kind != "f":
            return False
        with np.errstate(invalid="ignore"):
            return bool(np.allclose(got, want, rtol=self.rtol, atol=NOISE_FACTOR * self.noise[number], equal_nan=True))

    @cached_property
    def noise(self) -> tuple[float, ...]:
        """Largest change of each result when weights and inputs change in their last bit; found when needed."""
        changed = [nudged(self.module, self.arrays, seed) for seed in range(NOISE_RUNS)]
        name = self.signature.name
        runs = [readable(rx.evaluate(m, name, *arrays), self.signature) for m, arrays in changed]
        return tuple(max(difference(run[i], w) for run in runs) for i, w in enumerate(self.expected))


def describe(got: Array, want: Array) -> str:
    """How two arrays differ, in words."""
    if got.dtype != want.dtype:
        return f"is {got.dtype} instead of {want.dtype}"
    if got.shape != want.shape:
        return f"has shape {got.shape} instead of {want.shape}"
    wrong = np.argwhere(~np.isclose(got, want, equal_nan=True))
    place = tuple(int(i) for i in wrong[0]) if len(wrong) else ()
    return f"differs by {difference(got, want):.3g}; the first of {len(wrong)} at {list(place)}"


def readable(result: Array | tuple[Array, ...], signature: Signature) -> tuple[Array, ...]:
    """Results in dtypes that can be compared: bfloat16 as float32, narrower formats as the bits that hold them."""
    results = as_tuple(result)
    if len(results) != len(signature.outputs):
        return results  # their number is what is wrong
    return tuple(as_floats(stored(r, s), s) for r, s in zip(results, signature.outputs, strict=True))


def as_floats(bits: Array, spec: TensorSpec) -> Array:
    """Numbers for the bits of bfloat16; other arrays as they are."""
    return bfloat16_to_float32(bits) if spec.type.dtype == "bfloat16" else bits


def as_tuple(result: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """Results as a tuple."""
    return result if isinstance(result, tuple) else (result,)
