"""Letting a temporary live in the memory of a result that is written last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaxir.schedule.program import Program, accesses_of
from relaxir.tir import Buffer, Stmt
from relaxir.tir.classify import plain_store
from relaxir.tir.visit import buffers_of, substitute_buffers


def reuse_results(program: Program) -> Program:
    """Replace temporaries by results of the same type where the last reader writes the result at the same index.

    before: ``e[i] = exp(x[i]); y[i] = e[i] / s``; after: ``y[i] = exp(x[i]); y[i] = y[i] / s``
    """
    results = program.func.results
    offset = len(program.func.inputs)
    for n in range(len(results)):
        result = program.params[offset + n]
        for temp in program.temps:
            if _can_share(program.stages, temp, result):
                stages = tuple(substitute_buffers(s, {temp: result}) for s in program.stages)
                program = replace(program, stages=stages, temps=tuple(b for b in program.temps if b is not temp))
                break
    return program


def _can_share(stages: Sequence[Stmt], temp: Buffer, result: Buffer) -> bool:
    if temp.shape != result.shape or temp.dtype != result.dtype:
        return False
    users = [n for n, s in enumerate(stages) if temp in buffers_of(s)]
    owners = [n for n, s in enumerate(stages) if result in buffers_of(s)]
    if len(users) < 2 or owners[:1] != users[-1:]:
        return False
    store = plain_store(stages[users[-1]])
    if store is None or store.buffer is not result:
        return False
    reads = [a for a in accesses_of(stages[users[-1]]) if a.buffer is temp]
    return all(a.indices == store.indices for a in reads)
