"""The reference interpreter in NumPy: it runs every stage of the IR and says what is right."""

from relaxir.runtime.interp.program import run_prim_func

__all__ = ["run_prim_func"]
