"""Errors of the parser: code, message, place, advice; and nothing but such errors for damaged text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxir.ops import TABLE
from relaxir.support.errors import InferError, LoadError, ParseError, RelaxirError
from relaxir.text import parse
from tests.text.test_round_trip import GRAPH, HOST

GRAPH_HEAD = """@I.module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "f32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 4), "f32"):
        n = R.dim("n")
"""
TENSOR_HEAD = """@I.module
class Module:
    @T.prim_func
    def f(x: T.Buffer(("n", 4), "f32"), y: T.Buffer(("n", 4), "f32")):
        n = T.dim("n")
"""

GRAPH_CASES = [
    # (body; code; phrase; what the caret underlines; phrase of the help)
    ("y = R.exq(x)\nreturn y", "parse-unknown-op", "no operator `R.exq`", "R.exq", "did you mean `R.exp`?"),
    ("y = R.exp(z)\nreturn y", "parse-undefined-name", "no variable `z`", "z", ""),
    (
        "xx = R.exp(x)\ny = R.exp(xxx)\nreturn y",
        "parse-undefined-name",
        "no variable `xxx`",
        "xxx",
        "did you mean `xx`?",
    ),
    ("x = R.exp(x)\nreturn x", "parse-redefined", "`x` is defined twice", "x", "choose another name"),
    (
        'y: R.Tensor((k, 4), "f32") = R.exp(x)\nreturn y',
        "parse-undefined-name",
        "dimension `k` is not declared",
        "k",
        'k = R.dim("k")',
    ),
    (
        'y: R.Tensor((n + 1, 4), "f32") = R.exp(x)\nreturn y',
        "parse-annotation",
        "written as f32[n + 1, 4], but is f32[n, 4]",
        "R.exp(x)",
        "",
    ),
    ('y: R.Tensor((n, 4), "f16") = R.exp(x)\nreturn y', "parse-annotation", "written as f16[n, 4]", "R.exp(x)", ""),
    (
        'm = R.fresh_dim("m")\ny: R.Tensor((m, 4), "f32") = R.exp(x)\nreturn y',
        "parse-annotation",
        "written as f32[m, 4]",
        "R.exp(x)",
        "",
    ),
    (
        'y: R.Tenser((n, 4), "f32") = R.exp(x)\nreturn y',
        "parse-undefined-name",
        "no type `R.Tenser`",
        'R.Tenser((n, 4), "f32")',
        "R.Tensor",
    ),
    (
        'y: R.Tensor((n, 4), "f31") = R.exp(x)\nreturn y',
        "parse-syntax",
        "data type `f31` is not supported",
        '"f31"',
        "float32",
    ),
    ('y: R.Tensor((n / 2, 4), "f32") = R.exp(x)\nreturn y', "parse-syntax", "use // instead of /", "n / 2", ""),
    ("y = R.exp(R.exp(x))\nreturn y", "parse-syntax", "a call inside a call", "R.exp(x)", "bind it to a variable"),
    ("y = R.sum(x, axs=(0,))\nreturn y", "attribute", "sum: no attribute `axs`", "axs=(0,)", "`axes`"),
    ("y = Module.g(x)\nreturn y", "parse-undefined-name", "no function `g`", "Module.g", ""),
    (
        "y = R.call_tir(Module.main, (x,))\nreturn y",
        "parse-syntax",
        "`main` is not a tensor program",
        "Module.main",
        "",
    ),
    ('y = R.const([1, 300], "u8")\nreturn y', "parse-constant", "300 does not fit uint8", "300", ""),
    ('y = R.const([[1], [1, 2]], "u8")\nreturn y', "parse-constant", "ragged list", "[1, 2]", ""),
    (
        'y = R.const("w0", (9,), "f32", sha256="00")\nreturn y',
        "parse-constant",
        "no data for constant `w0`",
        'R.const("w0", (9,), "f32", sha256="00")',
        "pass constants=",
    ),
    (
        "if x:\n    y = x\nelse:\n    y = x\nreturn y",
        "parse-annotation",
        "the condition must be bool[], got f32[n, 4]",
        "x",
        "",
    ),
    (
        "if c:\n    y = x\nelse:\n    z = x\nreturn y",
        "parse-syntax",
        "the branches end with `y` and `z`",
        None,
        "same name",
    ),
    (
        "if c:\n    y = R.exp(x)\n    z = y\nelse:\n    z = x\nreturn y",
        "parse-undefined-name",
        "no variable `y`",
        "y",
        "",
    ),
    (
        'm = R.fresh_dim("m", where="m > n")\ny = R.match_cast(x, R.Tensor((m, 4), "f32"))\nreturn x',
        "parse-annotation",
        "`n < m` never holds",
        '"m > n"',
        "",
    ),
    ('m = R.fresh_dim("m")\nreturn x', "parse-syntax", "no binding follows that defines `m`", None, ""),
    ("y = R.exp(x)", "parse-syntax", "does not end with return", None, ""),
    ("for i in x:\n    pass\nreturn x", "parse-syntax", "For is not a statement of a graph function", None, ""),
    ('R.check(n == q, "runtime-shape", "no")\nreturn x', "parse-undefined-name", "dimension `q`", "q", ""),
    ("y = x[0]\nreturn y", "parse-annotation", "no field 0", "x[0]", ""),
    ('y = R.match_cast(x, R.Tensor((n,), "f32"))\nreturn y', "parse-annotation", "is never f32[n]", None, ""),
    ("return c", "parse-annotation", "declared to give f32[n, 4], but gives bool[]", "return c", ""),
    ("y = lambda: 1\nreturn y", "parse-syntax", "expected a variable", "lambda: 1", ""),
    ("y = (yield)\nreturn y", "parse-syntax", "expected a variable", None, ""),
    ("y = __import__('os').system('true')\nreturn y", "parse-syntax", "expected a call of an operator", None, ""),
]

TENSOR_CASES = [
    ("z[0, 0] = 1.0", "parse-undefined-name", "no buffer `z`", "z", ""),
    ("y[0] = 1.0", "parse-syntax", "buffer `y` has rank 2, got 1 indices", "y[0]", ""),
    ("y[0, 0] = x[0, 0] + 1", "", "", None, ""),  # an int literal is fine beside a float
    (
        'y[0, 0] = T.cast(x[0, 0], "f64")',
        "parse-annotation",
        "expected float32, got float64",
        'T.cast(x[0, 0], "f64")',
        'T.cast(..., "f32")',
    ),
    ('y[0, 0] = T.cast(x[0, 0], "f64") + x[0, 0]', "parse-annotation", "`+` of float64 and float32", None, ""),
    ("y[x[0, 0], 0] = 1.0", "parse-annotation", "expected int64, got float32", "x[0, 0]", ""),
    ("y[i, 0] = 1.0", "parse-undefined-name", "no variable `i`", "i", ""),
    ("for i in T.seriel(n):\n    y[i, 0] = 1.0", "parse-syntax", "expected a loop", "T.seriel(n)", "serial, parallel"),
    ("y[0, 0] = T.exq(x[0, 0])", "parse-undefined-name", "no function `T.exq`", "T.exq", "`T.exp`"),
    ("if 0 < n < 4:\n    y[0, 0] = 1.0", "parse-syntax", "comparisons do not chain", "0 < n < 4", "join them with &"),
    ("if n < 4 and n > 1:\n    y[0, 0] = 1.0", "parse-syntax", "`and`, `or` and `not` are not allowed", None, "use &"),
    ("y[0, 0] -= 1.0", "parse-syntax", "only +=, *=, &= and |= combine", None, ""),
    ('y[0, 0] = T.combine("max", y[0, 1], 1.0)', "parse-syntax", "must name the element", "y[0, 1]", ""),
    ('y[0, 0] = T.combine("avg", y[0, 0], 1.0)', "parse-undefined-name", "no combine `avg`", '"avg"', ""),
    ("a = x[0, 0]", "parse-syntax", "is not assigned an element", None, "T.let"),
    ("T.requir(n > 1)", "parse-undefined-name", "no statement `T.requir`", None, "`T.require`"),
    ("with T.switch(n, 4) as r:\n    pass", "parse-syntax", "expected range(low, high)", "4", ""),
    ('b = T.alloc((4,), "f32", scope="shared")', "parse-undefined-name", "no scope `shared`", '"shared"', ""),
    ("y[0, 0] = 1.0 if n else 2.0", "parse-syntax", "not an expression", "1.0 if n else 2.0", ""),
    ("T.call_kernel(Module.g, (x,))", "parse-undefined-name", "no function `g`", "Module.g", ""),
    ("for y in T.serial(4):\n    pass", "parse-redefined", "`y` is defined twice", "y", ""),
]


def check(head: str, body: str, code: str, phrase: str, under: str | None, advice: str) -> None:
    text = head + "".join(f"        {line}\n" for line in body.split("\n"))
    if not code:
        parse(text, TABLE)
        return
    with pytest.raises((ParseError, InferError)) as caught:
        parse(text, TABLE)
    error = caught.value
    assert error.code == code, error
    assert phrase in error.message
    assert advice in error.help
    assert error.span is not None
    if under is not None:
        assert error.span.source[error.span.column - 1 : error.span.end_column - 1] == under


@pytest.mark.parametrize("case", GRAPH_CASES, ids=lambda c: c[2][:30])
def test_graph_functions(case: tuple[str, str, str, str | None, str]) -> None:
    check(GRAPH_HEAD, *case)


@pytest.mark.parametrize("case", TENSOR_CASES, ids=lambda c: c[2][:30])
def test_tensor_programs(case: tuple[str, str, str, str | None, str]) -> None:
    check(TENSOR_HEAD, *case)


def test_columns_inside_strings() -> None:
    text = GRAPH_HEAD.replace('("n", 4), "f32"), c', '("n * 2 + \u00e9k", 4), "f32"), c') + "        return x\n"
    with pytest.raises(ParseError) as caught:
        parse(text, TABLE, file="model.rx")
    span = caught.value.span
    assert span is not None
    assert span.source[span.column - 1 : span.end_column - 1] == "\u00e9k"
    assert str(caught.value).startswith(
        "error[parse-undefined-name]: dimension `\u00e9k` is not declared\n --> model.rx:4:"
    )
    assert str(caught.value).split("\n")[4].endswith("^^")


def test_columns_count_characters() -> None:
    text = GRAPH_HEAD + "        \u00e4\u00f6 = R.exq(x)\n        return x\n"
    with pytest.raises(ParseError) as caught:
        parse(text, TABLE)
    assert caught.value.span is not None
    assert caught.value.span.column == 14


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("def", "not Python"),
        ("\0", "not Python"),
        ("x = 1", "expected one module"),
        ("", "expected one module"),
        ("@I.module\nclass Module:\n    x = 1", "a module holds functions"),
        ("@I.module\nclass Module:\n    def f(): pass", "needs one decorator"),
        ("@I.module\nclass Module:\n    @R.f\n    def f(): pass", "expected @R.function"),
        ("@I.module\nclass Module:\n    @R.function\n    def f(*x): return x", "parameters are plain names"),
        ("@I.module(a=" + "(" * 500 + ")" * 500 + ")\nclass Module:\n    pass", "nested"),
        ("@I.module(a=" + "-" * 100_000 + "1)\nclass Module:\n    pass", "nested"),
        ("@I.module(a=1" + "+1" * 100_000 + ")\nclass Module:\n    pass", "nested"),
    ],
)
def test_whole_text(text: str, phrase: str) -> None:
    with pytest.raises(ParseError, match=phrase):
        parse(text, TABLE)


def test_other_versions_are_refused() -> None:
    with pytest.raises(LoadError, match="version 9"):
        parse("# relaxir 9\n@I.module\nclass Module:\n    pass", TABLE)


def test_inference_points_at_the_call() -> None:
    with pytest.raises(InferError) as caught:
        parse(GRAPH_HEAD + "        y = R.add(x, c)\n        return y\n", TABLE)
    span = caught.value.span
    assert span is not None
    assert span.source[span.column - 1 : span.end_column - 1] == "R.add(x, c)"


@given(st.sampled_from([GRAPH, HOST]), st.data())
def test_damaged_text_gives_errors_of_ours(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = at + data.draw(st.integers(0, 8))
        filler = data.draw(
            st.sampled_from(["", "x", "0", "(", ")", ",", '"', " ", "R.exp(", "n", "-1", "None", "T.", "[0]", "\n"])
        )
        text = text[:at] + filler + text[end:]
    with contextlib.suppress(RelaxirError):
        parse(text, TABLE)
