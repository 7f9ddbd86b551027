"""What LLVM says of itself and of this machine.

LLVM takes 40 MB of a process; this module is imported (by `relaxir.support.optional.load`) when something is compiled,
so that a process that only runs exported libraries never has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor and system of this process, in LLVM's words."""

    triple: str
    cpu: str
    features: Mapping[str, bool]
    """Whether each feature that LLVM knows is there; empty on processors that it cannot ask."""


def this_machine() -> Machine:
    """Ask LLVM."""
    triple = llvm.get_default_triple()
    features = llvm.get_host_cpu_features() if triple.startswith("x86_64-") else {}
    return Machine(triple, llvm.get_host_cpu_name(), dict(features))


def version() -> str:
    """Of llvmlite, and of the LLVM in it: the same texts give the same code as long as they stay."""
    return "\0".join((llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info))))
