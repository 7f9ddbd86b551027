"""A corpus of damaged files: each is refused in words that say where, or runs inside its memory. No crash, no hang.

Loading a file may take no more than `ROOM` above its size, whatever the file claims.
"""

from __future__ import annotations

import mmap
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import relaxir as rx
from relaxir.frontends.onnx.graphs import describe
from relaxir.ir.types import TensorType
from relaxir.support.errors import RelaxirError, RuntimeFailure, RuntimeIndexError
from relaxir.sym import evaluate, product
from tests.e2e.agreement import allowed, results
from tests.e2e.random_graphs import Program
from tests.frontends.mutants import KINDS, Mutant, graphs, mutants
from tests.ops.guarded import call_guarded
from tests.ops.isolated import failures

COUNT = 65
"""Files of each kind."""
SECONDS = 10
"""Of processor time, for one file."""
ROOM = 100 << 20
"""Bytes that loading may take above the size of the file."""
RUN_ROOM = 1 << 30
"""Bytes that compiling and running may take: what a damaged size asks for beyond it must fail, not swap."""
LARGE = 1 << 20
"""Elements of operands from which on a model is compiled, but not run."""
SIZE = 3
"""Of every symbol."""
LEAST: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "bits": (18, 5), "external": (32, 25), "dims": (60, 25), "types": (60, 4), "names": (60, 18), "edges": (60, 4),
        "attributes": (60, 18), "versions": (60, 25),
    }
)  # fmt: skip
"""How many files of a kind `onnx.load` must read, and how many must run: a corpus of rubbish tests nothing."""
DATA = (RuntimeIndexError, RuntimeFailure)
"""Errors about elements, which kernels find: they name the operator, not the node, since equal nodes share a kernel."""
STAGES = ("refused", "compiled", "ran")


@contextmanager
def address_space(more: int) -> Iterator[None]:
    """No more memory than now and ``more`` bytes; beyond it allocations fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def run(module: rx.IRModule, cache: Path) -> str:
    """Compile the model; run it on arrays that end where memory ends. The stage that was reached."""
    exe = rx.compile(module, threads=1, cache=cache, jobs=1)
    program = Program(module)
    env = {d.name: allowed(d, SIZE) for d in program.symbols}
    if any(evaluate(product(t.shape), env) > LARGE for t in program.types if isinstance(t, TensorType)):
        return "compiled"
    arrays = program.inputs(env)
    outs = [np.empty_like(a) for a in results(exe["main"](*arrays))]
    call_guarded(exe["main"].into, arrays, outs)
    return "ran"


def readable(path: Path) -> bool:
    """Whether the package onnx reads the file."""
    try:
        onnx.load(path)
    except Exception:  # any: what onnx says of damage is not ours
        return False
    return True


def places(data: bytes) -> set[str]:
    """What an error may name: the file, nodes, values."""
    found = {"model.onnx"}
    try:
        proto = ModelProto.FromString(data)
    except Exception:  # any: the file is no model
        return found
    for g in graphs(proto.graph):
        found |= {v.name for v in (*g.input, *g.output, *g.initializer)}
        found |= {name for n in g.node for name in (*n.input, *n.output)}
        found |= {describe(n).removeprefix("node `").split("` (")[0] for n in g.node}
    return found


def handle(mutant: Mutant, folder: Path, cache: Path) -> str:
    """The stage that a file reached."""
    path = mutant.save(folder)
    try:
        with address_space(len(mutant.data) + ROOM), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "graph output", UserWarning)
            module = rx.from_onnx(path)
        with address_space(RUN_ROOM):
            return run(module, cache)
    except DATA:
        return "refused"
    except RelaxirError as error:
        text = str(error)
        assert any(f"`{name}`" in text for name in places(mutant.data)), f"says no place: {text}"
        return "refused"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, cache: Path, tmp_path: Path) -> None:
    found = list(mutants(kind, COUNT))
    reached = mmap.mmap(-1, len(found))  # written by the children

    def work(i: int) -> None:
        reached[i] = STAGES.index(handle(found[i], tmp_path / str(i), cache))

    bad = failures([m.label for m in found], work, processor=SECONDS)
    assert not bad, "\n".join(f"{label}: {text}" for label, text in bad.items())
    counts = Counter(STAGES[b] for b in reached[:])
    loaded = sum(readable(tmp_path / str(i) / "model.onnx") for i in range(len(found)))
    stages = ", ".join(f"{counts[s]} {s}" for s in STAGES)
    sys.stdout.write(f"\n{kind}: {len(found)} files, {loaded} read by onnx, {stages}\n")  # shown by -s
    assert loaded >= LEAST[kind][0]
    assert counts["ran"] >= LEAST[kind][1]


def test_size_of_the_corpus() -> None:
    assert len(KINDS) * COUNT >= 500
    read, ran = (sum(column) for column in zip(*(LEAST[kind] for kind in KINDS), strict=True))
    assert read >= 200
    assert ran >= 100
