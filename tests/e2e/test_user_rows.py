"""Rows that users of other compilers reported, in four builds that must agree; each build is compiled once for a row.

Paths of external data (H19) are tests of the loader, in tests/frontends/test_malformed.py; lossless text (H18) is in
tests/text. What a call may not be given (H20) is at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto

import relaxir as rx
from relaxir.passes import Pass
from relaxir.pipelines import REFERENCE
from relaxir.support.errors import ArgumentError, RelaxirError
from tests.e2e.agreement import results
from tests.e2e.user_rows import ROWS, Call, numbers
from tests.frontends.models import f32, folded, i64, model, node
from tests.ops.guarded import guarded

Run = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, ...]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


class Build:
    """One way to compile a model: what is known of its calls before."""

    def __init__(self, cache: Path, sizes: bool = False, data: bool = False, pipeline: Pass | None = None) -> None:
        self.cache, self.sizes, self.data, self.pipeline = cache, sizes, data, pipeline
        self.made: dict[Any, Any] = {}

    def run(self, proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Results of a call, which may not change its operands nor read behind them."""
        known = tuple((k, a.tobytes() if self.data else b"", a.shape) for k, a in feeds.items()) if self.sizes else ()
        if known not in self.made:
            self.made[known] = self.compiled(proto, feeds)
        operands = {} if self.data else {k: guarded(a).array for k, a in feeds.items()}
        found = results(self.made[known](**operands))
        for k, a in operands.items():
            np.testing.assert_array_equal(a, feeds[k])
        return found

    def compiled(self, proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> Any:
        """A function for calls like this one."""
        dims = {f"{k}:{axis}": n for k, a in feeds.items() for axis, n in enumerate(a.shape)}
        source = folded(proto, dict(feeds)) if self.data else proto
        module = rx.from_onnx(source, dims=dims if self.sizes and not self.data else None)
        return rx.compile(module, threads=1, pipeline=self.pipeline, cache=self.cache, jobs=1)["main"]


BUILDS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "dynamic": {},
        "static": {"sizes": True},
        "folded": {"sizes": True, "data": True},
        "reference": {"pipeline": REFERENCE},
    }
)


def check(build: Build, proto: ModelProto, given: Call) -> tuple[np.ndarray, ...]:
    """Run a call and compare with what is right."""
    if given.words:
        with pytest.raises(RelaxirError, match=given.words):
            build.run(proto, given.feeds)
        return ()
    found = build.run(proto, given.feeds)
    for got, want in zip(found, given.want, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    return found


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, build: str, cache: Path) -> None:
    made, row = Build(cache, **BUILDS[build]), ROWS[name]
    found = [check(made, row.proto, c) for c in row.calls]
    for arrays, c in zip(found, row.calls, strict=True):  # later calls leave the results of earlier ones alone
        for got, want in zip(arrays, c.want, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert build not in ("dynamic", "reference") or len(made.made) == 1


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
