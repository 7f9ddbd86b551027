"""An LSTM of 8-bit weights: products of integers, activations of floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array, Expr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.binary import BINARY
from relaxir.ops.common import check_dtype
from relaxir.ops.integer import INTEGER
from relaxir.ops.kernels import emit_op
from relaxir.ops.quantize import QUANTIZE, DynamicQuantizeLinear
from relaxir.ops.recurrent import MORE, Layer, LayerAttrs, Way
from relaxir.ops.recurrent_kernel import ScanAttrs
from relaxir.ops.recurrent_product import BYTES
from relaxir.ops.recurrent_scan import tile_lanes
from relaxir.ops.reduce import REDUCE
from relaxir.ops.select import SELECT
from relaxir.ops.slicing import SLICING

OPERATORS: Final[tuple[Op[Any], ...]] = (*BINARY, *INTEGER, *QUANTIZE, *REDUCE, *SELECT, *SLICING)
PARTS: Final[Mapping[str, Op[Any]]] = MappingProxyType({o.name: o for o in OPERATORS})
"""Operators of the decomposition by name, beside those of all layers."""


class ByteWay(Way):
    """One direction of a decomposition."""

    def emit(self, name: str, *args: Expr, **attrs: Any) -> Expr:
        """One operator."""
        if name not in PARTS:
            return super().emit(name, *args, **attrs)
        op = PARTS[name]
        return emit_op(self.bb, op, *args, attrs=op.Attrs(**attrs))

    def depth(self, recurrent: Expr) -> int:
        """The hidden size: the first axis."""
        assert isinstance(recurrent.type, TensorType)
        return int(recurrent.type.shape[0])

    def weights(self, recurrent: Expr, hidden: int, width: int) -> tuple[Expr, ...]:
        """Tiles of columns in words of four rows, zeros behind the last; the scale and the sum of each column."""
        lanes, words = tile_lanes(hidden), -(-hidden // BYTES)
        wide = self.emit("astype", recurrent, dtype="int32")
        padded = self.emit("pad", recurrent, pads=((0, words * BYTES - hidden), (0, 0)))
        tiled = self.emit("reshape", padded, shape=(words, BYTES, width // lanes, lanes))
        packed = self.emit("permute_dims", tiled, axes=(2, 0, 3, 1))
        return packed, self.own("r_scale"), self.emit("sum", wide, axes=(0,))

    def projected(self, bias: Expr) -> Expr:
        """An integer product of the rounded inputs, scaled."""
        rounded = self.emit("dynamic_quantize_linear", self.given["x"])
        x, unit, zero = (self.bb.item(rounded, k) for k in range(3))
        total = self.emit("matmul_integer", x, self.own("w"), zero)
        scale = self.emit("multiply", unit, self.own("w_scale"))
        return self.emit("add", self.emit("multiply", self.emit("astype", total), scale), bias)


class QuantizedLSTM(Layer):
    """LSTM of int8 weights with a scale for each column, x and every state rounded to uint8 before they are multiplied.

    x is rounded by the range of all its values, the state of each sequence at each step by its own range, both as
    dynamic_quantize_linear has it. All else is as of lstm, in float32, but for the order of the axes of w and r:
    (directions, in, 4 * hidden), (directions, hidden, 4 * hidden). TVM: none, ONNX: com.microsoft DynamicQuantizeLSTM,
    which has one range for the states of all sequences.
    """

    name = "quantized_lstm"
    cell = "lstm"
    inputs_last = False
    integers = ("lengths", "w", "r")
    extra = ("w_scale", "r_scale")
    way: ClassVar[type[Way]] = ByteWay
    params = (
        Param("x", "(steps, batch, in)", ("float32",)),
        Param("w", "(directions, in, 4 * hidden)", ("int8",)),
        Param("r", "(directions, hidden, 4 * hidden)", ("int8",)),
        Param("b", "(directions, 8 * hidden)", ("float32",)),
        Param("h0", "(directions, batch, hidden)", ("float32",)),
        Param("c0", "(directions, batch, hidden)", ("float32",)),
        Param("w_scale", "(directions, 4 * hidden)", ("float32",)),
        Param("r_scale", "(directions, 4 * hidden)", ("float32",)),
        MORE,
    )
    examples = (
        Example(
            ("f32[s, b, 5]", "i8[2, 5, 12]", "i8[2, 3, 12]", "f32[2, 24]", "f32[2, b, 3]", "f32[2, b, 3]",
             "f32[2, 12]", "f32[2, 12]", "f32[2, 9]", "i32[b]"),
            ("f32[s, 2, b, 3]", "f32[2, b, 3]", "f32[2, b, 3]"),
            LayerAttrs(direction="bidirectional", peepholes=True, lengths=True),
            values=(*(None,) * 6, ((0.01,) * 12,) * 2, ((0.02,) * 12,) * 2),
            low=-5.0,
            high=5.0,
        ),
        Example(
            ("f32[s, b, n]", "i8[1, n, 64]", "i8[1, 16, 64]", "f32[1, 128]", "f32[1, b, 16]", "f32[1, b, 16]",
             "f32[1, 64]", "f32[1, 64]"),
            ("f32[s, 1, b, 16]", "f32[1, b, 16]", "f32[1, b, 16]"),
            LayerAttrs(direction="reverse", clip=0.5),
            values=(*(None,) * 6, ((0.01,) * 64,), ((0.02,) * 64,)),
            low=-5.0,
            high=5.0,
        ),
    )  # fmt: skip
    bad_examples = (
        BadExample(
            ("f32[s, b, 5]", "i8[1, 5, 12]", "f32[1, 3, 12]", "f32[1, 24]", "f32[1, b, 3]", "f32[1, b, 3]",
             "f32[1, 12]", "f32[1, 12]"),
            "dtype-mismatch",
            "r must be",
        ),
    )  # fmt: skip

    def infer(self, args: tuple[Type, ...], attrs: LayerAttrs, ctx: InferCtx) -> Type:
        """As of lstm."""
        for param, t in zip(self.params, args, strict=False):
            if isinstance(t, TensorType) and not param.variadic:
                check_dtype(ctx, t, param.name, param.dtypes)
        return super().infer(args, attrs, ctx)

    def scan_attrs(self, attrs: LayerAttrs, way: int) -> ScanAttrs:
        """Attributes of one direction's recurrence: of bytes."""
        return replace(super().scan_attrs(attrs, way), quantized=True)

    def projection(self, own: dict[str, Array], bias: Array) -> tuple[Array, ...]:
        """For the reference: the product of the rounded inputs, in integers; weights in words, scales and sums."""
        x, unit, zero = DynamicQuantizeLinear().reference((own["x"],), Attrs())
        total = (x.astype(np.int32) - zero.astype(np.int32)) @ own["w"].astype(np.int32)
        gates = total.astype(np.float32) * (unit * own["w_scale"]) + bias
        hidden, width = own["r"].shape
        lanes, words = tile_lanes(hidden), -(-hidden // BYTES)
        padded = np.pad(own["r"], ((0, words * BYTES - hidden), (0, 0)))
        packed = padded.reshape(words, BYTES, width // lanes, lanes).transpose(2, 0, 3, 1)
        return gates, packed, own["r_scale"], own["r"].sum(0, dtype=np.int32)


QUANTIZED_LSTM: Final = (QuantizedLSTM(),)
