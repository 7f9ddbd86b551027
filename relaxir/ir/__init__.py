"""relaxir.ir."""
