"""Compiled code and the interpreter meet NaN, infinities, signed zeros, subnormals and wrapping integers as NumPy does.

All elementwise operators and reductions, at the ends of their dtypes. In a normal run each operator has its first dtype
and a share of the others, which moves from operator to operator; the profile fuzz takes all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import settings

from relaxir import api
from relaxir.ir import Attrs, BlockBuilder, Op, PendingCall, TensorType, Var
from relaxir.ops import OPS, TABLE
from relaxir.ops.elementwise import Binary, Unary
from relaxir.ops.reduce import Reduce
from relaxir.runtime.executable import Executable
from relaxir.runtime.interp import evaluate
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.support.errors import RuntimeFailure
from relaxir.sym import dim
from tests.ops.builds import complete
from tests.ops.cases import close

SPECIAL: Final = (np.nan, np.inf, -np.inf, 0, -0.0, -1, 1, 0.5, 2.5, 200, -200, 1e-40, 3e38)
QUOTIENTS: Final = ("divide", "floor_divide", "floor_mod", "trunc_divide", "trunc_mod")
SHARE: Final = 1 if settings.default is not None and settings.default.max_examples > 100 else 4
"""One of so many dtypes of an operator beside the first."""
ROWS: Final = (
    (1, 2, 3, 4, 5), (np.nan, 1, 2, 3, 4), (1, 2, 3, 4, np.nan), (1, np.inf, 2, 3, 4), (1, 2, -np.inf, 3, 4), (np.inf, 1, 2, 3, -np.inf),
    (0, np.inf, 1, 1, 1), (-0.0, -0.0, -0.0, -0.0, -0.0), (1e-40, 0, -1e-40, 1e-40, 0), (-1, -2, 1, 2, 0), (0.5, -0.5, 0.25, 1, -3),
)  # fmt: skip
"""What is reduced: partial sums do not overflow, so that no order of summing gives another answer."""


@dataclass(frozen=True)
class Subject:
    """An operator at a dtype."""

    op: Op[Any]
    dtype: str

    @property
    def name(self) -> str:
        """Of its function."""
        return f"{self.op.name}_{self.dtype}"

    def attrs(self) -> Attrs:
        """The operator's defaults; rows are reduced."""
        return self.op.Attrs((1,)) if isinstance(self.op, Reduce) else complete(self.op, self.op.examples[0]).attrs

    def operands(self) -> tuple[np.ndarray, ...]:
        """Every special value, every pair of them, or rows of them."""
        if isinstance(self.op, Reduce):
            rows = (
                np.array(ROWS)
                if info(self.dtype).is_float
                else np.array([np.resize(ends(self.dtype), 5), np.roll(np.resize(ends(self.dtype), 5), 2)])
            )
            return (held(rows, self.dtype),)
        values = np.array(SPECIAL) if info(self.dtype).is_float else ends(self.dtype)
        if isinstance(self.op, Unary):
            return (held(np.resize(values, 29), self.dtype),)  # whole vectors and a tail
        pairs = [
            (a, b)
            for a, b in product(values, values)
            if b or info(self.dtype).is_float or self.op.name not in QUOTIENTS
        ]
        return tuple(held(np.array([p[i] for p in pairs], values.dtype), self.dtype) for i in (0, 1))


def ends(dtype: str) -> np.ndarray:
    """Integers around 0 and at the ends of the range."""
    if dtype == "bool":
        return np.array([False, True])
    limits = np.iinfo(info(dtype).numpy)
    return np.array(
        [v for v in (limits.min, limits.min + 1, -7, -1, 0, 1, 3, 7, limits.max - 1, limits.max) if v >= limits.min],
        info(dtype).numpy,
    )


def held(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as programs hold them."""
    with np.errstate(over="ignore"):
        return (
            float32_to_bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(info(dtype).numpy)
        )


def subjects() -> Iterator[Subject]:
    """Operators whose operands share one dtype."""
    for number, op in enumerate(o for o in OPS if isinstance(o, Unary | Binary | Reduce) and o.dtypes):
        first, *others = op.dtypes
        chosen = [d for k, d in enumerate(others) if (k + number) % SHARE == 0]
        yield from (Subject(op, d) for d in (first, *chosen))


SUBJECTS: Final = {s.name: s for s in subjects()}


@cache
def module() -> Any:
    """All functions in one module: one compilation."""
    bb, n = BlockBuilder(), dim("n")
    for s in SUBJECTS.values():
        shape = (n, 5) if isinstance(s.op, Reduce) else (n,)
        params = [Var(p.name, TensorType(shape, s.dtype)) for p in s.op.params]
        with bb.function(s.name, params):
            with bb.dataflow():
                result = bb.emit_output(PendingCall(s.op, tuple(params), s.attrs(), None))
            bb.emit_func_output(result)
    return bb.get()


@cache
def exe() -> Executable:
    """The module's native code."""
    return api.compile(module(), threads=1, cache=False)


@pytest.mark.parametrize("name", SUBJECTS)
def test_special_values(name: str) -> None:
    subject = SUBJECTS[name]
    arrays = subject.operands()
    out = module()[name].ret
    types = tuple(TensorType(a.shape, subject.dtype) for a in arrays)
    with np.errstate(all="ignore"):
        want = subject.op.evaluate(arrays, types, subject.attrs(), TensorType(arrays[0].shape[:1], out.dtype))
        interpreted = np.asarray(evaluate(module(), name, *arrays))
    example = complete(subject.op, subject.op.examples[0])
    for got in (interpreted, np.asarray(exe()[name](*arrays))):
        close(got, want, out, example)


@pytest.mark.parametrize("name", QUOTIENTS)
def test_division_by_zero(name: str) -> None:
    with pytest.raises(RuntimeFailure, match=f"{name}: .* divided by zero"):
        exe()[f"{name}_{first_integer(name)}"](*(np.array(v, first_integer(name)) for v in ([1, 7, -7], [1, 0, 3])))


def first_integer(name: str) -> str:
    """An integer dtype at which the operator is compiled here."""
    return next(s.dtype for s in SUBJECTS.values() if s.op is TABLE[name] and info(s.dtype).is_integer)
