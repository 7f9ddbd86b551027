"""The pass contract: a frozen value with typed options that maps a module to a module."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from relaxir.cost import Chooser, RuleChooser, TargetInfo
from relaxir.ir import IRModule
from relaxir.support.checks import check_kind
from relaxir.support.errors import ArgumentError


class Level(enum.IntEnum):
    """Stages of lowering; each allows fewer forms than the one before."""

    GRAPH = 0  # operators
    LEGAL = 1  # tensor programs in block form, called by call_tir; views stay operators
    SCHEDULED = 2  # tensor programs in loop form
    HOST = 3  # graph functions are host programs
    PLANNED = 4  # every temporary has its place


class Instrument(Protocol):
    """Watches a pipeline; methods may raise to stop it."""

    def before(self, name: str, number: int, module: IRModule) -> None:
        """Called with the module a pass is about to get."""

    def after(self, name: str, number: int, before: IRModule, module: IRModule) -> None:
        """Called with what a pass made of it."""


@dataclass(frozen=True)
class PassContext:
    """What passes may ask about the outside.

    Attributes:
        target: vector width, registers, threads of the machine compiled for.
        chooser: chooses tiles and packed layouts.
        library: name of the library function for matmul (`DispatchLibrary`), empty: none.
        fold_limit: largest constant in bytes that folding may create beyond its inputs' size.
        instruments: observers of the pipeline.
    """

    target: TargetInfo = field(default_factory=TargetInfo)
    chooser: Chooser = field(default_factory=RuleChooser)
    library: str = ""
    fold_limit: int = 1 << 24
    instruments: tuple[Instrument, ...] = ()


@dataclass(frozen=True)
class Pass:
    """Verified IR in, verified IR out; the input is never mutated; the same object back means no change."""

    name: ClassVar[str] = ""
    requires: ClassVar[Level] = Level.GRAPH  # the module must be at this level or a later one allowed by `until`
    ensures: ClassVar[Level | None] = None  # level of the result; None: unchanged

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Transform the module."""
        raise NotImplementedError

    def __call__(self, module: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Transform the module in a default context.

        Raises:
            ArgumentError: something else than a module.
        """
        check_kind("module", module, IRModule, "build one with rx.BlockBuilder, rx.parse or rx.from_onnx")
        return self.run(module, ctx or PassContext())


@dataclass(frozen=True)
class Pipeline(Pass):
    """Passes in order; instruments see each step.

    Raises:
        ArgumentError: something else than passes.
    """

    name: ClassVar[str] = "pipeline"
    passes: tuple[Pass, ...] = ()

    def __init__(self, passes: Iterable[Pass] = ()) -> None:
        check_kind("passes", passes, Iterable, "pass a list of passes")
        steps = tuple(passes)
        for step in steps:
            check_kind("passes", step, Pass, "make each one, e.g. rx.passes.FuseOps()")
        object.__setattr__(self, "passes", steps)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Run every pass."""
        for number, step in enumerate(self.passes):
            module = run_instrumented(step, number, module, ctx)
        return module

    def until(self, name: str) -> Pipeline:
        """The passes up to and including the first one of that name.

        Raises:
            ArgumentError: no pass has this name.
        """
        names = [p.name for p in self.passes]
        if name not in names:
            raise ArgumentError(f"no pass `{name}`", code="argument-name", help=f"there are {', '.join(names)}")
        return Pipeline(self.passes[: names.index(name) + 1])

    def without(self, names: Sequence[str]) -> Pipeline:
        """All passes but those named."""
        return Pipeline(p for p in self.passes if p.name not in names)


def run_instrumented(step: Pass, number: int, module: IRModule, ctx: PassContext) -> IRModule:
    """Run one pass under the context's instruments."""
    for watcher in ctx.instruments:
        watcher.before(step.name, number, module)
    result = step.run(module, ctx)
    for watcher in ctx.instruments:
        watcher.after(step.name, number, module, result)
    return result
