"""relaxir.cost."""
