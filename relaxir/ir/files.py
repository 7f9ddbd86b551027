"""Writing of a module as files: text, and a NumPy archive beside it for the large constants."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from relaxir.ir.const_text import ConstantKeys
from relaxir.ir.printer import module_text
from relaxir.support.errors import LoadError


def write_module(functions: Mapping[str, object], attrs: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write the text, and an ``.npz`` file of the same stem where there are large constants.

    Each file appears whole or not at all: it is written under another name and then renamed.

    Raises:
        LoadError: with code ``load-path`` when a file cannot be written.
    """
    target = Path(path)
    keys = ConstantKeys()
    text = module_text(functions, attrs, keys)
    try:
        if keys.arrays:
            with _replacing(archive_path(target)) as stream:
                np.savez(stream, **keys.arrays)  # type: ignore[arg-type]  # its stub takes the keywords for allow_pickle
        with _replacing(target) as stream:
            stream.write((text + "\n").encode())
    except OSError as error:
        raise LoadError(f"cannot write `{target}`: {error.strerror or error}", code="load-path") from error


def archive_path(path: str | os.PathLike[str]) -> Path:
    """Where the large constants of a text file stand."""
    return Path(path).with_suffix(".npz")


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
