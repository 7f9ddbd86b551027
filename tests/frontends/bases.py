"""Small models of the kinds that people deploy: what files are damaged from, and what loaders are timed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from tests.frontends.models import f32, graph, i64, model, node


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Small random floats."""
    return np.random.default_rng([seed, *shape]).uniform(-0.5, 0.5, shape).astype(np.float32)


def perceptron() -> ModelProto:
    """Two layers over a dynamic batch."""
    nodes = [
        node("Gemm", "x w1 b1", "h1", name="/fc1/Gemm", transB=1),
        node("Relu", "h1", "h2", name="/act/Relu"),
        node("MatMul", "h2 w2", "h3", name="/fc2/MatMul"),
        node("Add", "h3 b2", "h4", name="/fc2/Add"),
        node("Softmax", "h4", "y", name="/Softmax", axis=-1),
    ]
    stored = {"w1": weights(16, 8), "b1": weights(16), "w2": weights(16, 4), "b2": weights(4)}
    return model(nodes, "x float32[batch,8]", "y float32[batch,4]", **stored)


def convolutional() -> ModelProto:
    """Convolution, normalisation, pooling and a classifier, on images of any size."""
    nodes = [
        node("Conv", "image k1 c1", "a1", name="/conv1/Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("BatchNormalization", "a1 scale shift mean var", "a2", name="/bn/BatchNormalization", epsilon=1e-5),
        node("Relu", "a2", "a3", name="/Relu"),
        node("MaxPool", "a3", "a4", name="/MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "a4 k2", "a5", name="/conv2/Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=4),
        node("GlobalAveragePool", "a5", "a6", name="/GlobalAveragePool"),
        node("Flatten", "a6", "a7", name="/Flatten", axis=1),
        node("Gemm", "a7 w b", "y", name="/fc/Gemm", transB=1),
    ]
    stored = {
        "k1": weights(4, 3, 3, 3), "c1": weights(4), "scale": np.ones(4, np.float32), "shift": weights(4, seed=1),
        "mean": weights(4, seed=2), "var": np.ones(4, np.float32), "k2": weights(4, 1, 3, 3), "w": weights(5, 4), "b": weights(5),
    }  # fmt: skip
    return model(nodes, "image float32[batch,3,h,w]", "y float32[batch,5]", **stored)


def attention() -> ModelProto:
    """One head layer as exporters write it: sizes read from shapes, a mask, a normalisation."""
    nodes = [
        node("Shape", "x", "s", name="/Shape"),
        node("Gather", "s zero", "b", name="/Gather_b", axis=0),
        node("Gather", "s one", "t", name="/Gather_t", axis=0),
        node("Unsqueeze", "b axis0", "bu", name="/Unsqueeze_b"),
        node("Unsqueeze", "t axis0", "tu", name="/Unsqueeze_t"),
        node("Concat", "bu tu heads size", "split", name="/Concat", axis=0),
        node("MatMul", "x wq", "q0", name="/q/MatMul"),
        node("Reshape", "q0 split", "q1", name="/q/Reshape"),
        node("Transpose", "q1", "q", name="/q/Transpose", perm=[0, 2, 1, 3]),
        node("MatMul", "x wk", "k0", name="/k/MatMul"),
        node("Reshape", "k0 split", "k1", name="/k/Reshape"),
        node("Transpose", "k1", "k", name="/k/Transpose", perm=[0, 2, 3, 1]),
        node("MatMul", "q k", "z", name="/MatMul"),
        node("Mul", "z scale", "z1", name="/Mul"),
        node("Where", "mask z1 low", "z2", name="/Where"),
        node("Softmax", "z2", "p", name="/Softmax", axis=3),
        node("MatMul", "p q", "o", name="/MatMul_1"),
        node("Transpose", "o", "o1", name="/Transpose", perm=[0, 2, 1, 3]),
        node("Concat", "bu tu flat", "joined", name="/Concat_1", axis=0),
        node("Reshape", "o1 joined", "o2", name="/Reshape"),
        node("Add", "o2 x", "r", name="/Add"),
        node("LayerNormalization", "r g beta", "y", name="/LayerNormalization", axis=-1, epsilon=1e-5),
    ]
    stored = {
        "zero": i64(0), "one": i64(1), "axis0": i64([0]), "heads": i64([2]), "size": i64([4]), "flat": i64([-1]),
        "wq": weights(8, 8), "wk": weights(8, 8, seed=1), "scale": f32(0.5), "low": f32(-1e9),
        "g": np.ones(8, np.float32), "beta": weights(8),
    }  # fmt: skip
    return model(nodes, "x float32[batch,seq,8]; mask bool[batch,1,1,seq]", "y float32[batch,seq,8]", **stored)


def detector() -> ModelProto:
    """What follows a detector: sizes that depend on data, indexing, padding, resizing."""
    nodes = [
        node("Cast", "codes", "f", name="/Cast", to=TensorProto.FLOAT),
        node("ReduceMax", "f axis1", "best", name="/ReduceMax", keepdims=0),
        node("Greater", "best limit", "keep", name="/Greater"),
        node("NonZero", "keep", "places", name="/NonZero"),
        node("Transpose", "places", "turned", name="/Transpose", perm=[1, 0]),
        node("GatherND", "f turned", "rows", name="/GatherND"),
        node("Slice", "rows start end axis1 step", "part", name="/Slice"),
        node("Pad", "part pads fill", "padded", name="/Pad", mode="constant"),
        node("TopK", "best two", "top where", name="/TopK", axis=0, largest=1, sorted=1),
        node("Unsqueeze", "f axis01", "image", name="/Unsqueeze"),
        node("Resize", "image _ scales", "large", name="/Resize", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Clip", "large low high", "clipped", name="/Clip"),
    ]  # fmt: skip
    stored = {
        "axis1": i64([1]), "limit": f32(0.5), "start": i64([1]), "end": i64([4]), "step": i64([2]), "pads": i64([0, 1, 0, 1]),
        "fill": f32(7), "two": i64([2]), "axis01": i64([0, 1]), "scales": f32([1, 1, 2, 2]), "low": f32(0), "high": f32(1),
    }  # fmt: skip
    outputs = "padded float32[k,3]; top float32[2]; where int64[2]; clipped float32"
    return model(nodes, "codes int32[n,4]", outputs, **stored)


def control() -> ModelProto:
    """A loop whose body stacks results, and a branch."""
    body = graph(
        [
            node("Add", "v step", "v1", name="/loop/Add"),
            node("Less", "v1 bound", "under", name="/loop/Less"),
            node("ReduceMin", "under_i", "goes0", name="/loop/ReduceMin", keepdims=0),
            node("Cast", "goes0", "goes", name="/loop/Cast", to=TensorProto.BOOL),
            node("Mul", "v1 v1", "row", name="/loop/Mul"),
        ],
        "i int64[]; c bool[]; v float32[n]",
        "goes bool[]; v1 float32[n]; row float32[n]",
    )
    body.node.insert(2, node("Cast", "under", "under_i", name="/loop/Cast_1", to=TensorProto.INT32))
    then = graph([node("Concat", "x x", "t", name="/then/Concat", axis=0)], "", "t float32[m]")
    other = graph([node("Exp", "x", "e", name="/else/Exp")], "", "e float32[n]")
    nodes = [
        node("Loop", "trips true x", "last rows", name="/Loop", body=body),
        node("If", "flag", "branch", name="/If", then_branch=then, else_branch=other),
        node("ReduceSum", "rows axis0", "total", name="/ReduceSum", keepdims=0),
    ]
    stored = {"trips": i64(3), "true": np.array(True), "step": f32(0.5), "bound": f32(9), "axis0": i64([0])}
    return model(nodes, "x float32[n]; flag bool[]", "last float32[n]; total float32[n]; branch float32[b]", **stored)


def quantized() -> ModelProto:
    """A linear layer between quantising nodes."""
    nodes = [
        node("QuantizeLinear", "x xs xz", "xq", name="/x/QuantizeLinear"),
        node("DequantizeLinear", "xq xs xz", "xd", name="/x/DequantizeLinear"),
        node("DequantizeLinear", "wq ws wz", "wd", name="/w/DequantizeLinear", axis=1),
        node("MatMul", "xd wd", "h", name="/MatMul"),
        node("QuantizeLinear", "h ys yz", "hq", name="/y/QuantizeLinear"),
        node("DequantizeLinear", "hq ys yz", "y", name="/y/DequantizeLinear"),
        node("DynamicQuantizeLinear", "y", "dq ds dz", name="/DynamicQuantizeLinear"),
        node("MatMulInteger", "dq wi dz", "z", name="/MatMulInteger"),
    ]
    rng = np.random.default_rng(5)
    stored = {
        "xs": f32(0.02), "xz": np.uint8(128), "ys": f32(0.1), "yz": np.uint8(120), "wq": rng.integers(-9, 9, (8, 6)).astype(np.int8),
        "ws": f32([0.1, 0.2, 0.3, 0.1, 0.2, 0.3]), "wz": np.zeros(6, np.int8), "wi": rng.integers(-9, 9, (6, 3)).astype(np.int8),
    }  # fmt: skip
    return model(nodes, "x float32[batch,8]", "y float32[batch,6]; z int32[batch,3]", **stored)


def recurrent() -> ModelProto:
    """A recurrent layer over sequences of any length."""
    nodes = [
        node("LSTM", "x w r b", "steps last cell", name="/LSTM", hidden_size=4, direction="forward"),
        node("Squeeze", "steps axis1", "flat", name="/Squeeze"),
        node("CumSum", "flat axis0", "sums", name="/CumSum"),
        node("ArgMax", "sums", "best", name="/ArgMax", axis=2, keepdims=0),
    ]
    stored = {"w": weights(1, 16, 3), "r": weights(1, 16, 4), "b": weights(1, 32), "axis1": i64([1]), "axis0": i64(0)}
    outputs = "sums float32[time,batch,4]; last float32[1,batch,4]; best int64[time,batch]"
    return model(nodes, "x float32[time,batch,3]", outputs, **stored)


def squeezenet() -> ModelProto:
    """A real network as its file was published, with its weights replaced by constants; shipped with the package onnx."""
    return onnx.load(Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx")


BASES: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType(
    {f.__name__: f for f in (perceptron, convolutional, attention, detector, control, quantized, recurrent, squeezenet)}
)


def externalized(proto: ModelProto, file: str = "weights.bin") -> tuple[ModelProto, bytes]:
    """The model with its stored tensors moved to a file beside it, and the content of that file."""
    copy: ModelProto = ModelProto.FromString(proto.SerializeToString())
    data = b""
    for tensor in copy.graph.initializer:
        raw = numpy_helper.to_array(tensor).tobytes()
        bare = TensorProto(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
        )
        entries: dict[str, Any] = {"location": file, "offset": len(data), "length": len(raw)}
        for key, value in entries.items():
            bare.external_data.add(key=key, value=str(value))
        tensor.CopyFrom(bare)
        data += raw.ljust(-(-len(raw) // 64) * 64, b"\0")
    return copy, data
