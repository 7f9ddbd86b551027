"""Operations and bytes of a call, kernel by kernel, as formulas in the function's symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from relaxir.cost import Work, work_of
from relaxir.runtime.formulas import Formulas, bound, definitions_of, from_texts, to_texts
from relaxir.sym import Dim, DimLike, add, mul, substitute, to_text, total
from relaxir.tir import CallHost, CallKernel, For, If, PrimFunc, Stmt
from relaxir.tir.access import as_dim
from relaxir.tir.visit import child_stmts


@dataclass(frozen=True, slots=True)
class KernelCost:
    """All calls of one kernel within one call of the function.

    Attributes:
        kernel: its name.
        calls: places from which it is called.
        work: operations and bytes of all these calls together.
    """

    kernel: str
    calls: int
    work: Work


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of a function has to do at least; ``cost(n=8)`` is the same in numbers.

    A loop whose length depends on data counts one iteration, a branch its first side.

    Attributes:
        function: whose.
        kernels: cost of each kernel, in the order of their first calls.
        where: symbols of the formulas that are formulas of the function's own, in the order of their definition.
        known: names of symbols of the function that may be given although the formulas do not need them.
    """

    function: str
    kernels: tuple[KernelCost, ...]
    where: tuple[tuple[Dim, DimLike], ...] = ()
    known: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def flops(self) -> DimLike:
        """Elementary operations (2 per multiply-add)."""
        return total(k.work.flops for k in self.kernels)

    @property
    def bytes(self) -> DimLike:
        """Bytes that the kernels read and write, each parameter of a call counted once."""
        return total(k.work.bytes for k in self.kernels)

    @property
    def formulas(self) -> Formulas:
        """Operations and bytes of each kernel in turn, as formulas that can be evaluated."""
        values = tuple(v for k in self.kernels for v in (k.work.flops, k.work.bytes))
        return Formulas(f"cost of {self.function}", values, self.where, self.known)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols whose sizes have to be given, by name."""
        return self.formulas.symbols

    def __call__(self, **sizes: int) -> Cost:
        """The cost at given sizes of the symbols.

        Raises:
            ArgumentError: a symbol without a size, a size that is none, or a name that is no symbol's.
        """
        numbers = self.formulas.at(sizes)
        works = zip(numbers[::2], numbers[1::2], strict=True)
        kernels = tuple(replace(k, work=Work(*work)) for k, work in zip(self.kernels, works, strict=True))
        return Cost(self.function, kernels)

    def __str__(self) -> str:
        lines = [f"{self.function}: {to_text(self.flops)} flops, {to_text(self.bytes)} bytes"]
        for k in self.kernels:
            calls = f"{k.calls} calls" if k.calls > 1 else "1 call"
            lines.append(f"  {k.kernel}, {calls}: {to_text(k.work.flops)} flops, {to_text(k.work.bytes)} bytes")
        return "\n".join([*lines, *self.formulas.definitions()])

    def __repr__(self) -> str:
        return f"<cost of {self}>"

    def __rich__(self) -> str:
        return str(self)

    def to_json(self) -> dict[str, Any]:
        """Texts for a library's metadata."""
        rows = [[k.kernel, k.calls, to_text(k.work.flops), to_text(k.work.bytes)] for k in self.kernels]
        return {"kernels": rows, "where": to_texts(self.where)}

    @staticmethod
    def from_json(function: str, data: Mapping[str, Any]) -> Cost:
        """Inverse of `to_json`."""
        rows = data["kernels"]
        values, where = from_texts((text for row in rows for text in row[2:]), data["where"])
        works = map(Work, values[::2], values[1::2])
        return Cost(function, tuple(KernelCost(r[0], r[1], w) for r, w in zip(rows, works, strict=True)), where)


def costs_of(programs: Mapping[str, PrimFunc]) -> dict[str, Cost]:
    """The cost of each host program of a planned module."""
    works = {name: work_of(f) for name, f in programs.items() if not f.is_host}
    return {name: _Count(programs, works).cost(name, f) for name, f in programs.items() if f.is_host}


class _Count:
    """Follows the calls of one function, through the functions that it calls."""

    def __init__(self, programs: Mapping[str, PrimFunc], works: Mapping[str, Work]) -> None:
        self.programs = programs
        self.works = works
        self.active: list[str] = []

    def cost(self, name: str, host: PrimFunc) -> Cost:
        found: dict[str, KernelCost] = {}
        for kernel, work in self.calls(name, {}):
            old = found.get(kernel, KernelCost(kernel, 0, Work()))
            both = Work(add(old.work.flops, work.flops), add(old.work.bytes, work.bytes))
            found[kernel] = KernelCost(kernel, old.calls + 1, both)
        return Cost(name, tuple(found.values()), definitions_of(host))

    def calls(self, name: str, world: dict[Dim, DimLike]) -> Iterator[tuple[str, Work]]:
        """Kernels called by a host program; ``world`` has its symbols in terms of the outermost function's."""
        if name in self.active:
            return  # recursion: one round of it
        self.active.append(name)
        yield from self.statement(self.programs[name].body, 1, world)
        self.active.pop()

    def statement(self, stmt: Stmt, times: DimLike, world: dict[Dim, DimLike]) -> Iterator[tuple[str, Work]]:
        if isinstance(stmt, CallKernel):
            dims = zip(self.programs[stmt.callee].dims, stmt.dims, strict=True)
            sizes = {d: substitute(value, world) for d, value in dims}
            work = self.works[stmt.callee]
            flops, bytes_ = (mul(times, substitute(v, sizes)) for v in (work.flops, work.bytes))
            yield stmt.callee, Work(flops, bytes_)
        elif isinstance(stmt, CallHost):
            shapes = [[substitute(d, world) for d in b.shape] for b in stmt.args]
            for kernel, work in self.calls(stmt.callee, bound(self.programs[stmt.callee], shapes)):
                yield kernel, Work(mul(times, work.flops), mul(times, work.bytes))
        elif isinstance(stmt, For):
            extent = as_dim(stmt.extent)
            inner = mul(times, 1 if extent is None else substitute(extent, world))
            yield from self.statement(stmt.body, inner, world)
        elif isinstance(stmt, If):
            yield from self.statement(stmt.then, times, world)
        else:
            for child in child_stmts(stmt):
                yield from self.statement(child, times, world)
