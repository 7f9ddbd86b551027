"""relaxir: a compiler for machine-learning programs with dynamic shapes."""
