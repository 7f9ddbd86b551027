"""The parser of IR text, and modules as files; the printers live with the nodes, in `ir` and `tir`."""

from relaxir.text.module import load, parse, save

__all__ = ("load", "parse", "save")
