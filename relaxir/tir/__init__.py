"""relaxir.tir."""
