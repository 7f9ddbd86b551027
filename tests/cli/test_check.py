"""`relaxir check` names the first wrong pass, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir import op
from relaxir.cli.noise import nudged
from relaxir.cli.stages import COMPILED, Comparison
from relaxir.ir import IRModule, TensorType, Var
from relaxir.ir.expr import Bind, Binding, OpCall, const
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.ops import TABLE
from relaxir.passes import Pass, PassContext, Pipeline
from relaxir.pipelines import DEFAULT
from relaxir.runtime.signature import signature_of
from relaxir.sym import dim
from tests.building import dataflow
from tests.cli.conftest import Run
from tests.e2e import models


class _Subtract(Rewriter):
    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        (new,) = super().binding(binding)
        if isinstance(new, Bind) and isinstance(new.value, OpCall) and new.value.op.name == "add":
            return (replace(new, value=replace(new.value, op=TABLE["subtract"])),)
        return (new,)


def subtract(module: IRModule) -> IRModule:
    """Turn additions into subtractions: well-formed and wrong."""
    return map_functions(module, lambda f: _Subtract().function(f))


def drop(module: IRModule) -> IRModule:
    """Lose a tensor program that is still called: ill-formed."""
    return replace(module, functions={n: f for n, f in module.functions.items() if n != "add"})


def fail(module: IRModule) -> IRModule:
    """Refuse."""
    raise rx.RelaxirError("cannot go on")


@dataclass(frozen=True)
class Wrong(Pass):
    """A pass with a fault."""

    name = "Wrong"
    fault: Callable[[IRModule], IRModule] = subtract

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Apply the fault."""
        return self.fault(module)


def with_fault(after: str, fault: Callable[[IRModule], IRModule]) -> Pipeline:
    """The compiler with a wrong pass behind a right one."""
    passes = list(DEFAULT)
    position = [p.name for p in passes].index(after) + 1
    return Pipeline([*passes[:position], Wrong(fault), *passes[position:]])


def compare(pipeline: Pipeline) -> Comparison:
    """A comparison on the perceptron."""
    module = models.mlp()
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)
    return Comparison(module, signature_of("main", module.graph_functions()["main"]), [x], 1e-4, pipeline)


@pytest.mark.parametrize(
    ("after", "fault", "words"),
    [
        ("Decompose", subtract, "output `out0` differs by"),
        ("SimplifyDims", subtract, "output `out0` differs by"),
        ("LegalizeOps", drop, "add"),
        ("Canonicalize", fail, "the pass failed: cannot go on"),
    ],
)
def test_the_wrong_pass_is_found(after: str, fault: Callable[[IRModule], IRModule], words: str) -> None:
    rows = list(compare(with_fault(after, fault)).rows())
    assert all(r.ok for r in rows[:-1])
    assert (rows[-1].name, rows[-1].ok) == ("Wrong", False)
    assert words in rows[-1].problem


def test_bisection_finds_the_same_with_fewer_stages() -> None:
    comparison = compare(with_fault("LegalizeOps", rename_outputs))
    rows = list(comparison.bisect())
    wrong = [r for r in rows if not r.ok]
    assert wrong[-1].name == "Wrong"
    assert len(rows) < len(list(comparison.changes()))


def rename_outputs(module: IRModule) -> IRModule:
    """Replace the tensor program of the addition by that of a subtraction."""
    other = rx.passes.LegalizeOps()(subtract(models.mlp()))
    return replace(module, functions={**module.functions, "add": other.functions["subtract"]})


def test_right_passes_and_wrong_code(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare(DEFAULT)
    assert all(r.ok for r in comparison.rows())
    honest = rx.compile
    monkeypatch.setattr(rx, "compile", lambda module, pipeline: honest(subtract(module), pipeline=pipeline))
    rows = list(comparison.rows())
    assert [(r.name, r.ok) for r in rows if not r.ok] == [(COMPILED, False)]


def test_sensitive_models_are_forgiven_and_faults_are_not() -> None:
    n = rx.dim("n")
    x = rx.Var("x", rx.TensorType((n, 4), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        centred = bb.emit(rx.op.subtract(x, rx.const(np.full(4, 1000, np.float32))))
        bb.emit_func_output(bb.emit(rx.op.multiply(centred, 1e4)))
    module = bb.get()
    comparison = Comparison(
        module, signature_of("main", module.graph_functions()["main"]), [np.full((2, 4), 1000.001, np.float32)], 1e-4
    )
    assert comparison.noise[0] > 0.1
    close = comparison.expected[0] + np.float32(0.5)
    assert comparison.row("close", lambda: (close,)).ok
    assert not comparison.row("far", lambda: (close + 1000,)).ok
    assert not comparison.row("nan", lambda: (close * np.float32("nan"),)).ok


def test_the_command(relaxir: Run, text_model: Path, onnx_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ((), ("--bisect",), ("-s", "batch=7", "--seed", "1")):
        done = relaxir("check", onnx_model, *options)
        assert done.exit_code == 0, done.output
        assert COMPILED in done.stdout
    monkeypatch.setattr(
        "relaxir.cli.commands.Comparison", lambda *args: Comparison(*args, with_fault("DeadCode", subtract))
    )
    for options in ((), ("--bisect",)):
        done = relaxir("check", text_model, *options)
        assert done.exit_code == 1
        assert done.stderr.startswith("internal error: pass `Wrong` is the first wrong one: output `out0` differs by")
        assert "relaxir show" in done.stderr


@pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "INT4"])
def test_formats_held_as_bits(relaxir: Run, tmp_path: Path, kind: str) -> None:
    """Stages give the types of ml_dtypes or the bits of them; both are compared as what they stand for."""
    onnx = pytest.importorskip("onnx")
    element = getattr(onnx.TensorProto, kind)
    x, y = (onnx.helper.make_tensor_value_info(n, element, ["n"]) for n in "xy")
    node = onnx.helper.make_node("Tanh" if kind == "BFLOAT16" else "Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    assert relaxir("check", path).exit_code == 0
    assert relaxir("compile", path, "--check-each", "-o", tmp_path / "model.so").exit_code == 0
    if kind != "INT4":
        results = tmp_path / "results.npy"
        assert relaxir("run", path, "-s", "n=3", "-o", results).exit_code == 0
        assert relaxir("run", path, "-i", results).exit_code == 0


def test_models_of_positions_are_given_all_of_them(relaxir: Run, tmp_path: Path) -> None:
    """Rows after the second matter: with 0 and 1 alone, these are told from each other by nothing."""
    ids = Var("ids", TensorType((dim("n"),), "int32"))
    pixels = Var("pixels", TensorType((dim("n"), 1), "uint8"))
    table = const(np.arange(300, dtype=np.float32).reshape(100, 3))

    def lookup(emit: Callable[..., Var], ids: Var, pixels: Var) -> list[Var]:
        return [emit(op.take(table, ids)), emit(op.astype(pixels, "float32"))]

    path = tmp_path / "lookup.rx"
    dataflow(lookup, ids, pixels).save(path)
    assert relaxir("check", path).exit_code == 0
    relaxir("run", path, "-s", "n=64", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as out:
        rows, values = out.values()
        assert rows.max() > 200
        assert values.max() > 200


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_noise_moves_results_of_every_float_type(dtype: str) -> None:
    x = rx.Var("x", rx.TensorType((4,), dtype))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.tanh(bb.emit(op.relu(x)))))
    module, arrays = bb.get(), [np.zeros(4, dtype)]
    arrays[0][0] = 1
    moved, _ = nudged(module, arrays)
    found, exact = (rx.evaluate(m, "main", *arrays) for m in (moved, module))
    assert found.dtype == exact.dtype
    assert 0 < abs(float(found[0]) - float(exact[0])) < 8 * np.finfo(dtype).eps
