"""From a path on the command line to a module or an executable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import relaxir as rx
from relaxir.cli.dims import Dims
from relaxir.cli.outputs import check_place
from relaxir.cli.progress import progress_bar
from relaxir.ir import IRModule
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, LoadError, ParseError

MODELS = (".onnx", ".pb")
TEXT = ".rx"
LIBRARY = ".so"
CONSTANTS = ".npz"


def load_module(path: Path, dims: Dims) -> IRModule:
    """A module from an ONNX file, or from IR text and the .npz of its large constants beside it.

    Raises:
        LoadError: no such file, another kind of file, or damaged content.
        ArgumentError: a range for a name that the model does not have, or for a model that is no ONNX.
    """
    check_file(path)
    kind = path.suffix.lower()
    if kind == TEXT:
        refuse_ranges(dims, path, "a .rx file declares them itself", 'write them there: n = R.dim("n", min=1, max=64)')
        constants = path.with_suffix(CONSTANTS)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise LoadError(f"`{path}` is not text: {error}", code="load-malformed") from error
        if constants.is_file():
            return rx.parse(text, constants, str(path))
        with telling_constants(constants):
            return rx.parse(text, None, str(path))
    if kind == LIBRARY:
        raise LoadError(
            f"`{path}` is compiled: only `relaxir run` and `relaxir bench` take it",
            code="load-malformed",
            help="name the model that it was made from",
        )
    if kind not in MODELS:
        raise LoadError(
            f"cannot tell what `{path}` is",
            code="load-malformed",
            help="name an ONNX model .onnx, IR text .rx, or for `run` and `bench` a library .so",
        )
    return rx.from_onnx(path, dims=dims.declared())


@contextmanager
def telling_constants(path: Path) -> Iterator[None]:
    """Text whose constants are missing tells where they belong."""
    try:
        yield
    except ParseError as error:
        if error.code == "parse-constant":
            error.help = f"put the constants beside the text, as `{path}`"
        raise


def load_executable(path: Path, dims: Dims, threads: int | None, profile: bool = False) -> Executable:
    """A library as it is, anything else compiled for this machine."""
    if path.suffix.lower() == LIBRARY:
        check_file(path)
        refuse_ranges(dims, path, "those of a library are compiled into it", "give them to `relaxir compile`")
        exe = rx.load(path)
        if threads is not None:
            exe.set_threads(threads)
        return exe
    module = load_module(path, dims)
    with progress_bar("compiling") as tick:
        return rx.compile(module, threads=threads, profile=profile, progress=tick)


def refuse_ranges(dims: Dims, path: Path, why: str, way_out: str) -> None:
    """Refuse ranges for a model that has its own.

    Raises:
        ArgumentError: there are some.
    """
    if dims.ranges:
        name = next(iter(dims.ranges))
        raise ArgumentError(
            f"--dim {name}: only dimensions of ONNX models can be fixed or given a range, and `{path}` is none: {why}",
            help=way_out,
        )


def output_path(model: Path, output: Path | None) -> Path:
    """Where a library goes, with its header beside it; found out before the work starts.

    Raises:
        LoadError: a file cannot be written there.
    """
    path = output or model.with_suffix(LIBRARY)
    for place in (path, path.with_suffix(".h")):
        check_place(place)
    return path


def check_constants(model: Path, output: Path | None) -> None:
    """Refuse to write results over the constants of the model that gives them.

    Raises:
        ArgumentError: they would go there.
    """
    if (
        output is not None
        and model.suffix.lower() == TEXT
        and output.resolve() == model.with_suffix(CONSTANTS).resolve()
    ):
        raise ArgumentError(f"--output {output}: the constants of `{model}` are there", help="name another file")


def check_file(path: Path) -> None:
    """Refuse what is not there.

    Raises:
        LoadError: no such file, a folder, or a file that this user may not read.
    """
    if path.is_dir():
        raise LoadError(f"`{path}` is a folder, not a file", code="load-path", help="name a model in it")
    if not path.is_file():
        raise LoadError(f"no file `{path}`", code="load-path", help="check the path, from this folder on")
    if not os.access(path, os.R_OK):
        raise LoadError(f"`{path}` cannot be read", code="load-path", help="check your rights to it")
