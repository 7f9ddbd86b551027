"""Loading and calling what was compiled, and the reference interpreter."""
