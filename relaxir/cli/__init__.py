"""The command line: ``relaxir compile | run | show | check | explain``."""

from relaxir.cli.commands import main

__all__ = ("main",)
