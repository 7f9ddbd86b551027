"""Converters of control flow."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.node import Node, Result


def if_(n: Node) -> Result:
    """A known condition takes its branch now; else both are kept."""
    then, other = n.graph("then_branch"), n.graph("else_branch")
    cond = n.input(0)
    known = cond.constant
    if known is not None:
        return tuple(n.host.run_graph(then if bool(known.reshape(-1)[0]) else other, ()))
    return n.host.run_branches(cond, then, other, n)


CONTROL: Final[Mapping[str, Converter]] = MappingProxyType({"If": if_})
"""Control flow by ONNX name."""
