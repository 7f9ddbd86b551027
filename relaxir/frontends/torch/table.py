"""The table of supported targets: one row per ATen packet, function of sizes, or higher-order operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import torch

from relaxir.frontends.torch.activation import ACTIVATION
from relaxir.frontends.torch.complexes import COMPLEX, FORMS
from relaxir.frontends.torch.control import CONTROL
from relaxir.frontends.torch.counts import COUNTS
from relaxir.frontends.torch.creation import CREATION
from relaxir.frontends.torch.elementwise import ELEMENTWISE
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

ATEN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **ACTIVATION,
        **COUNTS,
        **CREATION,
        **ELEMENTWISE,
        **FORMS,
        **GROUPED,
        **INDEX,
        **LOSS,
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
OTHER: Final[Mapping[str, Converter]] = MappingProxyType({**FUNCTION, **CONTROL, **CUSTOM})
"""Converters of other targets by `target_name`."""


def converter_of(target: object) -> Converter | None:
    """The converter of a node's target, if there is one; that of ``add`` also serves ``add_``, and ``t`` ``t_copy``."""
    found = ATEN.get(packet(target)) if isinstance(target, torch._ops.OpOverload) else None
    return found or OTHER.get(target_name(target))


def complex_converter_of(target: object) -> Converter | None:
    """The converter for complex numbers; places in tuples are the same for all."""
    if isinstance(target, torch._ops.OpOverload):
        return COMPLEX.get(packet(target))
    name = target_name(target)
    return OTHER[name] if name == "operator.getitem" else None


def packet(target: torch._ops.OpOverload) -> str:
    """Name of an ATen packet in the table."""
    name = str(target._schema.name).removeprefix("aten::")
    return name if name in ATEN else name.removesuffix("_" if target._schema.is_mutable else "_copy")
