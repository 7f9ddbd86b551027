"""Rows that users of other compilers reported, in four builds that must agree.

Paths of external data (H19) are tests of the loader, in tests/frontends/test_malformed.py; lossless text (H18) is in
tests/text. What a call may not be given (H20) is at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto

import relaxir as rx
from relaxir.pipelines import REFERENCE
from relaxir.support.errors import ArgumentError, RelaxirError
from tests.e2e.agreement import results
from tests.e2e.user_rows import SOURCES, Arrays, Call, Row, numbers
from tests.frontends.models import f32, folded, i64, model, node
from tests.ops.guarded import guarded

BUILDS: Final = ("dynamic", "static", "folded", "reference")


def known_before(build: str, feeds: Mapping[str, np.ndarray]) -> Hashable:
    """What a build knows of a call when it is compiled: calls that agree in it share a function."""
    if build == "folded":
        return tuple((k, a.shape, a.tobytes()) for k, a in feeds.items())
    return tuple(a.shape for a in feeds.values()) if build == "static" else ()


def imported(build: str, proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> rx.IRModule:
    """The model as one function, with sizes or operands in it where the build says so."""
    if build == "folded":
        return rx.from_onnx(folded(proto, dict(feeds)))
    dims = {f"{k}:{axis}": n for k, a in feeds.items() for axis, n in enumerate(a.shape)}
    return rx.from_onnx(proto, dims=dims if build == "static" else None)


def run(exe: rx.Executable, name: str, given: Call, build: str) -> Arrays:
    """Results of a call, which may not change its operands nor read behind them."""
    operands = {} if build == "folded" else {k: guarded(a).array for k, a in given.feeds.items()}
    found = results(exe[name](**operands))
    for k, a in operands.items():
        np.testing.assert_array_equal(a, given.feeds[k])
    return found


def right(found: Arrays, want: Arrays) -> None:
    """Results are those of the row."""
    for g, w in zip(found, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-5)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_rows(source: Callable[[], Iterator[tuple[str, Row]]], build: str) -> None:
    """All rows of a kind are compiled at once, each function once for all of its calls."""
    functions: dict[str, Any] = {}
    names: dict[Hashable, str] = {}
    calls: list[tuple[str, str, Call]] = []
    for label, row in source():
        for k, given in enumerate(row.calls):
            if given.words and build in ("static", "folded"):  # refused before it is called
                with pytest.raises(RelaxirError, match=given.words):
                    rx.compile(imported(build, row.proto, given.feeds), cache=False, jobs=1)["main"](**given.feeds)
                continue
            name = names.setdefault((label, known_before(build, given.feeds)), f"f{len(names)}")
            if name not in functions:
                functions[name] = imported(build, row.proto, given.feeds)["main"]
            calls.append((f"{label}, call {k}", name, given))
    exe = rx.compile(
        rx.IRModule(functions), threads=1, pipeline=REFERENCE if build == "reference" else None, cache=False, jobs=1
    )
    kept: list[tuple[Arrays, Call]] = []
    for label, name, given in calls:
        try:
            if given.words:
                with pytest.raises(RelaxirError, match=given.words):
                    run(exe, name, given, build)
                continue
            found = run(exe, name, given, build)
            right(found, given.want)
            kept.append((found, given))
        except (AssertionError, RelaxirError) as error:
            raise AssertionError(f"{label}: {error}") from error
    for found, given in kept:  # later calls leave the results of earlier ones alone
        right(found, given.want)


def test_declared_sizes_are_checked_before_anything_runs() -> None:
    """H20. A wrong index would be found by a kernel; the argument is named instead."""
    nodes = [
        node("Unsqueeze", "y one", "q"),
        node("Gather", "y i", "g"),
        node("Mul", "x q", "p"),
        node("Add", "p g", "z"),
    ]
    proto = model(nodes, "x float32[n,2]; y float32[n]; i int64[1]", "z float32", one=i64([1]))
    main = rx.compile(rx.from_onnx(proto, dims={"n": rx.dim("n", min=4, max=64, multiple_of=4)}), cache=False)["main"]
    for n in (4, 8, 64):
        x, y = numbers(n, 2), numbers(n)
        np.testing.assert_allclose(main(x, y, i64([3])), x * y[:, None] + 4)
    wrong: tuple[tuple[Any, Any, str], ...] = (
        (numbers(6, 2), numbers(6), r"(?s)x.*n.*6.*4"), (numbers(68, 2), numbers(68), r"(?s)x.*n.*68.*64"), (numbers(8, 2), numbers(12), r"(?s)y.*12.*8"),
        (numbers(0, 2), numbers(0), r"(?s)n.*0.*4"), (numbers(8), numbers(8), r"(?s)x.*1.*2"), (np.float64(numbers(8, 2)), numbers(8), r"(?s)x.*float64.*float32"),
        (numbers(8, 3), numbers(8), r"(?s)x.*3.*2"),
    )  # fmt: skip
    for x, y, words in wrong:
        with pytest.raises(RelaxirError, match=words) as caught:
            main(x, y, i64([99]))
        assert "99" not in str(caught.value)
    with pytest.raises(ArgumentError, match="z"):
        main(x=numbers(8, 2), y=numbers(8), z=f32([1]))
