"""Writing of a module as files: text, and a NumPy archive beside it for the large constants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from relaxir.ir.const_text import ConstantKeys
from relaxir.ir.printer import module_text
from relaxir.support.checks import check_kind
from relaxir.support.errors import LoadError
from relaxir.support.files import replacing


def write_module(functions: Mapping[str, object], attrs: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write the text, and an ``.npz`` file of the same stem where there are large constants.

    Each file appears whole or not at all: it is written under another name and then renamed.

    Raises:
        LoadError: with code ``load-path`` when a file cannot be written.
    """
    check_kind("path", path, (str, os.PathLike))
    target = Path(path)
    keys = ConstantKeys()
    text = module_text(functions, attrs, keys)
    try:
        if keys.arrays:
            with replacing(archive_path(target)) as stream:
                np.savez(stream, **keys.arrays)  # type: ignore[arg-type]  # its stub takes the keywords for allow_pickle
        with replacing(target) as stream:
            stream.write((text + "\n").encode())
    except OSError as error:
        raise LoadError(f"cannot write `{target}`: {error.strerror or error}", code="load-path") from error


def archive_path(path: str | os.PathLike[str]) -> Path:
    """Where the large constants of a text file stand."""
    return Path(path).with_suffix(".npz")
