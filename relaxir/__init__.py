"""relaxir."""
