"""Profiles as roofline plots: what each kernel reaches beside what its operations per byte allow.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures"
(CACM 52.4, 2009). Needs the extra ``plot``.
"""

from __future__ import annotations

import io
from html import escape
from math import atan2, degrees
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from relaxir.measure.peaks import Peaks
from relaxir.measure.profiles import COLUMNS, KernelTime, Profile, shortened
from relaxir.support.files import replacing

SIZE: Final = (8.0, 5.5)  # inches
COLOURS: Final = ("tab:red", "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:cyan", "tab:brown", "tab:olive")
"""Of the kernels that take most of the time, which are named."""
OTHER: Final = "grey"


def figure(profile: Profile) -> Figure:
    """The plot of a profile; kernels without arithmetic have no place in it and are counted below."""
    drawn = [k for k in profile.kernels if k.flops and k.bytes]
    plot = Figure(figsize=SIZE, layout="constrained")
    axes = plot.add_subplot()
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")
    low, high = extent(drawn, profile.peaks)
    roofs(axes, profile.peaks, low, high)
    handles = []
    for i, k in enumerate(drawn):
        named = i < len(COLOURS)
        colour = COLOURS[i] if named else OTHER
        share = k.seconds / profile.seconds
        place = (k.flops / k.bytes, 1e-9 * k.flop_rate)
        axes.scatter(*place, s=30 + 1200 * share, color=colour, alpha=0.7, zorder=3 + len(drawn) - i)
        if named:
            label = f"{shortened(k.kernel)}, {share:.1%}"
            handles.append(Line2D([], [], marker="o", linestyle="", color=colour, label=label))
    axes.set_xlim(low, high)
    axes.set_ylim(top=4e-9 * profile.peaks.flops)
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.set_title(f"{profile.title}, threads: {profile.peaks.threads}")
    if handles:
        title = "kernel, share of the time"
        plot.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, title=title)
    hidden = [k for k in profile.kernels if not (k.flops and k.bytes)]
    if hidden:
        share = sum(k.seconds for k in hidden) / profile.seconds
        axes.text(
            0.01, 0.01, f"not shown: {len(hidden)} kernels without arithmetic, {share:.1%} of the time",
            transform=axes.transAxes, fontsize=7,
        )  # fmt: skip
    return plot


def extent(kernels: list[KernelTime], peaks: Peaks) -> tuple[float, float]:
    """Least and most operations per byte to show: the kernels and the ridge of the roof."""
    places = [k.flops / k.bytes for k in kernels] + [peaks.flops / peaks.dram]
    return min(places) / 4, max(places) * 4


def roofs(axes: Axes, peaks: Peaks, low: float, high: float) -> None:
    """The limits of the machine as lines with their names."""
    for name, bandwidth, style in (("memory", peaks.dram, "-"), ("cache", peaks.cache, "--")):
        places = [low, peaks.flops / bandwidth, high]
        axes.plot(places, [1e-9 * peaks.roof(x, bandwidth) for x in places], style, color="black", linewidth=1)
        text(
            axes,
            f"{name}, {1e-9 * bandwidth:.0f} GB/s",
            low * 1.2,
            1e-9 * peaks.roof(low * 1.2, bandwidth),
            rising=True,
        )
    ceiling = 1e-9 * peaks.flops
    text(axes, f"multiply-adds, {ceiling:.0f} GFLOP/s", peaks.flops / peaks.cache, ceiling, rising=False)


def text(axes: Axes, words: str, x: float, y: float, rising: bool) -> None:
    """Words just above a line: one that rises through the origin, or a level one."""
    slope = degrees(atan2(y, x)) if rising else 0.0
    axes.text(
        x, y * 1.08, words, fontsize=8, rotation=slope, rotation_mode="anchor", transform_rotates_text=True, va="bottom"
    )


def write_roofline(profile: Profile, path: Path) -> None:
    """Write the plot as ``.png`` or ``.svg``, or as ``.html``: a page with the plot and the table of kernels.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    buffer = io.BytesIO()
    plot = figure(profile)
    if path.suffix == ".png":
        FigureCanvasAgg(plot).print_png(buffer)
    elif path.suffix in (".svg", ".html"):
        FigureCanvasSVG(plot).print_svg(buffer)
    else:
        raise ValueError(f"a roofline is written as .png, .svg or .html, not {path.suffix or 'without suffix'}")
    data = buffer.getvalue()
    with replacing(path) as stream:
        stream.write(page(profile, data.decode()).encode() if path.suffix == ".html" else data)


def page(profile: Profile, svg: str) -> str:
    """A page that needs nothing beside it."""
    rows = profile.cells()
    cells = "\n".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    names = "".join(f"<th>{c}</th>" for c in COLUMNS)
    title = escape(profile.title)
    drawing = svg[svg.index("<svg") :]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif }} td, th {{ text-align: right; padding: 0 1em }}
td:first-child {{ text-align: left; font-family: monospace }}</style></head>
<body><h1>{title}</h1>
{drawing}
<table><tr>{names}</tr>
{cells}
</table></body></html>
"""
