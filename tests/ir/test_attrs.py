"""Values of attributes: what an annotation says is refused or made plain, for every operator, however it is called."""

from __future__ import annotations

from dataclasses import fields, replace
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import Op
from relaxir.ir.attrs import WRONG, kinds
from relaxir.ops import OPS
from relaxir.ops.namespace import make_call
from relaxir.support.errors import InferError

X = rx.Var("x", rx.TensorType((rx.dim("n"), 4), "float32"))
BAD: tuple[Any, ...] = (None, True, 3, 1.5, "so", (), (1.5,), ("so",), (None,), ((1,),), b"x", {}, object(), X, [X])
"""Values of many kinds: whatever an annotation says, some of them are wrong."""


CASES = [pytest.param(o, f.name, id=f"{o.name}-{f.name}") for o in OPS for f in fields(o.Attrs)]


@pytest.mark.parametrize(("op", "name"), CASES)
def test_values_of_the_wrong_kind(op: Op[Any], name: str) -> None:
    """Each is refused where the call is written, naming operator, attribute and both sides."""
    record: Any = op.Attrs
    kind = dict(kinds(record))[name]
    wrong = [v for v in BAD if kind.read(v) is WRONG]
    assert len(wrong) >= 5
    right = next(e.attrs for e in op.examples if isinstance(e.attrs, op.Attrs))
    given = {f.name: getattr(right, f.name) for f in fields(right)}
    operands = (X,) * len(op.params)
    for value in wrong:
        with pytest.raises(InferError) as caught:
            make_call(op, operands, {**given, name: value}, None)
        error = caught.value
        assert error.code == "attribute"
        assert error.message.startswith(f"{op.name}: attribute `{name}` must be {kind.words}, got ")
        assert error.help


@pytest.mark.parametrize(
    ("name", "given", "held"),
    [
        ("sum", {"axes": -1, "keepdims": 1}, {"axes": (-1,), "keepdims": True}),
        ("sum", {"axes": [np.int64(0), 1]}, {"axes": (0, 1)}),
        ("astype", {"dtype": np.float16}, {"dtype": "float16"}),
        ("astype", {"dtype": "f64"}, {"dtype": "float64"}),
        ("clip", {"min": np.float32(0.5)}, {"min": 0.5, "max": None}),
        ("reshape", {"shape": (np.int32(2), rx.dim("n") * 2)}, {"shape": (2, 2 * rx.dim("n"))}),
        ("pad", {"pads": [[0, 1], [1, 0]]}, {"pads": ((0, 1), (1, 0))}),
    ],
)
def test_plain_form(name: str, given: dict[str, object], held: dict[str, object]) -> None:
    """Lists, single values and numbers of NumPy stand for tuples and Python's own numbers."""
    attrs = getattr(rx.op, name)(X, **given).attrs
    for field, value in held.items():
        assert getattr(attrs, field) == value
        assert type(getattr(attrs, field)) is type(value)


@pytest.mark.parametrize(
    ("call", "message", "help_text"),
    [
        (lambda: rx.op.sum(X, axes=(1.0,)), "a tuple of integers or None, got (1.0,)", "write axes=(1,)"),
        (lambda: rx.op.softmax(X, axis=1.0), "an integer, got 1.0", "write axis=1"),
        (lambda: rx.op.sum(X, axes=(X,)), "got (a Var,)", "give a tuple of integers"),
        (lambda: rx.op.gelu(X, "tanhh"), "'none' or 'tanh', got 'tanhh'", "did you mean 'tanh'?"),
        (lambda: rx.op.astype(X, "complex64"), "a data type, got 'complex64'", "float32"),
        (lambda: rx.op.sum(X, axs=(1,)), "no attribute `axs`", "did you mean `axes`?"),
        (lambda: rx.op.reshape(X), "attribute `shape` is missing", "a tuple of dimensions"),
    ],
)
def test_messages(call: Any, message: str, help_text: str) -> None:
    with pytest.raises(InferError) as caught:
        call()
    assert message in caught.value.message
    assert help_text in caught.value.help
    assert caught.value.span is not None


def test_text_says_the_same() -> None:
    text = """
    @I.module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 4), "f32")):
            y = R.sum(x, axes=(1.5,))
            return y
    """
    with pytest.raises(InferError, match="sum: attribute `axes` must be a tuple of integers or None") as caught:
        rx.parse(dedent(text))
    assert caught.value.span is not None
    assert caught.value.span.line == 6


def test_impossible_sizes_name_the_call() -> None:
    """A result of a size that no tensor has is the fault of the call, in the builder and in text."""
    bb = rx.BlockBuilder()
    with pytest.raises(InferError, match=r"zeros: .*does not fit 64 bits"), bb.function("main", [X]):
        bb.emit(rx.op.zeros((1 << 40, 1 << 40)))


def test_records_are_checked_however_they_are_made() -> None:
    """Passes replace fields of records: the same rules hold."""
    attrs = rx.op.softmax(X).attrs
    with pytest.raises(InferError, match="attribute `axis` must be an integer, got 'so'"):
        replace(attrs, axis="so")  # type: ignore[call-arg]  # any record of attributes


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("softmax", {"axis": 1 << 64}),
        ("sum", {"axes": (0, -(1 << 63) - 1)}),
        ("reshape", {"shape": (1 << 63,)}),
        ("clip", {"min": 10**400}),
        ("leaky_relu", {"alpha": -(10**400)}),
    ],
)
def test_numbers_beyond_all_machines(name: str, given: dict[str, object]) -> None:
    with pytest.raises(InferError, match=f"{name}: attribute `{next(iter(given))}` must be .* more than 64 bits"):
        getattr(rx.op, name)(X, **given)
