"""Dimensions, facts about them, and proofs; the only package that imports sympy."""
