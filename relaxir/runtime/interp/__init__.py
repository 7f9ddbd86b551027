"""The reference interpreter in NumPy: it runs every stage of the IR and says what is right."""

from relaxir.runtime.interp.entry import evaluate
from relaxir.runtime.interp.graph import run_graph
from relaxir.runtime.interp.host import run_host
from relaxir.runtime.interp.program import run_prim_func

__all__ = ("evaluate", "run_graph", "run_host", "run_prim_func")
