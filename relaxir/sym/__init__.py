"""Dimensions, facts about them, and proofs; the only package that imports sympy."""

from relaxir.support.errors import ConflictError, SymError
from relaxir.sym.expr import (
    Dim,
    DimLike,
    add,
    broadcast,
    ceildiv,
    dim,
    floordiv,
    free_dims,
    fresh,
    is_const,
    max_,
    min_,
    mod,
    mul,
    product,
    sub,
    substitute,
    total,
)
from relaxir.sym.facts import BroadcastResult, Facts
from relaxir.sym.fold import broadcasts, conditions, fold
from relaxir.sym.limits import (
    LARGEST,
    SHOWN,
    check_bytes,
    counting_factors,
    exact,
    exact_parts,
    magnitude,
    overflow,
    split_factors,
)
from relaxir.sym.normalize import evaluate, normalize
from relaxir.sym.parser import parse, parse_relation, parse_where
from relaxir.sym.printer import to_text
from relaxir.sym.relation import Proof, Relation
from relaxir.sym.unify import Unification, solve_linear, unify

__all__ = (
    "LARGEST",
    "SHOWN",
    "BroadcastResult",
    "ConflictError",
    "Dim",
    "DimLike",
    "Facts",
    "Proof",
    "Relation",
    "SymError",
    "Unification",
    "add",
    "broadcast",
    "broadcasts",
    "ceildiv",
    "check_bytes",
    "conditions",
    "counting_factors",
    "dim",
    "evaluate",
    "exact",
    "exact_parts",
    "floordiv",
    "fold",
    "free_dims",
    "fresh",
    "is_const",
    "magnitude",
    "max_",
    "min_",
    "mod",
    "mul",
    "normalize",
    "overflow",
    "parse",
    "parse_relation",
    "parse_where",
    "product",
    "solve_linear",
    "split_factors",
    "sub",
    "substitute",
    "to_text",
    "total",
    "unify",
)
