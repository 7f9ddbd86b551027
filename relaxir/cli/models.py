"""From a path on the command line to a module or an executable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import relaxir as rx
from relaxir.cli.inputs import parse_dims
from relaxir.cli.progress import progress_bar
from relaxir.ir import IRModule
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, LoadError

MODELS = (".onnx", ".pb")
TEXT = ".rx"
LIBRARY = ".so"


def load_module(path: Path, dims: Sequence[str]) -> IRModule:
    """A module from an ONNX file, or from IR text and the .npz of its large constants beside it.

    Raises:
        LoadError: no such file, another kind of file, or damaged content.
        ArgumentError: a bad ``--dim``.
    """
    check_file(path)
    kind = path.suffix.lower()
    if kind == TEXT:
        if dims:
            raise ArgumentError("--dim is for ONNX models: a .rx file declares its own ranges")
        constants = path.with_suffix(".npz")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise LoadError(f"`{path}` is not text: {error}", code="load-malformed") from error
        return rx.parse(text, constants if constants.is_file() else None, str(path))
    if kind == LIBRARY:
        raise LoadError(f"`{path}` is compiled: only `relaxir run` and `relaxir bench` take it", code="load-malformed")
    if kind not in MODELS:
        raise LoadError(
            f"cannot tell what `{path}` is", code="load-malformed", help="name an ONNX model .onnx and IR text .rx"
        )
    return rx.from_onnx(path, dims=parse_dims(dims))


def load_executable(path: Path, dims: Sequence[str], threads: int | None, profile: bool = False) -> Executable:
    """A library as it is, anything else compiled for this machine."""
    if path.suffix.lower() == LIBRARY:
        check_file(path)
        if dims:
            raise ArgumentError("--dim is for ONNX models: the sizes of a library are fixed in it")
        exe = rx.load(path)
        if threads is not None:
            exe.set_threads(threads)
        return exe
    module = load_module(path, dims)
    with progress_bar("compiling") as tick:
        return rx.compile(module, threads=threads, profile=profile, progress=tick)


def output_path(model: Path, output: Path | None) -> Path:
    """Where a library goes; found out before the work starts.

    Raises:
        LoadError: the folder is missing, or a folder stands there.
        ArgumentError: the model or the header would be overwritten.
    """
    path = output or model.with_suffix(LIBRARY)
    if path.is_dir():
        raise LoadError(f"cannot write `{path}`: a folder stands there", code="load-path", help="name a file in it")
    if not path.parent.is_dir():
        raise LoadError(f"cannot write `{path}`: no folder `{path.parent}`", code="load-path")
    if path.suffix in (".h", TEXT, *MODELS):
        raise ArgumentError(f"--output {path}: a library cannot end in {path.suffix}", help=f"use {LIBRARY}")
    return path


def check_file(path: Path) -> None:
    """Refuse what is not there.

    Raises:
        LoadError: no such file, or a folder.
    """
    if path.is_dir():
        raise LoadError(f"`{path}` is a folder, not a file", code="load-path")
    if not path.is_file():
        raise LoadError(f"no file `{path}`", code="load-path")
