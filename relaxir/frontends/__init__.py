"""relaxir.frontends."""
