"""Reading of a module's files: text, and a NumPy archive beside it for the large constants."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from relaxir.ir.expr import Array
from relaxir.support.arrays import DAMAGE
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
        except DAMAGE as error:
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
    except DAMAGE as error:
        raise LoadError(f"`{path}` is not a NumPy archive: {error}", code="load-malformed") from error
    if not isinstance(archive, Mapping):
        raise LoadError(f"`{path}` is not a NumPy archive", code="load-malformed")
    return archive


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
