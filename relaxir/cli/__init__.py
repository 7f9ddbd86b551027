"""The command line: ``relaxir compile | run | show | check | explain``."""

from relaxir.cli.main import main

__all__ = ("main",)
