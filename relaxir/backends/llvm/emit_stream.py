"""Stores past the caches: for results too large to be found there again, and written in whole lines only.

A plain store reads the line first, and pushes another one out. Stores of this kind wait in a buffer until a line is
complete; they are ordered with nothing, so a fence stands at the end of whatever wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Final

from relaxir.backends.llvm.emit_linear import LANE, Linear
from relaxir.backends.llvm.emit_value import Value
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.backends.llvm.target import Target
from relaxir.tir.buffer import Buffer
from relaxir.tir.func import PrimFunc
from relaxir.tir.visit import reads_of, stores_of

LARGE: Final = 16 << 20
"""Bytes of a result from which its stores go past the caches: half of a usual last-level cache."""
LINE: Final = 64
PIECE: Final = 32
"""Least bytes of such a store: two make a line."""


BUSY: Final = frozenset({"attention", "contraction"})
"""Schedule rules of kernels that compute much longer than they write: a second form of them would gain nothing."""


def streamed_results(func: PrimFunc, target: Target) -> tuple[Buffer, ...]:
    """Parameters that a kernel writes, and neither reads nor combines: those may be stored past the caches."""
    rules = func.attrs.get("rules", ())
    busy = isinstance(rules, tuple) and not BUSY.isdisjoint(rules)
    if busy or target.arch != "x86_64" or target.vector_bytes < PIECE:
        return ()
    stores, read = stores_of(func.body), {r.buffer for r in reads_of(func.body)}
    combined = {s.buffer for s in stores if s.combine is not None}
    written = {s.buffer for s in stores}
    return tuple(b for b in func.params if b in written - combined - read)


def alignment(offset: Linear, multiples: Mapping[str, int], size: int) -> int:
    """Bytes of which the place of the first lane is certainly a multiple; ``size`` is an element's."""
    common = 0
    for monomial, coefficient in offset.terms.items():
        if LANE not in monomial:
            factor = coefficient
            for name in monomial:
                factor *= multiples.get(name, 1)
            common = gcd(common, factor)
    return gcd(common * size, LINE) or LINE


def store_past(w: Writer, value: Value, pointer: Value, size: int, aligned: int) -> bool:
    """Write a vector past the caches in pieces as large as the alignment; False where they would be too small."""
    lanes = min(aligned, w.module.target.vector_bytes) // size
    if lanes * size < PIECE or value.width % lanes:
        return False
    for start in range(0, value.width, lanes):
        part = value if lanes == value.width else w.pick(value, range(start, start + lanes))
        at = (
            w.pure(f"getelementptr i8, {pointer.typed}, i64 {start * size}", "ptr", 1, (pointer,)) if start else pointer
        )
        w.line(f"store {part.typed}, {at.typed}, align {lanes * size}, !nontemporal !5")
    return True


def fence(w: Writer) -> None:
    """Order such stores before everything that follows."""
    w.effect("llvm.x86.sse.sfence", ())
