"""The questions that must be proved, refuted, or left open."""

import pytest

from relaxir.sym import Facts, Proof, dim, parse_where

N, M, K = dim("n"), dim("m"), dim("k")
NATURAL = {"n": N, "m": M, "k": K}
POSITIVE = {"n": dim("n", 1), "m": dim("m", 1), "k": dim("k", 1, 2048)}

PROVED = [
    "n*m*k == k*n*m",
    "(n+1)**2 == n**2 + 2*n + 1",
    "(4*n)//4 == n",
    "n//2*2 + n%2 == n",
    "(n+3)//4 == (n-1)//4 + 1",
    "(n//2)//3 == n//6",
    "max(2*n, 2) == 2*max(n, 1)",
    "ceildiv(n, 32)*32 >= n",
    "-(-n//32) == ceildiv(n, 32)",
    "(n+31)//32 == ceildiv(n, 32)",
    "n//2 + (n+1)//2 == n",
    "min(n, m) + max(n, m) == n + m",
    "max(n-1, 0) + 1 == max(n, 1)",
    "min(max(n, 0), m) <= m",
    "broadcast(n, m) == broadcast(m, n)",
    "broadcast(n, broadcast(m, k)) == broadcast(broadcast(k, n), m)",
    "broadcast(n, 7) == 7",
    "(n*m*4)//(m*2) == 2*n",
    "((n+1)*m)//(n+1) == m",
    "n % 8 < 8",
    "n // (m+1) <= n",
    "n % (m+1) <= m",
]
CODEGEN = [
    "n*m == m*n",
    "2*n + n == 3*n",
    "(n*4)//4 == n",
    "(n*m)//m == n",
    "(4*n+8)//4 == n + 2",
    "(4*n+3)//4 == n",
    "(n+3)//4*4 >= n",
    "(n+4)//4 == n//4 + 1",
    "(4*n) % 4 == 0",
    "n % 8 < 8",
    "n % 8 >= 0",
    "(n%8)%8 == n%8",
    "max(n, 1) == n",
    "min(n, n+1) == n",
    "min(n, n*m) == n",
    "n*m >= n",
    "n*m >= n + m - 1",
    "(n+1)*(m+2) == n*m + 2*n + m + 2",
    "2048 - k >= 0",
    "2048*n >= n*k",
    "(n//2)//3 == n//6",
    "max(n, m) >= n",
    "min(n, m) <= m",
    "(n+15)//16*16*m >= n*m",
    "n//16*16 <= n",
    "(2*n+2)//4 == (n+1)//2",
]
OPEN = [
    "max(n, 1) == n",
    "(n//2)*2 == n",
    "n//3 + m//3 == (n+m)//3",
    "n >= 2",
    "n >= m",
    "n*m >= n",
    "broadcast(n, m) == max(n, m)",
]
REFUTED = ["n == n + 1", "2*n == 2*m + 1", "n < n", "n*n == -1", "n % 8 == 8", "max(n, m) < m", "n // 2 > n"]


def ask(text, scope, facts=None):
    (relation,) = parse_where(text, scope)
    return (facts or Facts()).prove(relation)


@pytest.mark.parametrize("text", PROVED)
def test_proves_for_natural_numbers(text):
    assert ask(text, NATURAL) is Proof.PROVED


@pytest.mark.parametrize("text", CODEGEN)
def test_proves_for_positive_numbers(text):
    assert ask(text, POSITIVE) is Proof.PROVED


@pytest.mark.parametrize("text", OPEN)
def test_leaves_open(text):
    assert ask(text, NATURAL) is Proof.UNKNOWN


@pytest.mark.parametrize("text", ["n >= 2", "n >= m", "(n+3)//4 == (n+4)//4"])
def test_leaves_open_for_positive_numbers(text):
    assert ask(text, POSITIVE) is Proof.UNKNOWN


@pytest.mark.parametrize("text", REFUTED)
def test_refutes(text):
    assert ask(text, NATURAL) is Proof.REFUTED


@pytest.mark.parametrize(
    ("where", "question"),
    [
        ("n == 2*m", "n//2 == m"),
        ("n == 2*m", "n % 2 == 0"),
        ("n == 2*m, m >= 3", "n >= 6"),
        ("n % 4 == 0", "n//4*4 == n"),
        ("n % 4 == 0, n >= 1", "n >= 4"),
        ("n % 4 == 1", "n//4*4 + 1 == n"),
        ("(n + 1) % 4 == 0", "(n + 1)//4*4 == n + 1"),
        ("n % 4 == 0, n % 6 == 0", "n % 12 == 0"),
        ("n <= m", "n*k <= m*k"),
        ("n <= m, m <= k", "n <= k"),
        ("2*n <= m", "n <= m"),
        ("n + m == k", "n <= k"),
        ("n <= m, m <= 9", "n*n <= 81"),
        ("n == m, m == k", "n == k"),
        ("n*m == 4*k", "n*m + k == 5*k"),
        ("1 <= n <= 1", "n*m == m"),
        ("1 <= n", "max(n, 1) == n"),
        ("n == 2*m & m % 4 == 0", "n % 8 == 0"),
        ("n < m", "max(n + 1, m) == m"),
        ("n*m % 4 == 0", "n*m // 4 * 4 == n*m"),
    ],
)
def test_uses_relations(where, question):
    facts = Facts(relations=parse_where(where, NATURAL))
    assert ask(question, NATURAL, facts) is Proof.PROVED
