"""relaxir.schedule."""
