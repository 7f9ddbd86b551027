"""Showing and saving of results."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from rich.console import Console
from rich.table import Table

from relaxir.ir.expr import Array
from relaxir.support.errors import ArgumentError, LoadError
from relaxir.support.files import replacing

PLAIN_WIDTH = 120  # columns of a table where there is no terminal


def console() -> Console:
    """Where tables go: the terminal in its width, anything else in a fixed one."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def results_table(results: Mapping[str, Array]) -> Table:
    """One row for each result."""
    table = Table("result", "dtype", "shape", "first values")
    for name, array in results.items():
        values = " ".join(np.array2string(v, precision=5) for v in array.reshape(-1)[:4])
        table.add_row(name, array.dtype.name, str(array.shape), values + (" ..." if array.size > 4 else ""))
    return table


def save_results(path: Path, results: Mapping[str, Array]) -> None:
    """Write results to an .npz file by name, or one result to an .npy file; whole or not at all.

    Raises:
        ArgumentError: another suffix, or several results for an .npy file.
        LoadError: the file cannot be written.
    """
    check_results_path(path)
    if path.suffix == ".npy" and len(results) != 1:
        raise ArgumentError(f"--output {path}: there are {len(results)} results", help="use an .npz file")
    try:
        with replacing(path) as stream:
            if path.suffix == ".npy":
                np.lib.format.write_array(stream, next(iter(results.values())), allow_pickle=False)
            else:
                write_archive(stream, results)
    except OSError as error:
        raise LoadError(f"cannot write `{path}`: {error.strerror or error}", code="load-path") from error


def check_results_path(path: Path) -> None:
    """Refuse a name that `save_results` could not use.

    Raises:
        ArgumentError: neither .npy nor .npz.
        LoadError: no such folder, or a folder stands there.
    """
    check_place("--output", path, (".npz", ".npy"))


def write_archive(stream: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """What ``numpy.savez`` writes, for any names: it takes them as keywords, where some are its own."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def seconds_table(seconds: Mapping[str, float], cache: tuple[int, int]) -> Table:
    """Where the time of a compilation went, and what the object cache saved of it."""
    table = Table("step", "seconds")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.4f}")
    table.add_section()
    table.add_row("total", f"{sum(seconds.values()):.4f}")
    found, asked = cache
    table.caption = f"{found} of {asked} objects from the cache" if asked else "no object cache"
    return table


def check_place(option: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Refuse a file that could not be written at the end, before the work starts.

    Raises:
        ArgumentError: another suffix.
        LoadError: no such folder, or a folder stands there.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ArgumentError(f"{option} {path}: the name must end in {' or '.join(suffixes)}")
    if path.is_dir() or not path.parent.is_dir():
        raise LoadError(f"cannot write `{path}`: no such place", code="load-path")
