"""The one way to reach a module at its first use only: one that needs an optional or a large package."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from relaxir.support.errors import LoadError


def load(module: str, extra: str = "") -> ModuleType:
    """Import a module of relaxir whose third-party imports belong to an extra, or take much memory (no ``extra``).

    Raises LoadError (``extra-missing``) with the command to run when one of them is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == module.partition(".")[0]:
            raise  # a module of ours is missing: a bug, or a typing mistake in the caller
        wanted = f'"relaxir[{extra}]"' if extra else package
        raise LoadError(
            f"this needs the package `{package}`, which is not installed",
            code="extra-missing",
            notes=[f"for {module}"],
            help=f"run `pip install {wanted}`",
        ) from error
