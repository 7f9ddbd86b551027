"""From a planned module to a library: emit, compile, lay out weights, link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from relaxir.backends.llvm.cache import ObjectCache, emitter_digest
from relaxir.backends.llvm.call_ir import HostFunction
from relaxir.backends.llvm.compile import CompileOptions, Unit, compile_objects
from relaxir.backends.llvm.emit import emit_module, run_together
from relaxir.backends.llvm.emit_sites import SiteTable, failures
from relaxir.backends.llvm.host_emit import Surroundings
from relaxir.backends.llvm.host_profile import Stamps
from relaxir.backends.llvm.host_query import query_program
from relaxir.backends.llvm.library import Library
from relaxir.backends.llvm.memory import HugeMemory
from relaxir.backends.llvm.symbols import import_symbol
from relaxir.backends.llvm.target import Target
from relaxir.ir.expr import Constant
from relaxir.ir.module import IRModule
from relaxir.runtime.events import SYMBOL
from relaxir.support.clock import Clock
from relaxir.tir import CallLibrary, PrimFunc
from relaxir.tir.printer import prim_func_text
from relaxir.tir.visit import walk

ALIGNMENT = 64  # of each constant: one cache line


@dataclass(frozen=True)
class BuildOptions:
    """How code is generated.

    Attributes:
        target: machine compiled for.
        jobs: compile processes.
        cache: object cache, or None.
        progress: called with (done, total) as objects are finished.
        group: how many kernels share one LLVM module.
        stamps: for a profiling build, where the places with time stamps are noted.
        clock: counts the seconds of ``emit``, ``LLVM`` and ``weights``.
    """

    target: Target = field(default_factory=lambda: Target.parse("native"))
    jobs: int = 2
    cache: ObjectCache | None = None
    progress: Callable[[int, int], None] | None = None
    group: int = 8
    stamps: Stamps | None = None
    clock: Clock = field(default_factory=Clock)


def place_constants(constants: Sequence[Constant]) -> tuple[tuple[int, ...], int]:
    """Offset of each constant in the weights' segment, and the size of it."""
    offsets: list[int] = []
    end = 0
    for c in constants:
        offsets.append(end)
        end += -(-max(c.data.nbytes, 1) // ALIGNMENT) * ALIGNMENT
    return tuple(offsets), end


def fill_weights(constants: Sequence[Constant], offsets: Sequence[int], size: int) -> HugeMemory | None:
    """The weights' segment in aligned memory; None when there are no constants."""
    if not constants:
        return None
    memory = HugeMemory(size)
    for c, offset in zip(constants, offsets, strict=True):
        if c.data.nbytes:
            target = np.frombuffer(memory.view, np.uint8, c.data.nbytes, offset)
            target[:] = np.ascontiguousarray(c.data).reshape(-1).view(np.uint8)
    return memory


def groups(kernels: Mapping[str, PrimFunc], size: int) -> list[dict[str, PrimFunc]]:
    """Kernels in the order of their names, ``size`` to a module: texts do not depend on the passes' order."""
    names = sorted(kernels)
    return [{n: kernels[n] for n in names[i : i + size]} for i in range(0, len(names), size)]


def kernel_unit(
    kernels: Mapping[str, PrimFunc], options: BuildOptions, sites: SiteTable, together: frozenset[str] = frozenset()
) -> Unit:
    """A module of kernels, known by the text of its programs, the numbers of their messages, and the emitter.

    Those named in ``together`` may run beside others. The messages of the kernels are entered into ``sites`` at once.
    """
    numbers = [sites.add(*site)[1] for f in kernels.values() for site in failures(f.body)]

    def write() -> str:
        with options.clock("emit"):
            return emit_module(kernels, options.target, sites, Surroundings(together=together))

    digest = emitter_digest()
    if not digest or options.cache is None:
        return Unit.of(write())
    programs = (prim_func_text(name, func) for name, func in kernels.items())
    return Unit("\n".join((digest, str(numbers), str(sorted(together)), *programs)), write)


def library_symbols(module: IRModule) -> dict[str, int]:
    """Foreign functions that host programs call, with the number of their tensors."""
    found: dict[str, int] = {}
    for func in module.prim_funcs().values():
        for s in walk(func.body) if func.is_host else ():
            if isinstance(s, CallLibrary):
                found[s.symbol] = len(s.args)
    return dict(sorted(found.items()))


def build(module: IRModule, options: BuildOptions, metadata: Callable[[SiteTable], str]) -> Library:
    """Generate code for a module whose functions are all tensor programs.

    Args:
        module: kernels and host programs; the attributes ``constants`` and ``entries`` as `LowerHost` leaves them.
        options: target, processes, cache.
        metadata: text for ``rx_metadata``, made after all run-time messages are known.

    Raises:
        InternalCompilerError: LLVM refused generated code.
    """
    programs: dict[str, Any] = module.prim_funcs()
    hosts = {n: f for n, f in programs.items() if f.is_host}
    kernels = {n: f for n, f in programs.items() if not f.is_host}
    constants: tuple[Constant, ...] = tuple(module.attrs.get("constants", ()))  # type: ignore[arg-type]  # set by LowerHost
    offsets, size = place_constants(constants)
    sites = SiteTable()
    with options.clock("emit"):
        together = run_together(hosts.values())
        units = [kernel_unit(g, options, sites, together & g.keys()) for g in groups(kernels, options.group)]
        host = emit_module(hosts, options.target, sites, Surroundings(offsets, kernels, options.stamps, together))
    entries = tuple(hosts)
    functions = [
        HostFunction(n, len(hosts[n].inputs), hosts[n].outputs, query=query_program(hosts[n]) is not None)
        for n in entries
    ]
    extra = tuple(import_symbol(s) for s in library_symbols(module))
    if options.stamps is not None and options.stamps.places:
        extra += (SYMBOL,)
    with options.clock("weights"):
        weights = fill_weights(constants, offsets, size)
    with options.clock("LLVM"):
        return Library.from_texts(
            [*units, host],
            options.target,
            functions=functions,
            sites=sites.sites,
            metadata_json=metadata(sites),
            extra_exports=extra,
            weights=weights,
            compiler=partial(
                compile_objects,
                jobs=options.jobs,
                cache=options.cache,
                progress=options.progress,
                options=CompileOptions("sroa"),  # emitted code keeps accumulators in stack slots
            ),
        )
