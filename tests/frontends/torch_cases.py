"""Small torch modules compared with relaxir: shared by the tests of the torch importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import relaxir as rx

torch = pytest.importorskip("torch")


class Wrapped(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        """Call it, with the parts if it wants them."""
        return self.function(self, *args) if self._modules or self._buffers else self.function(*args)


def export(module: Any, args: Sequence[Any], shapes: Any, core: bool = False) -> Any:
    """The exported program, raw or as core ATen."""
    with torch.no_grad():
        program = torch.export.export(module.eval(), tuple(args), dynamic_shapes=shapes, strict=False)
    return program.run_decompositions() if core else program


def leaves(value: Any) -> list[Any]:
    """Tensors of a result, and numbers as tensors."""
    if isinstance(value, tuple | list):
        return [x for v in value for x in leaves(v)]
    return [] if value is None else [value if isinstance(value, torch.Tensor) else torch.tensor(value)]


def array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor as NumPy sees it."""
    return np.asarray(tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor)


def agree(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    """Results must have torch's number, dtypes, shapes and values."""
    results = [np.asarray(r) for r in (got if isinstance(got, tuple | list) else [got])]
    expected = [array(t) for t in leaves(want)]
    assert len(results) == len(expected)
    for place, (r, w) in enumerate(zip(results, expected, strict=True)):
        assert (r.dtype, r.shape) == (w.dtype, w.shape), f"result {place}"
        np.testing.assert_allclose(r, w, rtol=tolerance, atol=tolerance, err_msg=f"result {place}")


def check(
    module: Any,
    bindings: Sequence[Sequence[Any]],
    shapes: Any,
    *,
    cores: Sequence[bool] = (False, True),
    native: bool = False,
) -> None:
    """Import a module exported at the first binding; compare with torch at all of them."""
    if not isinstance(module, torch.nn.Module):
        module = Wrapped(module)
    program = export(module, bindings[0], shapes)
    for core in cores:
        imported = rx.from_torch(program.run_decompositions() if core else program)
        runner = rx.compile(imported, threads=1)["main"] if native else None
        for args in bindings:
            with torch.no_grad():
                want = module(*args)
            arrays = [array(a) for a in args]
            agree(rx.evaluate(imported, "main", *arrays) if runner is None else runner(*arrays), want)
