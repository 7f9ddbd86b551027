"""The interpreter without batch axes: every loop in order, one element at a time. Slow and obvious."""

from __future__ import annotations

import numpy as np

from relaxir.runtime.interp.lanes import Affine
from relaxir.runtime.interp.program import Machine


class SlowMachine(Machine):
    """Runs what `Machine` runs; what it gives is the meaning of the loops by definition."""

    def _batch(self, var, extent, leaf, body):
        for i in range(extent):
            self.values[var] = Affine(i)
            body()


def run_slowly(func, arrays, dims):
    """`run_prim_func`, one element at a time."""
    with np.errstate(all="ignore"):
        SlowMachine(func, arrays, dims).run(func.body)
