"""Ready-made observers of a pipeline: verify, time, print, dump, compare with the interpreter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.module import IRModule
from relaxir.ir.verify import verify_module
from relaxir.support.clock import Clock
from relaxir.support.errors import InternalError

Evaluate = Callable[[IRModule], Sequence[Array]]


class VerifyEach:
    """Verify the module after every pass; a violation is a bug of the pass and names it."""

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Nothing to do."""

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Verify the result."""
        errors = verify_module(module)
        if errors:
            raise InternalError(
                f"pass `{name}` returned ill-formed IR: {errors[0].message}", notes=[e.message for e in errors[1:6]]
            )


class Timing:
    """Seconds spent in each pass, counted by the pass's name on a clock; a pass that runs twice is counted together."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._start = 0.0

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Note the time."""
        self.clock.add(name, time.perf_counter() - self._start)


class PrintEach:
    """Print the module around passes.

    ``only`` names the passes to print (empty: all); ``changed`` prints only where the text differs.
    """

    def __init__(self, only: Sequence[str] = (), changed: bool = False, out: TextIO | None = None) -> None:
        self.only = frozenset(only)
        self.changed = changed
        self.out = out or sys.stdout

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Print the input of the first pass."""
        if number == 0 and not self.only:
            self.out.write(f"# before {name}\n{module}\n")

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Print the result."""
        if self.only and name not in self.only:
            return
        if self.changed and (module is before or str(module) == str(before)):
            return
        self.out.write(f"# after {number:02d} {name}\n{module}\n")


class DumpFiles:
    """Write the module after each pass to ``folder/NN-name.rx``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Write the input of the first pass."""
        if number == 0:
            (self.folder / "00-input.rx").write_text(str(module))

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Write the result."""
        (self.folder / f"{number + 1:02d}-{name}.rx").write_text(str(module))


class CompareEach:
    """Run every stage in the reference interpreter and compare with the first; the first difference names its pass.

    ``evaluate`` runs a module on fixed inputs; ``rtol`` and ``atol`` bound the difference relative to the largest
    absolute value of each output.
    """

    def __init__(self, evaluate: Evaluate, rtol: float = 1e-4, atol: float = 1e-5) -> None:
        self.evaluate = evaluate
        self.rtol = rtol
        self.atol = atol
        self.expected: Sequence[Array] | None = None
        self.checked: list[tuple[str, float]] = []

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Evaluate the input of the first pass."""
        if self.expected is None:
            self.expected = self.evaluate(module)

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Evaluate the result and compare."""
        if module is before:
            return
        assert self.expected is not None
        worst = 0.0
        for position, (got, want) in enumerate(zip(self.evaluate(module), self.expected, strict=True)):
            worst = max(worst, difference(got, want))
            if not agrees(got, want, self.rtol, self.atol):
                raise InternalError(f"pass `{name}` changed output {position}: largest difference {worst:.3g}")
        self.checked.append((name, worst))


def difference(got: Array, want: Array) -> float:
    """Largest absolute difference over the finite elements."""
    if got.shape != want.shape or not got.size:
        return 0.0 if got.shape == want.shape else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a - b)[finite].max(initial=0.0))


def agrees(got: Array, want: Array, rtol: float, atol: float) -> bool:
    """Same dtype, shape, NaN and infinities; floats within tolerance, everything else equal."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind != "f":
        return bool(np.array_equal(got, want))
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0.0)) if want.size else 0.0
    with np.errstate(invalid="ignore"):
        return bool(
            np.allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol * max(scale, 1e-2), equal_nan=True
            )
        )
