"""Each rule of the canonical layer, by brute force with floor semantics over -8..40."""

import itertools

import pytest

from relaxir.sym import Facts, Proof, dim, evaluate, parse, parse_where

ANY = {"n": dim("n", -8), "m": dim("m", -8)}

RULES = [
    "(n*3 + m) // 3 == n + m // 3",
    "(6*n + 4*m + 3) // 2 == 3*n + 2*m + 1",
    "(6*n + 5) // 4 == (3*n + 2) // 2",
    "(n // 2 + m) // 3 == (n + 2*m) // 6",
    "(n // 4 + 1) // 2 == (n + 4) // 8",
    "-(-n // 3) == (n + 2) // 3",
    "-((2 - n) // 3) == n // 3",
    "n // -3 == -n // 3",
    "n % 5 == n - n // 5 * 5",
    "n % -5 == n - n // -5 * -5",
    "(n + 7) % 5 == (n + 2) % 5",
    "(n % 6 + 6) // 6 == 1",
    "(n % 8) % 4 == n % 4",
    "n % 8 // 8 == 0",
    "ceildiv(n, 4) == (n + 3) // 4",
    "ceildiv(n, -4) == -(n // 4)",
    "min(n, m) == n + m - max(n, m)",
    "max(n + 2, m + 2) == max(n, m) + 2",
    "max(3*n, 3*m) == 3*max(n, m)",
    "max(n, max(m, 3)) == max(max(3, n), m)",
    "max(n, n + 1) == n + 1",
    "min(n, n - 2, m) == min(n - 2, m)",
    "2*max(n, m) + max(2*n, 2*m) == 4*max(n, m)",
    "max(2*max(n, m) + 1, 5) == max(2*n + 1, 2*m + 1, 5)",
    "(n*m + m) // m == n + 1",
    "(n*m*2) // (4*m) == n // 2",
    "(n*(n + 2)) // (n + 2) == n",
    "(n + m) // (n + m) == 1",
    "n // 2 + (n + 1) // 2 == n",
    "n <= n // 3 * 3 + 2",
    "n // 3 * 3 <= n",
    "n % 7 <= 6",
    "0 <= n * n",
    "max(n, m) >= m",
    "min(n, m) <= m",
    "n + m <= 2*max(n, m)",
    "n // 2 - 1 < ceildiv(n, 2)",
]


def holds(text, env):
    (relation,) = parse_where(text, ANY)
    try:
        left, right = evaluate(relation.left, env), evaluate(relation.right, env)
    except ValueError:
        return True
    return {"==": left == right, "<=": left <= right, "<": left < right}[relation.op]


@pytest.mark.parametrize("text", RULES)
def test_rule(text):
    (relation,) = parse_where(text, ANY)
    assert Facts().prove(relation) is Proof.PROVED
    for n, m in itertools.product(range(-8, 41), range(-8, 41, 3)):
        assert holds(text, {"n": n, "m": m})


@pytest.mark.parametrize(
    "text",
    [
        "n // 2",
        "n % 3",
        "-n // 4",
        "n % -3",
        "max(n, 3)",
        "min(n, m)",
        "(n - 1) // 2 + 1",
        "n // (m + 9)",
        "n % (m + 9)",
        "ceildiv(n, 5) * 5",
        "min(max(n, 0), m)",
        "n * n - m",
        "-(n // 2) * 4",
        "max(n, m) % 3",
        "(n * m) // 6",
    ],
)
def test_simplify_keeps_values(text):
    expr = parse(text, ANY)
    simple = Facts().simplify(expr)
    low, high = Facts().bounds(expr)
    for n, m in itertools.product(range(-8, 41), range(-8, 41, 3)):
        env = {"n": n, "m": m}
        expected = eval(text, {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}, env)
        assert evaluate(expr, env) == evaluate(simple, env) == expected
        assert (low is None or low <= expected) and (high is None or expected <= high)


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("(n + 9) % 8", "(n + 1) % 8"),
        ("-(-n // 3)", "(n + 2) // 3"),
        ("n - n // 2", "(n + 1) // 2"),
        ("n - n // 3 * 3", "n % 3"),
        ("min(m, 4, n)", "min(m, n, 4)"),
        ("min(max(n, 0), m)", "min(max(n, 0), m)"),
        ("n // 2 // 3", "n // 6"),
        ("(2*n + 3) // 2 - 1", "n"),
        ("(n + 2 - 3) // 2 + 1", "(n + 1) // 2"),
        ("n * 4 + m", "n * 4 + m"),
    ],
)
def test_simplify_is_short(text, simple):
    assert Facts().simplify(parse(text, ANY)) == parse(simple, ANY)


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("q % 8", (0, 7)),
        ("min(q, 4)", (0, 4)),
        ("q // 4", (0, 5)),
        ("20 - q", (0, 20)),
        ("max(q, 3)", (3, 20)),
        ("q * q - 1", (-1, 399)),
        ("7", (7, 7)),
        ("n // 2", (-4, None)),
        ("broadcast(q, n)", (-8, None)),
    ],
)
def test_bounds(text, bounds):
    scope = {**ANY, "q": dim("q", 0, 20)}
    assert Facts().bounds(parse(text, scope)) == bounds


def test_multiple_of():
    q = dim("q", 1, 100, multiple_of=4)
    facts = Facts([q])
    assert facts.prove_equal(q // 4 * 4, q) is Proof.PROVED
    assert facts.divides(4, q) is Proof.PROVED
    assert facts.divides(2, 3 * q) is Proof.PROVED
    assert facts.divides(8, q) is Proof.UNKNOWN
    assert facts.divides(4, q + 1) is Proof.REFUTED
    assert facts.prove_le(4, q) is Proof.PROVED
    assert facts.prove_equal(q, 6) is Proof.REFUTED
    assert str(facts.simplify(q + q // 8)) == str(q + q // 8)
