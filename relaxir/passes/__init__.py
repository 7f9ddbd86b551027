"""relaxir.passes."""
