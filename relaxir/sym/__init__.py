"""relaxir.sym."""
