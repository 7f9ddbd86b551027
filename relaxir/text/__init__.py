"""relaxir.text."""
