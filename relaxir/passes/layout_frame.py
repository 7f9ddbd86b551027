"""Placing tensors of symbolic sizes in one frame: exact for every shape, good at representative ones.

A best-fit layout at representative sizes decides, for each two tensors alive together, which lies below. The offset of
a tensor is then the maximum of the ends of those below it: no two overlap at any size, since the order is kept at
all sizes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

from relaxir.passes.liveness import Lifetime
from relaxir.support.dtypes import info
from relaxir.sym import Dim, DimLike, Facts, Proof, add, ceildiv, fold, free_dims, max_, mul, product, to_text

ALIGNMENT = 64  # bytes: one cache line, and the widest vector
MOST_CANDIDATES = 16  # sums of which an offset is the largest


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets in bytes by position in the input, and the size of the whole frame."""

    offsets: tuple[DimLike, ...]
    size: DimLike


def byte_size(shape: Sequence[DimLike], dtype: str, facts: Facts) -> DimLike:
    """Size of a buffer in bytes, rounded up to the alignment."""
    size = facts.simplify(mul(product(shape), info(dtype).bytes))
    if facts.divides(ALIGNMENT, size) is Proof.PROVED:
        return size
    return mul(ceildiv(size, ALIGNMENT), ALIGNMENT)


def representative_sizes(dims: Sequence[Dim]) -> tuple[dict[str, int], ...]:
    """Values of the symbols at which layouts are compared: small, medium, large, all within the declared ranges."""

    def fit(d: Dim, value: int) -> int:
        value = max(value, d.min, 1)
        value = value if d.max is None else min(value, d.max)
        return max(value // d.multiple_of, 1) * d.multiple_of

    first = {d.name: fit(d, 2 + i) for i, d in enumerate(dims)}
    middle = {d.name: fit(d, 8 if i % 2 == 0 else 64) for i, d in enumerate(dims)}
    swapped = {d.name: fit(d, 64 if i % 2 == 0 else 8) for i, d in enumerate(dims)}
    large = {d.name: fit(d, 128) for d in dims}
    return first, middle, swapped, large


def sample_sizes(dims: Sequence[Dim], count: int = 32) -> tuple[dict[str, int], ...]:
    """Values of the symbols over their whole ranges, the ends and odd ones first of all; the same in every run."""
    rng = random.Random(0)

    def draw(d: Dim) -> int:
        value = max(d.min, rng.choice((0, 1, 2, 3, 7, 17, 64, 1000)))
        value = value if d.max is None else min(value, d.max)
        return value // d.multiple_of * d.multiple_of if value >= d.min else d.min

    return tuple({d.name: draw(d) for d in dims} for _ in range(count))


class Samples:
    """Values of sizes at many assignments of the symbols at once, each size evaluated once.

    ``number`` is what they are computed with: 64-bit integers, or floats where a size may be beyond these.
    """

    def __init__(self, worlds: Sequence[Mapping[str, int]], number: type[np.int64 | np.float64] = np.int64) -> None:
        self.count = len(worlds)
        self.number = number
        self.columns = {n: np.array([w[n] for w in worlds], number) for n in (worlds[0] if worlds else ())}
        self._known: dict[DimLike, tuple[int, ...]] = {}

    def __call__(self, size: DimLike) -> tuple[int, ...]:
        """Values of a size; operands that do not broadcast somewhere count as the larger one there."""
        found = self._known.get(size)
        if found is None:
            values = fold(size, self.number, lambda d: self.columns[d.name], _node)
            found = self._known[size] = tuple(np.broadcast_to(values, (self.count,)).tolist())
        return found


def _node(label: str, args: Sequence[Any]) -> Any:
    total = args[0]
    for arg in args[1:]:
        if label == "add":
            total = total + arg
        elif label == "mul":
            total = total * arg
        elif label in ("floordiv", "ceildiv", "mod"):
            quotient, rest = np.divmod(total, np.maximum(arg, 1))
            total = rest if label == "mod" else quotient + (rest > 0) * (label == "ceildiv")
        else:
            total = np.minimum(total, arg) if label == "min" else np.maximum(total, arg)
    return total


def place(lives: Sequence[Lifetime], sizes: Sequence[DimLike], facts: Facts) -> Placement:
    """Offsets of all tensors and the size of the frame."""
    if not lives:
        return Placement((), 0)
    dims = tuple(sorted({s for size in sizes for s in free_dims(size)}, key=lambda d: d.name))
    worlds = representative_sizes(dims)
    samples = Samples(worlds)
    columns = [samples(s) for s in sizes]
    by_world = [[c[w] for c in columns] for w in range(len(worlds))]
    bounds = [_live_bound(lives, at) for at in by_world]
    near = [[j for j, o in enumerate(lives) if j != i and life.meets(o)] for i, life in enumerate(lives)]
    best: tuple[float, list[list[int]]] | None = None
    for at in by_world:
        for order in _orders(lives, at):
            below = _below(near, at, _best_fit(near, at, order))
            upwards = _topological(below)
            score = sum(_peak(upwards, a, below) / b for a, b in zip(by_world, bounds, strict=True))
            if best is None or score < best[0] - 1e-9:
                best = (score, below)
    assert best is not None
    return _symbolic(sizes, best[1], Samples((*worlds, *sample_sizes(dims))), facts)


def _orders(lives: Sequence[Lifetime], at: Sequence[int]) -> tuple[list[int], ...]:
    numbers = list(range(len(lives)))
    by_size = sorted(numbers, key=lambda i: (-at[i], lives[i].first))
    by_area = sorted(numbers, key=lambda i: (-at[i] * (lives[i].last - lives[i].first + 1), lives[i].first))
    return by_size, by_area, numbers


def _best_fit(near: Sequence[Sequence[int]], at: Sequence[int], order: Sequence[int]) -> list[int]:
    """Offset of each tensor: the smallest gap that fits among those placed already and alive with it (``near``)."""
    offsets = [0] * len(near)
    placed: set[int] = set()
    for i in order:
        busy = sorted((offsets[j], offsets[j] + at[j]) for j in near[i] if j in placed)
        end, choice, gap = 0, -1, -1
        for start, stop in busy:
            room = start - end
            if room >= at[i] and (choice < 0 or room < gap):
                choice, gap = end, room
            end = max(end, stop)
        offsets[i] = choice if choice >= 0 else end
        placed.add(i)
    return offsets


def _below(near: Sequence[Sequence[int]], at: Sequence[int], offsets: Sequence[int]) -> list[list[int]]:
    """For each tensor those alive with it that lie below; empty ones are ordered by their number."""
    key = [(offset, offset + size, i) for i, (offset, size) in enumerate(zip(offsets, at, strict=True))]
    return [[j for j in alive if key[j] < key[i]] for i, alive in enumerate(near)]


def _topological(below: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    done: set[int] = set()

    def visit(i: int) -> None:
        stack = [(i, iter(below[i]))]
        while stack:
            node, rest = stack[-1]
            child = next((c for c in rest if c not in done), None)
            if child is not None:
                stack.append((child, iter(below[child])))
            else:
                stack.pop()
                if node not in done:
                    done.add(node)
                    order.append(node)

    for i in range(len(below)):
        if i not in done:
            visit(i)
    return order


def _peak(upwards: Sequence[int], at: Sequence[int], below: Sequence[Sequence[int]]) -> int:
    ends = [0] * len(below)
    for i in upwards:
        ends[i] = max((ends[j] for j in below[i]), default=0) + at[i]
    return max(ends)


def _live_bound(lives: Sequence[Lifetime], at: Sequence[int]) -> int:
    return max(1, *(sum(at[j] for j, o in enumerate(lives) if o.first <= life.first <= o.last) for life in lives))


def _symbolic(sizes: Sequence[DimLike], below: Sequence[Sequence[int]], samples: Samples, facts: Facts) -> Placement:
    starts: list[tuple[DimLike, ...]] = [()] * len(sizes)
    ends: list[tuple[DimLike, ...]] = [()] * len(sizes)
    all_below = [frozenset(b) for b in below]
    for i in _topological(below):
        covered = frozenset[int]().union(*(all_below[j] for j in below[i]))  # by one that ends higher
        found = dict.fromkeys(e for j in below[i] if j not in covered for e in ends[j])
        starts[i] = prune(tuple(found), samples, facts)
        ends[i] = tuple(dict.fromkeys(facts.simplify(add(s, sizes[i])) for s in starts[i])) or (sizes[i],)
    under = frozenset[int]().union(*all_below)
    total = prune(tuple(dict.fromkeys(e for i, es in enumerate(ends) if i not in under for e in es)), samples, facts)
    return Placement(tuple(_maximum(s) for s in starts), _maximum(total))


def _maximum(candidates: Sequence[DimLike]) -> DimLike:
    return max_(*candidates) if len(candidates) > 1 else (candidates[0] if candidates else 0)


def prune(candidates: Sequence[DimLike], samples: Samples, facts: Facts) -> tuple[DimLike, ...]:
    """Drop candidates that another one provably reaches at every size; values at sample sizes spare most proofs."""
    values = {c: samples(c) for c in candidates}
    kept: list[DimLike] = []
    for c in sorted(candidates, key=lambda c: (tuple(-v for v in values[c]), to_text(c))):
        dominated = any(
            all(a >= b for a, b in zip(values[k], values[c], strict=True)) and facts.surely_le(c, k) for k in kept
        )
        if not dominated:
            kept.append(c)
    return shortened(kept, samples, facts)


def shortened(candidates: Sequence[DimLike], samples: Samples, facts: Facts) -> tuple[DimLike, ...]:
    """At most `MOST_CANDIDATES`, each of the given ones below one of them: neighbours are joined where it costs least.

    Offsets that are maxima of sums of maxima would grow without bound in frames of many tensors and several symbols.
    """
    kept = list(candidates)
    steps = [] if len(kept) <= MOST_CANDIDATES else [joined(a, b, samples, facts) for a, b in pairwise(kept)]
    while len(kept) > MOST_CANDIDATES:
        i = min(range(len(steps)), key=lambda i: steps[i][0])
        if steps[i][0] == inf:
            break
        kept[i : i + 2] = [steps[i][1]]
        near = range(max(0, i - 1), min(i + 1, len(kept) - 1))
        steps[max(0, i - 1) : i + 2] = [joined(kept[j], kept[j + 1], samples, facts) for j in near]
    return tuple(dict.fromkeys(kept))


def joined(a: DimLike, b: DimLike, samples: Samples, facts: Facts) -> tuple[float, DimLike]:
    """A sum that covers both sums, and what it wastes at the samples, as a share; infinite where there is none."""
    cover = facts.join(a, b)
    if cover is None:
        return inf, a
    worlds = zip(samples(cover), samples(a), samples(b), strict=True)
    return sum(c / (1 + max(x, y)) for c, x, y in worlds), cover
