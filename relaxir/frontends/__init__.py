"""Readers of other model formats; each needs an optional package."""
