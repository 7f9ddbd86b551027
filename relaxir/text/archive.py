"""Files of a module: text, and a NumPy archive beside it for the large constants."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from relaxir.ir.const_text import ConstantKeys
from relaxir.ir.expr import Array
from relaxir.ir.module import IRModule
from relaxir.ir.printer import module_text
from relaxir.support.errors import LoadError

PathLike: TypeAlias = str | os.PathLike[str]


class _Arrays(Mapping[str, Array]):
    """Arrays of an archive, read when asked for."""

    def __init__(self, archive: Mapping[str, Array], path: Path) -> None:
        self._archive = archive
        self._path = path

    def __getitem__(self, key: str) -> Array:
        if key not in self._archive:
            raise KeyError(key)
        try:
            return self._archive[key]
        except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
            raise LoadError(f"array `{key}` of `{self._path}` is damaged: {error}", code="load-malformed") from error

    def __contains__(self, key: object) -> bool:
        return key in self._archive

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive)

    def __len__(self) -> int:
        return len(self._archive)


@contextmanager
def open_arrays(constants: Mapping[str, Array] | PathLike | None) -> Iterator[Mapping[str, Array]]:
    """Arrays by key, from a mapping or the path of an archive.

    Raises:
        LoadError: when the file cannot be read (``load-path``) or is no archive of arrays (``load-malformed``).
    """
    if constants is None or isinstance(constants, Mapping):
        yield constants or {}
        return
    path = Path(constants)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise LoadError(f"cannot read `{path}`: {error.strerror or error}", code="load-path") from error
    with stream:
        yield _Arrays(_archive(stream, path), path)


def _archive(stream: BinaryIO, path: Path) -> Mapping[str, Array]:
    try:
        archive = np.load(stream, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise LoadError(f"`{path}` is not a NumPy archive: {error}", code="load-malformed") from error
    if not isinstance(archive, Mapping):
        raise LoadError(f"`{path}` is not a NumPy archive", code="load-malformed")
    return archive


def save(module: IRModule, path: PathLike) -> None:
    """Write a module's text, and its large constants into an ``.npz`` file of the same stem.

    Each file appears whole or not at all: it is written under another name and then renamed.

    Raises:
        LoadError: with code ``load-path`` when a file cannot be written.
    """
    target = Path(path)
    keys = ConstantKeys()
    text = module_text(module.functions, module.attrs, keys)
    try:
        if keys.arrays:
            with _replacing(archive_path(target)) as stream:
                np.savez(stream, **keys.arrays)  # type: ignore[arg-type]  # its stub takes the keywords for allow_pickle
        with _replacing(target) as stream:
            stream.write((text + "\n").encode())
    except OSError as error:
        raise LoadError(f"cannot write `{target}`: {error.strerror or error}", code="load-path") from error


def archive_path(path: PathLike) -> Path:
    """Where the large constants of a text file stand."""
    return Path(path).with_suffix(".npz")


def read_text(path: PathLike) -> str:
    """Content of a text file.

    Raises:
        LoadError: when it cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(f"cannot read `{path}`: {error.strerror or error}", code="load-path") from error
    except UnicodeDecodeError as error:
        raise LoadError(f"`{path}` is not UTF-8 text", code="load-malformed") from error


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
