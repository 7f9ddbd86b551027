"""Programs of torch: signatures, symbols, guards, control flow, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import TABLE
from relaxir.support.errors import LoadError, RelaxirError, UnsupportedError
from relaxir.sym import to_text
from tests.frontends.torch_cases import Wrapped, agree, check, export, torch

AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself
Dim = torch.export.Dim


def test_names_and_outputs() -> None:
    """Inputs keep their names, outputs their order; None and nested results are flattened."""

    class Model(torch.nn.Module):
        def forward(self, first: Any, second: Any = None, scale: float = 2.0) -> Any:
            return {"a": first * scale, "b": (first, None, first.shape[0])}

    module = rx.from_torch(export(Model(), (torch.ones(3, 2),), {"first": {0: AUTO}}))
    main = module.graph_functions()["main"]
    assert [p.name for p in main.params] == ["first"]
    doubled, same, size = rx.evaluate(module, "main", np.ones((5, 2), np.float32))
    assert doubled.sum() == 20 and same.sum() == 10 and size == 5


def test_weights_are_shared() -> None:
    """Tied weights are one constant."""
    embed = torch.nn.Embedding(7, 4)
    model = Wrapped(lambda m, i: m.embed(i) @ m.embed.weight.t(), embed=embed)
    check(model, [(torch.arange(n) % 7,) for n in (3, 1, 9)], {"args": ({0: AUTO},)})


def test_buffer_mutation_is_an_output() -> None:
    """New values of buffers come first; writes through views are expressed by values."""

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.total.add_(x.sum(0))
            y = torch.zeros(x.shape[0], 3)
            y[:, 1] = x[:, 0]
            return y + self.total

    module = rx.from_torch(export(Counter(), (torch.ones(4, 3),), {"x": {0: AUTO}}))
    main = module.graph_functions()["main"]
    assert main.attrs["mutations"] == ("total", "")
    for n in (1, 2, 5):
        x = torch.rand(n, 3)
        total, y = rx.evaluate(module, "main", x.numpy())
        counter = Counter()
        agree((total, y), (x.sum(0), counter(x)))


def test_writes_into_own_tensors() -> None:
    """In-place operators on fresh tensors, also through their results."""

    def run(x: Any) -> Any:
        y = x * 2
        z = y.add_(1).mul_(3)
        return y, z.relu_(), torch.zeros_like(x).masked_fill_(x > 0, 5.0)

    check(run, [(torch.randn(n, 2),) for n in (3, 1, 0)], {"args": ({0: AUTO},)})


# ---- symbols -------------------------------------------------------------------------------------------------------


def shapes_of(program: Any) -> list[str]:
    """Shapes of the parameters as text."""
    main = rx.from_torch(program).graph_functions()["main"]
    return [", ".join(map(to_text, p.type.shape)) for p in main.params]


def test_default_bounds_are_dropped() -> None:
    """Torch's bound of 2 is no restriction; given bounds are kept."""
    program = export(
        Wrapped(lambda x, y: x.sum() + y.sum()),
        (torch.ones(3, 4), torch.ones(5)),
        {"args": ({0: AUTO, 1: Dim("m", min=3, max=9)}, {0: AUTO})},
    )
    module = rx.from_torch(program)
    n, m = module.graph_functions()["main"].params[0].type.shape
    assert (n.min, n.max, m.min, m.max) == (0, None, 3, 9)
    assert rx.evaluate(module, "main", np.ones((1, 3), np.float32), np.ones(0, np.float32)) == 3
    with pytest.raises(RelaxirError):
        rx.evaluate(module, "main", np.ones((1, 2), np.float32), np.ones(0, np.float32))


def test_derived_dimensions() -> None:
    """Multiples stay formulas of one symbol."""
    program = export(Wrapped(lambda x: x.view(-1, 4)), (torch.ones(8),), {"args": ({0: 4 * Dim("k", min=1, max=50)},)})
    assert shapes_of(program)[0].endswith(" * 4")


def test_bounds_that_follow_from_others_are_relaxed() -> None:
    """The length of a mask is the sum of two others: its bound of 4 only follows from their bounds of 2."""

    def run(past: Any, new: Any, mask: Any) -> Any:
        return torch.cat([past, new], 0) * mask

    cases = [(torch.rand(p, 2), torch.rand(n, 2), torch.rand(p + n, 1)) for p, n in ((3, 4), (1, 1), (0, 1))]
    check(run, cases, {"args": ({0: AUTO}, {0: AUTO}, {0: AUTO})})


def test_guards_become_relations() -> None:
    """A branch taken on sizes while tracing is checked at run time."""

    def run(x: Any, y: Any) -> Any:
        return x.sum() + 1 if x.shape[0] < y.shape[0] else y.sum()

    module = rx.from_torch(export(Wrapped(run), (torch.ones(3), torch.ones(5)), {"args": ({0: AUTO}, {0: AUTO})}))
    assert rx.evaluate(module, "main", np.ones(1, np.float32), np.ones(2, np.float32)) == 2
    with pytest.raises(RelaxirError):
        rx.evaluate(module, "main", np.ones(4, np.float32), np.ones(4, np.float32))


def test_size_arithmetic() -> None:
    """Integer arithmetic of sizes is evaluated on dimensions."""

    def run(x: Any) -> Any:
        n = x.shape[0]
        half = n // 2
        return (
            x[:half],
            x[half:],
            x.new_zeros(n % 3 + 1),
            torch.full((max(n, 3),), n),
            x[: torch.sym_min(n, 2)],
            n * n - 1,
        )

    check(run, [(torch.rand(n, 2),) for n in (6, 1, 7)], {"args": ({0: AUTO},)}, cores=(False,))


def test_integer_inputs() -> None:
    """An integer argument becomes a scalar tensor that sizes may depend on."""
    program = export(Wrapped(lambda x, n: (x + n, x.new_zeros(n))), (torch.ones(3), 5), {"args": ({0: AUTO}, AUTO)})
    module = rx.from_torch(program)
    for n in (1, 3, 8):
        total, zeros = rx.evaluate(module, "main", np.ones(2, np.float32), np.int64(n))
        assert total.tolist() == [n + 1] * 2 and zeros.shape == (n,)


def test_data_dependent_sizes() -> None:
    """Sizes from nonzero and item; asserts on them are checks."""

    def run(x: Any, k: Any) -> Any:
        size = k.item()
        torch._check(size >= 1)
        torch._check(size <= 100)
        return torch.nonzero(x > 0), torch.arange(size), x[x > 0]

    def binding(n: int, k: int) -> Any:
        return torch.linspace(-1, 1, n) if n > 1 else torch.ones(1), torch.tensor(k)

    check(run, [binding(5, 3), binding(1, 1), binding(8, 20)], {"args": ({0: AUTO}, None)}, cores=(False,), native=True)
    module = rx.from_torch(export(Wrapped(run), binding(5, 3), {"args": ({0: AUTO}, None)}))
    with pytest.raises(RelaxirError):
        rx.evaluate(module, "main", np.ones(3, np.float32), np.int64(0))


# ---- control flow --------------------------------------------------------------------------------------------------


def test_cond() -> None:
    """Both branches, with captured weights."""
    layer = torch.nn.Linear(3, 3)

    def run(m: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda t: torch.relu(m.layer(t)), lambda t: t - 1, (x,))

    cases = [(torch.ones(4, 3),), (-torch.ones(1, 3),), (torch.ones(2, 3),)]
    check(Wrapped(run, layer=layer), cases, {"args": ({0: AUTO},)}, native=True)


def test_while_loop() -> None:
    """A carried tensor and a counter."""
    from torch._higher_order_ops.while_loop import while_loop  # torch may be missing

    def run(x: Any) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2 + i), (torch.tensor(0), x))

    check(run, [(torch.rand(n, 2),) for n in (3, 1, 5)], {"args": ({0: AUTO},)}, cores=(False,))


def test_scan() -> None:
    """A running state over a dynamic axis."""
    from torch._higher_order_ops.scan import scan  # torch may be missing

    def run(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            total = carry + row
            return total, total * 2

        return scan(step, torch.zeros(2), x, dim=0)

    check(run, [(torch.rand(n, 2),) for n in (3, 1, 5)], {"args": ({0: AUTO},)}, cores=(False,))


def test_no_grad_blocks_are_inlined() -> None:
    """A part without gradients is part of the program."""

    def run(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + x

    program = torch.export.export(Wrapped(run), (torch.ones(3),), dynamic_shapes={"args": ({0: AUTO},)})
    assert rx.evaluate(rx.from_torch(program), "main", np.ones(1, np.float32)).tolist() == [3.0]


@pytest.mark.skipif("lstm" not in TABLE, reason="no recurrent operators")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind: str) -> None:
    """Two layers in both directions, batch first or not."""
    for first in (True, False):
        torch.manual_seed(0)
        layer = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=first)
        cases = [(torch.rand(n, 5, 3) if first else torch.rand(5, n, 3),) for n in (2, 1, 6)]
        check(layer, cases, ({0 if first else 1: AUTO}, None)[:1], cores=(False,))


@pytest.mark.parametrize("single", [False, True])
def test_projected_recurrent_layer(single: bool) -> None:
    """An LSTM whose hidden states are projected, two layers in both directions."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2, bias=single)
    cases = [(torch.rand(5, 3),)] if single else [(torch.rand(5, n, 3),) for n in (2, 1, 6)]
    check(layer, cases, None if single else ({1: AUTO},), cores=(False,))


# ---- errors --------------------------------------------------------------------------------------------------------


def test_other_objects() -> None:
    """Only exported programs can be imported."""
    with pytest.raises(LoadError, match="expected an ExportedProgram"):
        rx.from_torch(torch.nn.Linear(2, 2))


def test_all_unsupported_operators_are_reported() -> None:
    """One error names every operator with its line."""

    class Special(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.special.i1(x)
            return y + torch.special.bessel_j0(x) + torch.special.i1(x * 2)

    with pytest.raises(UnsupportedError) as caught:
        rx.from_torch(export(Special(), (torch.rand(3, 3),), None))
    text = str(caught.value)
    assert "aten.special_i1.default" in text and "(2 nodes)" in text and "aten.special_bessel_j0" in text
    assert "test_torch.py" in text and "torch.special.i1(x)" in text


def test_operators_without_converter_are_decomposed() -> None:
    """Composite operators that only torch knows become simpler ones."""
    check(
        lambda x: torch.nn.functional.huber_loss(x, x * 2),
        [(torch.rand(n, 2),) for n in (3, 1, 5)],
        {"args": ({0: AUTO},)},
        cores=(False,),
    )


def test_native() -> None:
    """Compiled code agrees too."""
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    check(
        model,
        [(torch.rand(b, t, 8),) for b, t in ((2, 3), (1, 1), (3, 6))],
        ({0: AUTO, 1: AUTO},),
        cores=(False,),
        native=True,
    )
