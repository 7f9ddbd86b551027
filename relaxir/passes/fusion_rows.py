"""Contractions, with what follows them point by point, join the row operator (softmax, layer norm) that reads them.

Blocks of the contraction's rows then go through the row operator while they lie in the cache.
"""

from __future__ import annotations

from relaxir.passes.fusion_calls import FusableCall
from relaxir.passes.fusion_groups import MAX_MEMBERS, Group, Grouping
from relaxir.schedule import block_rows
from relaxir.support.dtypes import info
from relaxir.sym import product
from relaxir.tir.classify import Pattern


def join_rows(grouping: Grouping) -> None:
    """Merge the group of a contraction into that of the row operator which alone reads its result."""
    for group in grouping.all():
        rows = _rows_behind(group, grouping)
        if rows is not None:
            grouping.merge(group, into=rows)


def _rows_behind(group: Group, grouping: Grouping) -> Group | None:
    """The group of the row operator that a contraction's group may join, or None."""
    homes = {g for reader in grouping.calls.readers(group.root) for g in grouping.groups[reader]}
    if len(homes) != 1 or not _has_short_rows(group.root):
        return None
    (rows,) = homes
    patterns = [m.pattern for m in (*group.heavy, *rows.heavy)]
    if patterns != [Pattern.CONTRACTION, Pattern.REDUCTION] or len(group.members) + len(rows.members) > MAX_MEMBERS:
        return None
    return rows if _read_by_rows(group.root, rows, grouping) else None


def _has_short_rows(call: FusableCall) -> bool:
    """Whether a result has several rows, some of which fit the cache at once."""
    type_ = call.type
    if type_ is None or type_.rank < 2 or product(type_.shape[:-1]) == 1:
        return False
    return block_rows(type_.shape[-1], info(type_.dtype).bytes) is not None


def _read_by_rows(call: FusableCall, rows: Group, grouping: Grouping) -> bool:
    """Whether a group reads a result point by point up to its reduction, and that one row by row."""
    for reader in grouping.calls.readers(call):
        if reader not in rows.members:
            return False
        if reader.pattern is Pattern.REDUCTION:
            if not reader.reads_own_rows(call.var):
                return False
            continue
        if not (reader.pointwise and reader.reads_at_own_point(call.var) and reader.same_shape(call)):
            return False
        if reader is not rows.root and not _read_by_rows(reader, rows, grouping):
            return False
    return True
