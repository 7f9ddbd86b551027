"""The command line: ``relaxir compile | run | bench | show | check | explain``."""

from relaxir.cli.commands import main

__all__ = ("main",)
