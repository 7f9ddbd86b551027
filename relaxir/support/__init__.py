"""relaxir.support."""
