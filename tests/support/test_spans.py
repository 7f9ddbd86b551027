"""Spans: where they point and how they are shown."""

import sys
import timeit
from contextlib import contextmanager
from types import ModuleType

import pytest

from relaxir.support.spans import Span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span("model.py", 4), "model.py:4"),
        (Span("model.py", 4, 46), "model.py:4:46"),
        (Span("model.onnx", 0, note="node `add_1`"), "model.onnx (node `add_1`)"),
        (Span("", 0, note="node `add_1`"), "node `add_1`"),
        (Span("", 0), "<unknown>"),
    ],
)
def test_str(span: Span, text: str) -> None:
    assert str(span) == text


def test_render_puts_the_caret_under_the_columns() -> None:
    span = Span("m.py", 12, 5, 8, source="y = abc + 1\n")
    assert span.render() == " --> m.py:12:5\n    |\n 12 | y = abc + 1\n    |     ^^^"


def test_render_keeps_tabs() -> None:
    assert Span("m.py", 1, 2, 3, source="\ty = 1").render().splitlines()[-1] == "   | \t^"


@pytest.mark.parametrize(("column", "end", "caret"), [(2, 0, " ^"), (2, 99, " ^^"), (0, 0, None), (9, 12, None)])
def test_render_survives_columns_outside_the_line(column: int, end: int, caret: str | None) -> None:
    lines = Span("m.py", 1, column, end, source="abc").render().splitlines()
    assert lines[3:] == ([] if caret is None else ["   | " + caret])


def test_render_without_source_is_one_line() -> None:
    assert Span("no such file.py", 3).render() == " --> no such file.py:3"
    assert Span("model.onnx", 0, note="node `a`").render() == " --> model.onnx (node `a`)"


def test_render_reads_the_file() -> None:
    span = Span.caller()
    assert span is not None
    assert "span = Span.caller()" in span.render()


def inside(code: str) -> ModuleType:
    """Make a module that looks as if it belonged to the package."""
    module = ModuleType("relaxir.sample")
    module.__dict__.update(Span=Span, contextmanager=contextmanager)
    exec(code, module.__dict__)
    return module


def test_caller_skips_frames_of_the_package() -> None:
    module = inside("def outer():\n    return inner()\ndef inner():\n    return Span.caller()\n")
    span = module.outer()
    assert span == Span(__file__, sys._getframe().f_lineno - 1)


def test_caller_skips_context_managers() -> None:
    module = inside("@contextmanager\ndef block():\n    yield Span.caller()\n")
    with module.block() as span:
        assert span.file == __file__


def test_caller_is_none_when_every_frame_is_inside() -> None:
    names = set()
    frame = sys._getframe()
    while frame is not None:
        names.add(frame.f_globals["__name__"].partition(".")[0])
        frame = frame.f_back
    assert Span.caller(skip_packages=tuple(names)) is None


def test_caller_is_cheap() -> None:
    # The budget is 2 us; the limit leaves room for a busy machine.
    assert min(timeit.repeat(Span.caller, number=2000, repeat=5)) / 2000 < 10e-6
