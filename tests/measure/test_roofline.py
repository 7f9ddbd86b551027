"""Roofline plots, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxir.measure import KernelTime, Peaks, Profile

pytest.importorskip("matplotlib")

from relaxir.measure.roofline import figure, write_roofline

PEAKS = Peaks(flops=1e11, dram=1e10, cache=5e10, threads=1, cache_bytes=1 << 20)
KERNELS = (
    KernelTime("fused_<matmul>", 2, 6e-4, 10**7, 10**5),
    KernelTime("add", 1, 1e-4, 10**5, 10**6),
    KernelTime("copy", 1, 1e-4, 0, 10**6),
)
PROFILE = Profile("main", 1e-3, 2e-4, KERNELS, PEAKS, (), ())


def test_the_plot_shows_kernels_under_their_roofs() -> None:
    (axes,) = figure(PROFILE).axes
    points = [tuple(c.get_offsets()[0]) for c in axes.collections]
    assert points == [
        (pytest.approx(100.0), pytest.approx(1e7 / 6e-4 * 1e-9)),
        (pytest.approx(0.1), pytest.approx(1e5 / 1e-4 * 1e-9)),
    ]
    assert any("1 kernels without arithmetic, 10.0%" in t.get_text() for t in axes.texts)
    assert [max(line.get_ydata()) for line in axes.lines] == [pytest.approx(100.0)] * 2


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!doctype html>")])
def test_files(suffix: str, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"roof{suffix}"
    write_roofline(PROFILE, path)
    data = path.read_bytes()
    assert data.startswith(start)
    if suffix == ".html":
        text = data.decode()
        assert "<svg" in text
        assert "fused_&lt;matmul&gt;" in text
        assert "<matmul>" not in text


def test_a_profile_without_arithmetic_has_a_plot() -> None:
    assert figure(Profile("main", 1e-3, 2e-4, KERNELS[2:], PEAKS, (), ())).axes
    assert figure(Profile("main", 1e-3, 2e-4, (), PEAKS, (), ())).axes


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not \.gif"):
        write_roofline(PROFILE, tmp_path / "roof.gif")
