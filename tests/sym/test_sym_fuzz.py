"""Random expressions and facts against Python's own integers: values are kept and proofs are sound."""

import itertools

import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relaxir.sym import (
    ConflictError,
    Facts,
    Proof,
    SymError,
    dim,
    evaluate,
    normalize,
    parse,
    parse_where,
    to_text,
)

NAMES = "nmk"


class Mismatch(Exception):
    """Two sizes that do not broadcast."""


def broadcast(a, b):
    if a != b and 1 not in (a, b):
        raise Mismatch
    return b if a == 1 else a


ORACLE = {"ceildiv": lambda a, b: -(-a // b), "broadcast": broadcast, "min": min, "max": max}


def value(text, env):
    """Return what Python makes of the text, or None where it has no value."""
    try:
        return eval(text, ORACLE, env)
    except (ZeroDivisionError, Mismatch):
        return None


def binary(inner):
    divisors = st.sampled_from(["2", "3", "4", "8", "-2", "m", "k", "(m + 1)", "(n + 2)"])
    factors = st.sampled_from(["2", "3", "-1", "n", "m", "(k + 1)"])
    return st.one_of(
        st.builds("({}) + ({})".format, inner, inner),
        st.builds("({}) - ({})".format, inner, inner),
        st.builds("({}) * {}".format, inner, factors),
        st.builds("({}) // {}".format, inner, divisors),
        st.builds("({}) % {}".format, inner, divisors),
        st.builds("ceildiv({}, {})".format, inner, divisors),
        st.builds("max({}, {})".format, inner, inner),
        st.builds("min({}, {})".format, inner, inner),
        st.builds("broadcast({}, {})".format, inner, inner),
    )


TEXTS = st.recursive(st.sampled_from([*NAMES, *map(str, range(-3, 13))]), binary, max_leaves=6)
RANGES = st.sampled_from(
    [(0, None, 1), (1, None, 1), (0, None, 4), (1, 64, 1), (-5, 9, 1), (3, None, 2), (2, 2, 1), (-9, None, 1)]
)
WHERE = st.lists(
    st.sampled_from(
        [
            "n == 2*m",
            "n <= m",
            "m < k",
            "n % 4 == 0",
            "n % 3 == 1",
            "(m + 1) % 4 == 0",
            "n + m == k",
            "n*m <= 20",
            "n*m % 4 == 0",
            "k == m*m",
            "2*n == 3*m",
            "n == m",
            "m//2 == k",
            "max(n, m) == k",
            "n == m*k",
            "n >= 3",
            "m <= 9",
            "m % k == 0",
            "n % m == 0",
            "n - m >= 2",
            "k % 6 == 0",
        ]
    ),
    max_size=3,
    unique=True,
)
VALUES = [*range(-9, 14), 16, 24, 31, 64, 100]


def read(text, scope):
    try:
        return parse(text, scope)
    except SymError:  # divides by zero whatever the dimensions are, or two constants that do not broadcast
        assume(False)


def points(ranges, where, count=40):
    """Return valuations that satisfy the ranges and relations."""
    allowed = [
        [v for v in VALUES if v >= low and (high is None or v <= high) and v % step == 0] for low, high, step in ranges
    ]
    result = []
    # walk the box in a scattered but fixed order
    box = list(itertools.product(*allowed))
    for i in range(len(box)):
        env = dict(zip(NAMES, box[i * 7919 % len(box)], strict=True))
        if all(value(text, env) for text in where):
            result.append(env)
            if len(result) == count:
                break
    return result


@settings(max_examples=400, deadline=None, derandomize=True)
@given(TEXTS, TEXTS, st.tuples(RANGES, RANGES, RANGES), WHERE, st.sampled_from([2, 3, 4, 8]))
def test_sound(left, right, ranges, where, k):
    scope = {name: dim(name, *r) for name, r in zip(NAMES, ranges, strict=True)}
    envs = points(ranges, where)
    try:
        facts = Facts(scope.values(), [r for text in where for r in parse_where(text, scope)])
    except ConflictError:
        assert not envs
        return
    a, b = read(left, scope), read(right, scope)
    try:
        simple = facts.simplify(a)
        low, high = facts.bounds(a)
        answers = [facts.prove_equal(a, b), facts.prove_le(a, b), facts.prove_lt(a, b), facts.divides(k, a)]
        assert facts.prove_equal(a, a) is Proof.PROVED
    except SymError as error:  # the facts make a divisor 0 or two sizes unequal
        if "zero" not in str(error) and "broadcast" not in str(error):
            raise
        return
    for env in envs:
        x, y = value(left, env), value(right, env)
        if x is None:
            continue
        assert evaluate(simple, env) == x
        assert (low is None or low <= x) and (high is None or x <= high)
        truths = [None, None, None, x % k == 0] if y is None else [x == y, x <= y, x < y, x % k == 0]
        for answer, truth in zip(answers, truths, strict=True):
            assert truth is None or answer is not (Proof.REFUTED if truth else Proof.PROVED)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(TEXTS)
def test_values_and_text(text):
    scope = {name: dim(name, -9) for name in NAMES}
    expr = read(text, scope)
    printed = to_text(expr)
    assert parse(printed, scope) == expr
    assert to_text(parse(printed, scope)) == printed
    assert normalize(expr) == expr
    for env in points([(-9, None, 1)] * 3, [], 25):
        x = value(text, env)
        if x is not None:
            assert evaluate(expr, env) == x == value(printed, env)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(TEXTS)
def test_equal_polynomials_simplify_alike(text):
    scope = {name: dim(name) for name in NAMES}
    expr = read(text, scope)
    try:
        simple = Facts().simplify(expr)
        shifted = Facts().simplify((expr - 3) * 1 + 3)
    except SymError:
        return
    assert shifted == simple


class Plain:
    """A sympy expression with sympy's own floor and Mod as operators."""

    def __init__(self, expr):
        self.expr = getattr(expr, "expr", sympy.sympify(getattr(expr, "expr", expr)))

    def __add__(self, other):
        return Plain(self.expr + Plain(other).expr)

    def __sub__(self, other):
        return Plain(self.expr - Plain(other).expr)

    def __mul__(self, other):
        return Plain(self.expr * Plain(other).expr)

    def __floordiv__(self, other):
        return Plain(sympy.floor(self.expr / Plain(other).expr))

    def __mod__(self, other):
        return Plain(sympy.Mod(self.expr, Plain(other).expr))

    def __neg__(self):
        return Plain(-self.expr)

    def __rsub__(self, other):
        return Plain(other) - self

    def __rfloordiv__(self, other):
        return Plain(other) // self

    def __rmod__(self, other):
        return Plain(other) % self

    __radd__, __rmul__ = __add__, __mul__


PLAIN = {
    "max": lambda *xs: Plain(sympy.Max(*(Plain(x).expr for x in xs))),
    "min": lambda *xs: Plain(sympy.Min(*(Plain(x).expr for x in xs))),
    "ceildiv": lambda a, b: Plain(sympy.ceiling(Plain(a).expr / Plain(b).expr)),
}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS)
def test_normalize_keeps_sympys_value(text):
    assume("broadcast" not in text)
    try:
        plain = Plain(eval(text, PLAIN, {name: Plain(dim(name)) for name in NAMES})).expr
        light = normalize(plain)
    except (SymError, ZeroDivisionError):  # zoo, nan
        assume(False)
    for n, m, k in [(5, 3, 2), (16, 1, 7), (2, 9, 4)]:
        assert plain.subs({dim("n"): n, dim("m"): m, dim("k"): k}) == evaluate(light, {"n": n, "m": m, "k": k})
