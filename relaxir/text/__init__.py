"""The parser of IR text, and files of modules. Printers live with the nodes: `relaxir.ir.printer`, `relaxir.tir.printer`."""

from relaxir.text.archive import save
from relaxir.text.module import load, parse

__all__ = ["load", "parse", "save"]
