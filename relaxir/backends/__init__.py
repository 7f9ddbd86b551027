"""relaxir.backends."""
