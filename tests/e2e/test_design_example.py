"""The example of the README: its text after every pass parses back and evaluates alike, and wrong uses say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.printer import module_arrays
from relaxir.ir.structural import structural_equal
from relaxir.ir.verify import verify_module
from relaxir.passes import PassContext
from relaxir.pipelines import DEFAULT
from relaxir.support.errors import (
    InferError,
    ParseError,
    RelaxirError,
    ShapeMismatchError,
    ShapeUnprovenError,
    VerifyError,
)

TEXT = """
@I.module
class Module:
    @R.function(where="1 <= n, n <= 4096")
    def main(x: R.Tensor(("n", 768), "f32"), w: R.Tensor((768, 3072), "f32"), b: R.Tensor((3072,), "f32")) -> R.Tensor(("n", 3072), "f32"):
        n = R.dim("n")
        with R.dataflow():
            lv0: R.Tensor((n, 3072), "f32") = R.matmul(x, w)
            lv1: R.Tensor((n, 3072), "f32") = R.add(lv0, b)
            gv: R.Tensor((n, 3072), "f32") = R.gelu(lv1)
            R.output(gv)
        return gv
"""


def example() -> rx.IRModule:
    """The same program by the builder."""
    n = rx.dim("n")
    x = rx.Var("x", rx.TensorType((n, 768), "float32"))
    w = rx.Var("w", rx.TensorType((768, 3072), "float32"))
    b = rx.Var("b", rx.TensorType((3072,), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, w, b], where="1 <= n <= 4096"):
        with bb.dataflow():
            h = bb.emit(rx.op.matmul(x, w), "lv0")
            h = bb.emit(rx.op.add(h, b), "lv1")
            y = bb.emit_output(rx.op.gelu(h), "gv")
        bb.emit_func_output(y)
    return bb.get()


def arguments(n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple((rng.standard_normal(s) * 0.05).astype(np.float32) for s in ((n, 768), (768, 3072), (3072,)))


def test_builder_and_text_give_one_module() -> None:
    assert structural_equal(example(), rx.parse(TEXT))


def test_every_stage_prints_parses_verifies_and_evaluates() -> None:
    module, args = example(), arguments(3)
    want = rx.evaluate(module, "main", *args)
    for step in DEFAULT:
        module = step.run(module, PassContext())
        again = rx.parse(str(module), module_arrays(module.functions, module.attrs))
        assert structural_equal(again, module), step.name
        assert not verify_module(again), step.name
        np.testing.assert_allclose(rx.evaluate(again, "main", *args), want, rtol=1e-5, atol=1e-5, err_msg=step.name)


@pytest.mark.parametrize("n", [1, 6, 7])
def test_compiled(n: int) -> None:
    args = arguments(n)
    module = example()
    np.testing.assert_allclose(
        rx.compile(module)["main"](*args), rx.evaluate(module, "main", *args), rtol=1e-5, atol=1e-5
    )


def test_relations_are_checked_when_called() -> None:
    x, w, b = arguments(1)
    with pytest.raises(RelaxirError, match="declared 1 <= n does not hold; n is 0"):
        rx.compile(example())["main"](x[:0], w, b)


N = rx.dim("n", min=2)


def emit(
    *shapes: tuple[object, ...], op: str = "add", dtype: str = "float32", strict: bool = False, **attrs: object
) -> None:
    """One operator on parameters of the given shapes."""
    bb = rx.BlockBuilder(strict=strict)
    params = [rx.Var(f"p{i}", rx.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        bb.emit_func_output(getattr(rx.op, op)(*params, **attrs))


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda: emit((N, 4), (N + 1, 4)), ShapeMismatchError, ("axis 0", "`n`", "`n + 1`")),
        (lambda: emit((N, 4), (5, N), op="matmul"), ShapeMismatchError, ("matmul", "axis 1 of a")),
        (lambda: emit((N, 4), (rx.dim("m"), 4), strict=True), ShapeUnprovenError, ("n", "m")),
        (lambda: emit((N,), (rx.dim("n", min=3),)), InferError, ("two different symbols", "`n`")),
        (lambda: emit((N, 4), op="sum", axes=(2,)), InferError, ("axis 2", "rank 2")),
        (lambda: emit((N, 4), op="reshape", shape=(N, 5)), ShapeMismatchError, ("reshape",)),
        (lambda: emit((N, 4), op="reshape", shape=(rx.dim("k"), 4)), InferError, ("`k` is not defined",)),
        (lambda: emit((N, 4)), InferError, ("add", "expected 2 operands, got 1")),
        (lambda: emit((N,), (N,), wrong=1), InferError, ("no attribute `wrong`",)),
        (lambda: rx.BlockBuilder().emit(rx.op.exp(rx.const(1.0))), VerifyError, ("outside a function",)),
        (lambda: rx.parse(TEXT.replace("R.gelu", "R.gelo")), ParseError, ("gelo", "gelu")),
        (
            lambda: rx.parse(TEXT.replace('(n, 3072), "f32") = R.add', '(n, 3071), "f32") = R.add')),
            ParseError,
            ("3071", "3072"),
        ),
        (lambda: rx.parse(TEXT.replace('n = R.dim("n")', "pass")), ParseError, ("`n`",)),
        (lambda: rx.parse("def f(: pass"), ParseError, ("syntax",)),
    ],
)
def test_wrong_uses(use, error: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        use()
    text = str(caught.value)
    assert all(w in text for w in words), text
    assert text.startswith("error[")
