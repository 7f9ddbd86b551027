"""Square tiles of a transposition, in registers: vectors in, shuffles, vectors out; no element is moved on its own.

The form is ``unroll i < n: vector j < n: y[..., j] = x[..., i]`` with ``x`` contiguous along ``i``, ``y`` along ``j``;
at the edges of a tensor with ``if i < rows: if j < columns`` in front of the store, where any ``j`` can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from relaxir.backends.llvm.emit_value import Value
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.support.dtypes import info
from relaxir.tir.access import stride, variables_of
from relaxir.tir.expr import Const, Expr, Load, Var
from relaxir.tir.stmt import For, ForKind, If, Store

QUAD: Final = 4
"""Elements of 4 bytes in the 16 bytes within which cheap shuffles stay."""


@dataclass(frozen=True, slots=True)
class Square:
    """A tile that a loop transposes: ``inner`` runs over lanes of ``store``, the loop itself over those of ``load``.

    ``rows`` and ``columns`` are conditions on the loop's and on the inner loop's variable, at the edges.
    """

    inner: For
    store: Store
    load: Load
    rows: Expr | None
    columns: Expr | None


def transposing_square(stmt: For, lanes: int) -> Square | None:
    """What a loop transposes if it is a tile of ``lanes`` times ``lanes``, else None."""
    inner = stmt.body
    if not isinstance(inner, For) or inner.kind is not ForKind.VECTOR:
        return None
    limits: dict[Var, Expr] = {}
    store = inner.body
    while isinstance(store, If) and store.other is None:
        on = [v for v in (stmt.var, inner.var) if v in variables_of(store.cond)]
        if len(on) != 1 or on[0] in limits:
            return None
        limits[on[0]] = store.cond
        store = store.then
    if not isinstance(store, Store):
        return None
    load = store.value
    square = all(isinstance(f.extent, Const) and f.extent.value == lanes for f in (stmt, inner))
    if not square or lanes not in (4, 8, 16) or store.combine is not None or not isinstance(load, Load):
        return None
    if load.dtype != store.buffer.dtype or info(load.dtype).bytes != QUAD or load.buffer is store.buffer:
        return None
    contiguous = stride(load, stmt.var) == 1 and stride(store, inner.var) == 1
    apart = stride(load, inner.var) != 0 and stride(store, stmt.var) != 0
    if not (contiguous and apart):
        return None
    return Square(inner, store, load, limits.get(stmt.var), limits.get(inner.var))


def transposed(w: Writer, rows: list[Value]) -> list[Value]:
    """Columns of a square of vectors of 4, 8 or 16 elements.

    First the squares of four by four within each 16 bytes, by two rounds of interleaving; then the 16-byte blocks,
    whose shuffles take two blocks from either side.
    """
    width = len(rows)
    blocks = width // QUAD
    quads = [_quad(w, rows[q * QUAD : (q + 1) * QUAD]) for q in range(blocks)]
    columns: list[Value | None] = [None] * width
    for m in range(QUAD):
        for block, value in enumerate(_across(w, [quad[m] for quad in quads])):
            columns[block * QUAD + m] = value
    return [c for c in columns if c is not None]


def _quad(w: Writer, rows: list[Value]) -> list[Value]:
    """Within each 16 bytes, element m of all four rows."""
    width = rows[0].width

    bases = range(0, width, QUAD)
    ones = [[s + base + at for base in bases for at in (m, m + 1) for s in (0, width)] for m in (0, 2)]
    twos = [[s + base + at for base in bases for s in (0, width) for at in (m, m + 1)] for m in (0, 2)]
    halves = [[w.shuffle(rows[n], rows[n + 1], picks) for n in (0, 2)] for picks in ones]
    return [w.shuffle(a, b, picks) for a, b in halves for picks in twos]


def _across(w: Writer, parts: list[Value]) -> list[Value]:
    """Block n of every part, for each n."""
    if len(parts) == 1:
        return parts
    width = parts[0].width

    def pick(a: Value, b: Value, chosen: tuple[int, ...]) -> Value:
        order = [block * QUAD + n for block in chosen for n in range(QUAD)]
        return w.shuffle(a, b, order + [width + p for p in order])

    if width // QUAD == 2:
        return [pick(parts[0], parts[1], (n,)) for n in range(2)]
    even = [pick(parts[n], parts[n + 1], (0, 2)) for n in (0, 2)]
    odd = [pick(parts[n], parts[n + 1], (1, 3)) for n in (0, 2)]
    return [pick(side[0], side[1], chosen) for chosen in ((0, 2), (1, 3)) for side in (even, odd)]
