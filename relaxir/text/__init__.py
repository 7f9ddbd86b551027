"""The parser of IR text, and modules as files; the printers live with the nodes, in `ir` and `tir`."""

from relaxir.text.archive import save
from relaxir.text.module import load, parse

__all__ = ["load", "parse", "save"]
