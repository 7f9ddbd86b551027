"""Layer L0: errors, source spans, data types and optional packages; imports nothing else of relaxir."""
