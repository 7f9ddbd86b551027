"""Kernels are known to the object cache by their programs: with a hit, none is written as LLVM text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.backends.llvm import build
from relaxir.backends.llvm.build import BuildOptions, kernel_unit
from relaxir.backends.llvm.cache import ObjectCache, emitter_digest
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.support.errors import RuntimeIndexError
from relaxir.tir import PrimFunc

TEXT = """# relaxir 0.1
@I.module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "f32"), i: R.Tensor(("m",), "i64")) -> R.Tensor(("m", 4), "f32"):
        n = R.dim("n")
        m = R.dim("m")
        lv: R.Tensor((m, 4), "f32") = R.take(x, i, axis=0)
        return lv
"""


def test_a_hit_writes_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second build finds the objects, and its kernels still fail with their messages."""
    written: list[tuple[str, ...]] = []
    emit = build.emit_module

    def noted(funcs: Any, *args: Any, **options: Any) -> str:
        written.append(tuple(funcs))
        return emit(funcs, *args, **options)

    monkeypatch.setattr(build, "emit_module", noted)
    x, i = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([2, 0])
    for count in (2, 1):  # kernels and hosts, then hosts alone
        written.clear()
        main = rx.compile(rx.parse(TEXT), threads=1, jobs=1, cache=tmp_path)["main"]
        assert len(written) == count
        np.testing.assert_array_equal(main(x, i), x[i])
        with pytest.raises(RuntimeIndexError, match="7"):
            main(x, np.array([7]))


PROGRAM = """# relaxir 0.1
@I.module
class Module:
    @T.prim_func
    def f(x: T.Buffer((4,), "f32"), y: T.Buffer((4,), "f32")):
        T.require(x[0] > 0.0, "runtime-index", "{message}")
        for i in T.serial(4):
            y[i] = x[i] * {factor}
"""


def identity(cache: ObjectCache, message: str = "bad", factor: float = 2.0, earlier: int = 0) -> str:
    """What a kernel is known by, in a library with some messages before its own."""
    func = rx.parse(PROGRAM.format(message=message, factor=factor)).functions["f"]
    assert isinstance(func, PrimFunc)
    sites = SiteTable()
    for n in range(earlier):
        sites.add("runtime-index", f"message {n}")
    return kernel_unit({"f": func}, BuildOptions(cache=cache), sites).identity


def test_identities(tmp_path: Path) -> None:
    """Equal programs have one; other programs, and other numbers of messages in them, have others."""
    cache = ObjectCache(tmp_path)
    assert identity(cache) == identity(cache)
    assert (
        len({identity(cache), identity(cache, "worse"), identity(cache, factor=3.0), identity(cache, earlier=1)}) == 4
    )
    assert emitter_digest() in identity(cache)


def test_without_sources_the_text_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the emitter cannot be told from another version of it, kernels are known by what it writes."""
    monkeypatch.setattr(build, "emitter_digest", lambda: "")
    assert "define i32 @" in identity(ObjectCache(tmp_path))
