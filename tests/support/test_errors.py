"""Errors: the block a user sees, the codes and their manual pages."""

import doctest
import pickle

import pytest

from relaxir.support import dtypes, errors, optional, spans
from relaxir.support.errors import (
    ERRORS,
    ArgumentError,
    InferError,
    InternalError,
    LoadError,
    RelaxirError,
    ShapeMismatchError,
    codes,
    explain,
)
from relaxir.support.spans import Span


def test_render() -> None:
    error = ShapeMismatchError(
        "add: axis 0 is `n` on the left and `n + 1` on the right",
        span=Span("model.py", 4, 38, 49, source='    lv0: R.Tensor(("n", 4), "f64") = R.add(x, y)'),
        notes=["left: (n, 4)\nright: (n + 1, 4)"],
        help="use one symbolic variable",
    )
    assert str(error) == (
        "error[shape-mismatch]: add: axis 0 is `n` on the left and `n + 1` on the right\n"
        " --> model.py:4:38\n"
        "   |\n"
        ' 4 |     lv0: R.Tensor(("n", 4), "f64") = R.add(x, y)\n'
        "   |                                      ^^^^^^^^^^^\n"
        "   = note: left: (n, 4)\n"
        "           right: (n + 1, 4)\n"
        "   = help: use one symbolic variable"
    )


def test_parts_that_are_absent_leave_no_line() -> None:
    assert str(InferError("no result")) == "error[infer]: no result"


def test_internal_error_asks_for_a_report() -> None:
    error = InternalError("pass `fuse` returned ill-formed IR", notes=["the module is in ./relaxir-crash-1.rx"])
    assert str(error).splitlines() == [
        "internal error: pass `fuse` returned ill-formed IR",
        "   = note: the module is in ./relaxir-crash-1.rx",
        "   = note: this is a bug in relaxir, please report it",
    ]


def test_parts() -> None:
    span = Span("m.py", 1)
    error = InferError("m", code="arity", span=span, notes=["a", "b"], help="h")
    assert (error.code, error.message, error.span, error.notes, error.help) == ("arity", "m", span, ("a", "b"), "h")


@pytest.mark.parametrize("cls", ERRORS)
def test_every_class_pickles(cls: type[RelaxirError]) -> None:
    # Worker processes send errors to their parent.
    error = cls("message", span=Span("m.py", 1), notes=("note",), help="help")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert vars(copy) == vars(error)


def test_all_subclasses_are_listed() -> None:
    def below(cls: type[RelaxirError]) -> set[type[RelaxirError]]:
        return {c for sub in cls.__subclasses__() for c in {sub, *below(sub)} if c.__module__ == errors.__name__}

    assert set(ERRORS) == below(RelaxirError)


def test_codes_are_unique_and_well_formed() -> None:
    assert len(set(codes())) == len(codes())
    assert all(code == code.lower() and "_" not in code and " " not in code for code in codes())


@pytest.mark.parametrize("code", codes())
def test_explain(code: str) -> None:
    page = explain(code)
    assert page.startswith(f"{code}: ")
    if code != "internal":
        assert "Example::" in page
        assert "Fix:" in page


def test_explain_of_an_unknown_code() -> None:
    with pytest.raises(ArgumentError, match="no error code `nonsense`"):
        explain("nonsense")


def test_optional_loads_what_is_there() -> None:
    assert optional.load("relaxir.support.spans", extra="onnx") is spans


def test_optional_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")

    monkeypatch.setattr(optional, "import_module", missing)
    with pytest.raises(LoadError, match=r'pip install "relaxir\[onnx\]"') as caught:
        optional.load("relaxir.frontends.onnx", extra="onnx")
    assert caught.value.code == "extra-missing"


def test_optional_does_not_hide_a_missing_module_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError):
        optional.load("relaxir.no_such_module", extra="onnx")


@pytest.mark.parametrize("module", [errors, spans, dtypes, optional], ids=lambda m: m.__name__)
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0
