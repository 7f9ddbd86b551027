"""Facts: conflicts, broadcasting, unification and solving."""

from itertools import product

import pytest

from relaxir.sym import (
    ConflictError,
    Facts,
    Proof,
    Relation,
    SymError,
    add,
    broadcast,
    dim,
    evaluate,
    floordiv,
    mod,
    mul,
    parse,
    parse_where,
    solve_linear,
    substitute,
    to_text,
    unify,
)

N, M, K = dim("n"), dim("m"), dim("k", 1)
LENGTH = dim("length")
SCOPE = {"n": N, "m": M, "k": K, "length": LENGTH}


def where(text):
    return parse_where(text, SCOPE)


def test_facts_are_immutable():
    facts = Facts([N])
    more = facts.with_(Relation("<=", 1, N))
    assert facts.prove_le(1, N) is Proof.UNKNOWN and more.prove_le(1, N) is Proof.PROVED
    assert (facts.dims, facts.relations) == ((N,), ()) and len(more.relations) == 1
    assert facts.with_dims(M).dims == (N, M) and facts.with_() is facts
    assert more == Facts([N], where("1 <= n")) and hash(more) == hash(Facts([N], where("1 <= n")))


@pytest.mark.parametrize(
    "text",
    [
        "n < n",
        "n >= 5, n <= 3",
        "2*n == 3",
        "n == m + 1, n == m",
        "n + m <= -1",
        "n % 4 == 5",
        "n <= m, m <= 3, n >= 4",
    ],
)
def test_conflicts(text):
    with pytest.raises(ConflictError):
        Facts(relations=where(text))


def test_with_conflict_names_the_relation():
    with pytest.raises(ConflictError, match="n < 2 cannot hold"):
        Facts(relations=where("n >= 2")).with_(*where("n < 2"))


@pytest.mark.parametrize("text", ["n == m*k, n == m", "n*n == n", "m*k == m", "n == n*m", "max(n, m) == n, m == n*k"])
def test_products_are_not_solved_as_sums(text):
    facts = Facts(relations=where(text))
    for n in range(6):
        for m in range(6):
            for k in range(1, 4):
                env = {"n": n, "m": m, "k": k}
                if all(evaluate(r.left, env) == evaluate(r.right, env) for r in facts.relations):
                    for symbol in (N, M, K):
                        assert evaluate(facts.simplify(symbol), env) == env[symbol.name]


def test_simplify_uses_relations():
    assert Facts(relations=where("n == 2*m")).simplify(N + M) == 3 * M
    assert Facts(relations=where("n <= m")).simplify(parse("max(n, m)", SCOPE)) == M
    assert to_text(Facts(relations=where("n % 4 == 0")).simplify(N + N // 4)) == "n // 4 * 5"
    assert Facts(relations=where("n == 4")).simplify(N // 2) == 2
    assert Facts(relations=where("2 <= n, n <= 2")).simplify(N * M) == 2 * M


def test_bounds_follow_relations():
    assert Facts(relations=where("n <= m, m <= 9")).bounds(N) == (0, 9)
    assert Facts(relations=where("n == 2*m, n <= 9")).bounds(M) == (0, 4)
    assert Facts(relations=where("3 <= n < 10")).bounds(N * 2) == (6, 18)


@pytest.mark.parametrize(
    ("a", "b", "size", "verdict"),
    [
        (N, N, N, Proof.PROVED),
        (N, 1, N, Proof.PROVED),
        (1, N, N, Proof.PROVED),
        (N, M, broadcast(N, M), Proof.UNKNOWN),
        (N, 7, 7, Proof.UNKNOWN),
        (7, N, 7, Proof.UNKNOWN),
        (N, 0, 0, Proof.UNKNOWN),
        (7, 8, 7, Proof.REFUTED),
        (N + 2, N + 3, N + 2, Proof.REFUTED),
        (N + 2, M, N + 2, Proof.UNKNOWN),
        (N + 2, 5, 5, Proof.UNKNOWN),
        (2 * N, N + N, 2 * N, Proof.PROVED),
        (N, N + 1, broadcast(N, N + 1), Proof.UNKNOWN),
        (dim("one", 1, 1), N, N, Proof.PROVED),
    ],
)
def test_broadcast(a, b, size, verdict):
    result = Facts().broadcast(a, b)
    assert (result.dim, result.verdict) == (size, verdict)


def test_broadcast_uses_facts():
    facts = Facts(relations=where("n == 2*m, k == 1"))
    assert facts.broadcast(N, 2 * M).verdict is Proof.PROVED
    assert facts.broadcast(N, K).dim == N


def test_unify_binds_and_solves():
    result = unify([(2 * N, LENGTH), (N, LENGTH // 2), (M + 1, 7), (M * K, 12)], Facts())
    assert result.bindings == {N: LENGTH // 2, M: 6, K: 2}
    assert Relation("==", mod(LENGTH, 2), 0) not in [r for r, _ in result.requirements]  # n was bound directly
    solved = unify([(2 * N, LENGTH)], Facts())
    assert solved.bindings == {N: LENGTH // 2}
    assert (Relation("==", mod(LENGTH, 2), 0), Proof.UNKNOWN) in solved.requirements
    assert solved.verdict is Proof.UNKNOWN
    assert unify([(2 * N, LENGTH)], Facts(relations=where("length % 2 == 0"))).verdict is Proof.PROVED


def test_unify_checks():
    result = unify([(N, 3), (N, 4), (N + M, 7), (4, LENGTH), (M // 2, 2)], Facts())
    assert result.bindings == {N: 3, M: 4}
    assert [p for *_, p in result.checks] == [Proof.REFUTED, Proof.PROVED, Proof.UNKNOWN, Proof.PROVED]
    assert result.verdict is Proof.REFUTED
    unsolved = unify([(N // 2, 8), (N * M, 6)], Facts())
    assert unsolved.bindings == {} and unsolved.verdict is Proof.UNKNOWN


def test_unify_requires_declared_ranges():
    q = dim("q", 1, 64, multiple_of=4)
    result = unify([(q, N)], Facts())
    assert [str(r) for r, _ in result.requirements] == ["1 <= n", "n <= 64", "n % 4 == 0"]
    assert unify([(q, 65)], Facts()).verdict is Proof.REFUTED
    assert unify([(2 * q, 16)], Facts()).verdict is Proof.PROVED
    assert unify([(2 * q, 12)], Facts()).verdict is Proof.REFUTED  # 6 is no multiple of 4
    assert unify([(q, q)], Facts()).verdict is Proof.PROVED


def test_unify_keeps_scopes_apart():
    # the caller's n and m are other dimensions than the callee's
    result = unify([(N, M), (2 * M, 2 * N), (N + M, N + M)], Facts())
    assert result.bindings == {N: M, M: N}
    assert result.verdict is Proof.PROVED


@pytest.mark.parametrize(
    ("expr", "solution", "needs"),
    [
        (2 * N + 1, "(length - 1) // 2", ["(length - 1) % 2 == 0"]),
        (N, "length", []),
        (N + M, "length - m", []),
        (3 - N, "3 - length", []),
        (-4 * N, "-length // 4", ["-length % 4 == 0"]),
        (N * K, "length // k", ["length % k == 0"]),
        (N * K + M, "(length - m) // k", ["(length - m) % k == 0"]),
    ],
)
def test_solve_linear(expr, solution, needs):
    solved = solve_linear(expr, N, LENGTH)
    assert solved is not None
    assert solved[0] == parse(solution, SCOPE) and [str(r) for r in solved[1]] == needs
    for n in range(5):
        env = {"m": 2, "k": 3, "n": n}
        env["length"] = evaluate(expr, env)
        assert evaluate(solved[0], env) == n
        assert evaluate(substitute(expr, {N: solved[0]}), env) == env["length"]


@pytest.mark.parametrize(
    "expr", [N // 2, N * M, N * N, N % 4, M, N + N // 2, (N + 1) * (N + 2), parse("max(n, 4)", SCOPE)]
)
def test_not_solved(expr):
    assert solve_linear(expr, N, LENGTH) is None


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("broadcast(n, m) == n", "broadcast(m, n) * 3 + m", "n * 3 + m"),
        ("broadcast(n, m) * 8 == m * 8", "broadcast(n, m) + length", "length + m"),
        ("broadcast(n, m) == m", "broadcast(broadcast(n, m), length)", "broadcast(length, m)"),
        ("length == broadcast(n, m), length == n", "broadcast(n, m)", "n"),
        ("2*broadcast(n, m) == n", "broadcast(n, m)", "broadcast(m, n)"),
    ],
)
def test_an_equality_gives_the_size_of_a_broadcast(text, before, after):
    facts = Facts(relations=where(text))
    assert facts.simplify(parse(before, SCOPE)) == facts.simplify(parse(after, SCOPE))
    assert to_text(facts.simplify(parse(before, SCOPE))) == to_text(parse(after, SCOPE))


@pytest.mark.parametrize(
    "text",
    ["broadcast(n, m) == n", "2*broadcast(n, m) == m + k", "broadcast(n, m) == broadcast(n, k)",
     "broadcast(broadcast(n, m), k) == k", "broadcast(n, m) == n, broadcast(m, k) == m",
     "broadcast(n, m) * k - broadcast(n, m) == n * k - n", "broadcast(n, m) * k - broadcast(n, m) == m * k - m",
     "broadcast(n, m) * broadcast(n, k) - broadcast(n, m) == m"],
)  # fmt: skip
def test_sizes_of_broadcasts_keep_their_values(text):
    relations = where(text)
    facts = Facts(relations=relations)
    forms = [parse(e, SCOPE) for e in ("broadcast(n, m)", "broadcast(n, m) * k - n", "max(broadcast(m, n), k)",
                                       "broadcast(broadcast(n, m), k)")]  # fmt: skip
    seen = 0
    for values in product(range(4), range(4), range(1, 4)):
        at = dict(zip("nmk", values, strict=True))
        try:
            if not all(evaluate(r.left, at) == evaluate(r.right, at) for r in relations):
                continue
            want = [evaluate(e, at) for e in forms]
        except SymError:  # the sizes do not broadcast
            continue
        seen += 1
        assert [evaluate(facts.simplify(e), at) for e in forms] == want
    assert seen > 3


def test_definitions_meet_step_by_step():
    """A chain whose last step is not found once every name is rewritten to what it stands for."""
    a, b = dim("a"), dim("b")
    first, second = N + 1 - (N + 1) // 2, a - a // 2
    last = b // 3
    named = Facts([N]).with_definition(a, first).with_definition(b, second)
    third = dim("c")
    facts = named.with_definition(third, last)
    assert facts.prove_equal(third, last) is Proof.PROVED
    assert facts.prove_equal(third + 1, last) is Proof.REFUTED
    assert facts.prove_equal(third, N) is Proof.UNKNOWN
    assert facts.prove_equal(substitute(last, {b: second}), third) is Proof.PROVED
    assert named.prove_equal(third, last) is Proof.UNKNOWN
    equal = Facts(relations=[Relation("==", first, a), Relation("==", second, b), Relation("==", last, third)])
    assert equal.prove_equal(third, last) is Proof.UNKNOWN  # why names are not rewritten


def test_definitions_answer_every_question():
    name = dim("name")
    facts = Facts([N]).with_definition(name, 2 * N + 4)
    assert facts.prove_le(4, name) is Proof.PROVED and facts.bounds(name) == (4, None)
    assert facts.prove_lt(name, 2 * N) is Proof.REFUTED
    assert facts.divides(2, name) is Proof.PROVED
    assert facts.broadcast(name, 2 * N + 4).verdict is Proof.PROVED
    assert facts.with_dims(M).prove_equal(name, 2 * N + 4) is Proof.PROVED
    assert facts.with_(Relation("<=", 1, N)).prove_le(6, name) is Proof.PROVED
    assert facts != Facts([N, name], facts.relations)


def test_the_range_of_a_name_holds_for_its_formula():
    facts = Facts([N]).with_definition(dim("name", min=2, max=10, multiple_of=4), 2 * N)
    assert facts.prove_le(2 * N, 10) is Proof.PROVED and facts.bounds(N) == (2, 4)
    assert facts.divides(2, N) is Proof.PROVED
    with pytest.raises(ConflictError, match="n <= 3 cannot hold"):
        Facts(relations=where("n >= 5")).with_definition(dim("name", max=3), N)


def test_names_that_are_defined_in_a_circle_end():
    a, b = dim("a"), dim("b")
    facts = Facts([N]).with_definition(a, b + N).with_definition(b, a + N).with_definition(a, a + b)
    assert facts.prove_equal(a, b + M) is Proof.UNKNOWN


def test_join_is_at_least_both() -> None:
    n, m, z = dim("n", min=1), dim("m", min=0), dim("z", min=-3)
    facts = Facts((n, m, z))
    a, b = add(mul(3, n), mul(-2, m)), add(n, mul(5, floordiv(n, 4)))
    joined = facts.join(a, b)
    assert joined == add(mul(3, n), mul(5, floordiv(n, 4)))
    assert facts.join(a, add(z, 1)) is None
