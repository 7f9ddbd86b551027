"""The symbols in which sizes of frames are computed: at least 1, and no larger than what is needed.

Sizes of 0 count as 1, and quotients are opaque: that makes far more orders of sizes provable. So are differences: with
a symbol of 0 that counts as 1 in what is subtracted, they would be too small. A symbol counts as little as it can, too,
where no temporary that it sizes is needed: all of these have no elements, or are scratch memory of kernels that do
nothing. So frames of tensors such as (0, 2**40) are small: ``m_or_1 = max(m * min(n, 1), 1)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from relaxir.passes.demand import ALWAYS, known_needs
from relaxir.support.names import UniqueNames
from relaxir.sym import Dim, DimLike, Facts, Proof, add, dim, free_dims, max_, mul, substitute, to_text
from relaxir.tir import Buffer
from relaxir.tir.idle import Needs, happens, least, positive

ROUNDING: Final = ("//", "%", "min(", "max(", "ceildiv(", "broadcast(")
"""What the text of an extent has that is more than a polynomial."""


@dataclass(frozen=True)
class FrameSymbols:
    """For each symbol, and each extent that is more than a rising polynomial of symbols, the symbol that stands for it.

    Attributes:
        positive: what stands for each; itself where it is always positive and needed.
        needs: what must be positive for one of the temporaries that it sizes to be needed.
    """

    positive: Mapping[DimLike, Dim]
    needs: Mapping[DimLike, tuple[Needs, ...]]

    def extent(self, e: DimLike) -> DimLike:
        """An extent in positive symbols."""
        if e in self.positive:
            return self.positive[e]
        return substitute(e, {d: self.positive[d] for d in free_dims(e)})

    def value(self, e: DimLike, known: frozenset[Dim]) -> DimLike:
        """What the positive symbol of ``e`` is, where the symbols ``known`` are; the other ones count as positive."""
        needed = happens(known_needs(self.needs[e], known))
        if Facts(known).prove_le(0, needed) is not Proof.PROVED:
            needed = max_(needed, 0)
        return max_(mul(e, needed), self.positive[e].min)


def frame_symbols(
    temporaries: Iterable[Buffer], uses: Mapping[Buffer, tuple[Needs, ...]], taken: set[str]
) -> FrameSymbols:
    """The positive symbols of a host program.

    Args:
        temporaries: the buffers that its frames hold.
        uses: what must be positive for each of them to be needed.
        taken: names that no symbol may have.
    """
    found: dict[DimLike, dict[Needs, None]] = {}
    for shape, needed in dict.fromkeys((b.shape, uses.get(b, ALWAYS)) for b in temporaries):
        own = positive(shape)
        for e in shape:
            for key in (e,) if is_opaque(e) else free_dims(e):
                found.setdefault(key, {}).update(dict.fromkeys((own | n) - {key} for n in needed))
    keys = (
        *sorted((e for e in found if isinstance(e, Dim)), key=lambda d: d.name),
        *(e for e in found if not isinstance(e, Dim)),
    )
    all_needs = {e: least(found[e]) for e in keys}
    names = UniqueNames(taken | {d.name for e in keys for d in free_dims(e)})
    return FrameSymbols({e: _positive(e, all_needs[e], names) for e in keys}, all_needs)


def is_opaque(extent: DimLike) -> bool:
    """Whether an extent is more than a polynomial that grows, or stays, with each of its symbols."""
    if isinstance(extent, int | Dim):
        return False
    text = to_text(extent)
    if any(word in text for word in ROUNDING):
        return True
    symbols = free_dims(extent)
    facts = Facts(symbols)
    grown = (substitute(extent, {d: add(d, 1)}) for d in symbols)
    return "-" in text and not all(facts.prove_le(extent, g) is Proof.PROVED for g in grown)


def _positive(e: DimLike, needs: tuple[Needs, ...], names: UniqueNames) -> Dim:
    """The symbol that stands for an extent."""
    if not isinstance(e, Dim):
        return dim(names.add("extent"), min=1)
    if e.max == 0 or (e.min > 0 and needs == ALWAYS):
        return e
    low = -(-max(e.min, 1) // e.multiple_of) * e.multiple_of
    return dim(names.add(f"{e.name}_or_{low}"), min=low, max=e.max, multiple_of=e.multiple_of)
