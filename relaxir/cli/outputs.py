"""Showing and saving of results."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from relaxir.ir.expr import Array
from relaxir.support.errors import ArgumentError, LoadError
from relaxir.support.files import replacing

PLAIN_WIDTH = 120  # columns that a table may have on a narrower terminal, or on none


def console() -> Console:
    """Where tables go. What is wider than a terminal is wrapped by it: cut off, figures would be lost."""
    out = Console(highlight=False)
    width = max(out.width, PLAIN_WIDTH) if out.is_terminal else PLAIN_WIDTH
    return Console(highlight=False, width=width)


def results_table(results: Mapping[str, Array]) -> Table:
    """One row for each result."""
    table = Table("result", "dtype", "shape", "first values")
    for name, array in results.items():
        values = " ".join(np.array2string(v, precision=5) for v in array.reshape(-1)[:4])
        table.add_row(name, array.dtype.name, str(array.shape), values + (" ..." if array.size > 4 else ""))
    return table


def written_to(*suffixes: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """A callback of an option that names a file to write: its suffix says what is written, and must be one of these."""

    def check(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise click.BadParameter(f"`{path}`: the name must end in {' or '.join(suffixes)}", ctx, param)
        return path

    return check


def check_place(path: Path | None) -> None:
    """Refuse a file that could not be written at the end, before the work starts.

    Raises:
        LoadError: no such folder, one that cannot be written, or a folder of the file's name.
    """
    if path is None:
        return
    problem, way_out = "", "name a file in another folder"
    if path.is_dir():
        problem, way_out = "a folder stands there", "name a file in it"
    elif not path.parent.is_dir():
        problem, way_out = f"no folder `{path.parent}`", "make it, or name another"
    elif not os.access(path.parent, os.W_OK):
        problem = f"the folder `{path.parent}` cannot be written"
    if problem:
        raise LoadError(f"cannot write `{path}`: {problem}", code="load-path", help=way_out)


def check_results(path: Path | None, count: int) -> None:
    """Refuse to write several results to a file that holds one.

    Raises:
        ArgumentError: there are several for an .npy file.
    """
    if path is not None and path.suffix == ".npy" and count != 1:
        raise ArgumentError(f"--output {path}: there are {count} results", help="use an .npz file")


def save_results(path: Path, results: Mapping[str, Array]) -> None:
    """Write results to an .npz file by name, or one result to an .npy file; whole or not at all.

    Raises:
        LoadError: the file cannot be written.
    """
    with writing(path) as stream:
        if path.suffix == ".npy":
            np.lib.format.write_array(stream, next(iter(results.values())), allow_pickle=False)
        else:
            write_archive(stream, results)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream to a file that is there whole or not at all.

    Raises:
        LoadError: the file cannot be written.
    """
    try:
        with replacing(path) as stream:
            yield stream
    except OSError as error:
        raise LoadError(
            f"cannot write `{path}`: {error.strerror or error}", code="load-path", help="name a file in another folder"
        ) from error


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
