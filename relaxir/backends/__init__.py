"""Code generators: what turns planned modules into running code."""
