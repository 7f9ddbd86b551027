"""Torch dtypes and tensors in relaxir's words, and torch's promotion of dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch

from relaxir.frontends.values import Value
from relaxir.ir.expr import Constant
from relaxir.ir.types import TensorType
from relaxir.support.errors import UnsupportedError

DTYPES: Final[Mapping[torch.dtype, str]] = MappingProxyType(
    {
        getattr(torch, name): name
        for name in (
            "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
            "uint64", "bool",
        )
    }
)  # fmt: skip
"""Names by torch dtype."""
TORCH: Final[Mapping[str, torch.dtype]] = MappingProxyType({v: k for k, v in DTYPES.items()})
"""Torch dtypes by name."""


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype.

    Raises:
        UnsupportedError: complex, quantized, 8-bit floats.
    """
    name = DTYPES.get(dtype)
    if name is None:
        raise UnsupportedError(f"data type {dtype} is not supported", code="dtype-unsupported")
    return name


def extremes(dtype: str) -> tuple[float, float]:
    """Least and greatest number of a dtype: infinities for floats."""
    if TORCH[dtype].is_floating_point:
        return float("-inf"), float("inf")
    if dtype == "bool":
        return 0, 1
    limits = torch.iinfo(TORCH[dtype])
    return limits.min, limits.max


def constant(tensor: torch.Tensor) -> Constant:
    """A tensor as a constant; it shares memory where the tensor is compact and on the CPU."""
    dtype = dtype_name(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"layout {tensor.layout} of a constant is not supported", code="import-unsupported")
    plain = tensor.detach().cpu().contiguous()
    array: Any = plain.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else plain.numpy()
    data = array.reshape(tuple(tensor.shape)).view()
    data.setflags(write=False)
    return Constant(data, TensorType(tuple(tensor.shape), dtype))


def sample(operand: object) -> Any:
    """What stands for an operand in `torch.result_type`: an empty tensor of its kind, or the number."""
    if isinstance(operand, Value):
        return torch.empty((1,) if operand.type.rank else (), dtype=TORCH[operand.type.dtype], device="meta")
    if isinstance(operand, bool | int | float):
        return operand
    return 1  # a size


def promoted(a: object, b: object) -> str:
    """Dtype that torch computes a binary operator in: tensors outweigh scalars of their kind, and those numbers."""
    return dtype_name(torch.result_type(sample(a), sample(b)))
