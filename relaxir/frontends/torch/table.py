"""The table of supported targets: one row per ATen packet, function of sizes, or higher-order operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch.fx import Node as FxNode

from relaxir.frontends.torch.activation import ACTIVATION
from relaxir.frontends.torch.complex_table import MAKING, of_complex
from relaxir.frontends.torch.control import CONTROL
from relaxir.frontends.torch.counts import COUNTS
from relaxir.frontends.torch.creation import CREATION, scalar_tensor
from relaxir.frontends.torch.elementwise import ELEMENTWISE
from relaxir.frontends.torch.fourier import FOURIER
from relaxir.frontends.torch.grouped import CUSTOM, GROUPED
from relaxir.frontends.torch.index import INDEX
from relaxir.frontends.torch.loss import LOSS
from relaxir.frontends.torch.nn import NN
from relaxir.frontends.torch.node import Converter, target_name
from relaxir.frontends.torch.order import ORDER
from relaxir.frontends.torch.pool import POOL
from relaxir.frontends.torch.recurrent import RECURRENT
from relaxir.frontends.torch.reduction import REDUCTION
from relaxir.frontends.torch.shape import SHAPE
from relaxir.frontends.torch.sizes import FUNCTION, SIZES
from relaxir.frontends.torch.special import SPECIAL
from relaxir.frontends.torch.vision import VISION

ATEN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **ACTIVATION,
        **COUNTS,
        **CREATION,
        **ELEMENTWISE,
        **FOURIER,
        **GROUPED,
        **INDEX,
        **LOSS,
        **MAKING,
        **NN,
        **ORDER,
        **POOL,
        **RECURRENT,
        **REDUCTION,
        **SHAPE,
        **SIZES,
        **SPECIAL,
    }
)
"""Converters by the name of the ATen packet: ``add`` for ``aten.add.Tensor``."""
OPERATORS: Final[Mapping[str, Converter]] = MappingProxyType({**ATEN, **VISION})
"""Converters of ATen packets, and of torchvision's operators by their full names."""
COMPLEX: Final[Mapping[str, Converter]] = MappingProxyType({**FOURIER, **MAKING, **of_complex(ATEN)})
"""Converters where arguments or results are complex, by the name of the ATen packet."""
OTHER: Final[Mapping[str, Converter]] = MappingProxyType(
    {**FUNCTION, **CONTROL, **CUSTOM, "prims.scalar_tensor.default": scalar_tensor}
)
"""Converters of other targets by `target_name`."""


def converter_of(target: object) -> Converter | None:
    """The converter of a node's target, if there is one; that of ``add`` also serves ``add_``, and ``t`` ``t_copy``."""
    row = found(OPERATORS, target) if isinstance(target, torch._ops.OpOverload) else None
    return row or OTHER.get(target_name(target))


def complex_converter_of(target: object) -> Converter | None:
    """The converter of a node's target for complex numbers, if there is one."""
    return found(COMPLEX, target) if isinstance(target, torch._ops.OpOverload) else OTHER.get(target_name(target))


def converter_for(fx: FxNode) -> Converter | None:
    """The converter of a node, if there is one: that of its target, for complex numbers where it deals with any."""
    return complex_converter_of(fx.target) if deals_with_complex(fx) else converter_of(fx.target)


def deals_with_complex(fx: FxNode) -> bool:
    """Whether torch says that an argument or a result of a node is complex."""
    values = [n.meta.get("val") for n in (fx, *fx.all_input_nodes)]
    return any(isinstance(v, complex) for v in fx.args) or any(map(complex_tensor, values))


def complex_tensor(value: object) -> bool:
    """Whether a value, or the first of several, is a tensor of complex numbers."""
    first = value[0] if isinstance(value, tuple | list) and value else value
    return isinstance(first, torch.Tensor) and first.is_complex()


def found(table: Mapping[str, Converter], target: torch._ops.OpOverload) -> Converter | None:
    """A row by the name of the operator, or by that of the one which neither writes in place nor copies."""
    name = target._schema.name.removeprefix("aten::")
    if name not in table:
        name = name.removesuffix("_" if target._schema.is_mutable else "_copy")
    return table.get(name)
