"""relaxir.runtime."""
