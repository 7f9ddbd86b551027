"""relaxir.backends.llvm."""
