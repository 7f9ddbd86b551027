"""What the operator families share: dtype groups, the compute type of 16-bit floats, broadcast reads, examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx
from relaxir.ir.types import TensorType, Type
from relaxir.sym import DimLike
from relaxir.tir import Buffer, Expr, bcast, cast, const

FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
SIGNED: Final = ("int8", "int16", "int32", "int64")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: Final = SIGNED + UNSIGNED
NUMERIC: Final = FLOATS + INTEGERS
BOOL: Final = ("bool",)
ALL: Final = NUMERIC + BOOL


def compute_dtype(dtype: str) -> str:
    """Type to compute in: 16-bit floats are computed in float32 and rounded once at the end."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def rounded(value: float, dtype: str) -> float:
    """An attribute as it is computed with: it may become 0 or infinite where ``dtype`` does not reach it."""
    return float(const(value, compute_dtype(dtype)).value)


def widen(x: Array) -> Array:
    """Array counterpart of `compute_dtype` (bfloat16 arrives as float32 already)."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def load_wide(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """Element of a buffer in its compute type."""
    return cast(buffer.at(indices), compute_dtype(buffer.dtype))


def check_dtype(ctx: InferCtx, t: TensorType, name: str, allowed: Sequence[str]) -> None:
    """Raise unless the operand's dtype is one of ``allowed`` (empty: all are)."""
    if allowed and t.dtype not in allowed:
        ctx.fail(f"{name} must be one of {', '.join(allowed)}, got {t.dtype}", code="dtype-mismatch")


def check_same_dtype(ctx: InferCtx, tensors: Sequence[TensorType], names: Sequence[str]) -> None:
    """Raise unless all operands have the first one's dtype."""
    for t, name in zip(tensors[1:], names[1:], strict=True):
        if t.dtype != tensors[0].dtype:
            ctx.fail(
                f"{names[0]} is {tensors[0].dtype} but {name} is {t.dtype}",
                code="dtype-mismatch",
                help=f'convert one operand, for example R.astype({name}, "{tensors[0].dtype}")',
            )


def tensors_of(ctx: InferCtx, args: Sequence[Type], names: Sequence[str]) -> tuple[TensorType, ...]:
    """All operands as tensor types."""
    return tuple(ctx.tensor(args, i, name) for i, name in enumerate(names))


def broadcast_read(buffer: Buffer, index: Sequence[Expr], out: Sequence[DimLike]) -> tuple[Expr, ...]:
    """Index ``buffer`` for the point ``index`` of a result of shape ``out`` that it broadcasts to.

    Axes that have the result's own extent are read plainly; only an extent that differs from it in form may be 1 at run
    time while the result's is not.
    """
    skip = len(out) - len(buffer.shape)
    return tuple(
        i if have == want else (const(0) if have == 1 else bcast(i, have))
        for i, have, want in zip(index[skip:], buffer.shape, out[skip:], strict=True)
    )


def float_examples(low: float = -2.0, high: float = 2.0, **attrs: Any) -> tuple[Example, ...]:
    """Examples of an elementwise operator on floats: every width, ranks 0 to 2."""
    shapes = (("f32", "n, 4"), ("f64", ""), ("f16", "n"), ("bf16", "n"))
    return tuple(Example((f"{d}[{s}]",), f"{d}[{s}]", low=low, high=high, **attrs) for d, s in shapes)


FLOAT_EXAMPLES: Final = float_examples()
NOT_FLOAT: Final = (BadExample(("i32[n]",), "dtype-mismatch", "x must be one of"),)
