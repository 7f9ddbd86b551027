"""relaxir.ops."""
