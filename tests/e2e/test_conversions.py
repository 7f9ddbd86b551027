"""Conversions of floats to integers saturate and turn NaN into 0, in vectors as in single elements."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op

EDGES = (
    0.0,
    -0.0,
    1.5,
    -1.5,
    0.99,
    127.9,
    128.0,
    -128.9,
    -129.0,
    255.9,
    256.0,
    32767.5,
    65535.9,
    65536.0,
    2147483520.0,
)
FAR = (2147483647.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_floats_become_the_nearest_integers_there_are(source: str, target: str) -> None:
    x = rx.Var("x", rx.TensorType((rx.dim("n"),), source))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.astype(x, dtype=target))
        bb.emit_func_output(y)
    module = bb.get()
    main = rx.compile(module, threads=1)["main"]
    values = np.array((*EDGES, *FAR) * 2, source)
    for n in (0, 1, 7, len(values)):
        np.testing.assert_array_equal(main(values[:n]), rx.evaluate(module, "main", values[:n]))
    low, high = np.iinfo(target).min, np.iinfo(target).max
    infinite = np.array([np.inf, -np.inf, np.nan] * 11, source)
    np.testing.assert_array_equal(main(infinite), np.array([high, low, 0] * 11, target))
