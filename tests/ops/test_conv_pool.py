"""Convolution, pooling, resampling and their kin against the expected results of ONNX's own node tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as onnx_node
import pytest
from onnx import helper

from relaxir import ops
from relaxir.ir import Attrs, InferCtx, Op, TensorType
from relaxir.support.dtypes import dtype as canonical
from relaxir.sym import Facts, dim
from tests.ops import cases
from tests.ops.scalar import run_blocks

MODULES = (
    "affinegrid attention averagepool col2im det dft einsum gridsample roialign stft conv convtranspose globalaveragepool globalmaxpool lppool maxpool maxunpool resize"
).split()
LOOPED = 400  # results with more elements are compared with the reference only
Call = tuple[str, Sequence[np.ndarray], Mapping[str, Any]]


def onnx_cases() -> list[Any]:
    """Node tests of the modules above; importing a module records its cases."""
    for module in MODULES:
        import_module(f"onnx.backend.test.case.node.{module}")
    return [c for c in onnx_node._NodeTestCases if suits(c)]


def conv(arrays: list[Any], a: dict[str, Any]) -> Call:
    return "conv", arrays, window(a) | {"groups": a.get("group", 1)}


def conv_transpose(arrays: list[Any], a: dict[str, Any]) -> Call:
    more = {k: a.get(k, ()) for k in ("output_padding", "output_shape")}
    return "conv_transpose", arrays, window(a) | more | {"groups": a.get("group", 1)}


def window(a: dict[str, Any]) -> dict[str, Any]:
    return {
        "strides": a.get("strides", ()),
        "padding": a.get("pads", ()),
        "dilations": a.get("dilations", ()),
        "auto_pad": a.get("auto_pad", "NOTSET"),
    }


def pool(name: str, *more: str) -> Callable[..., Call]:
    def adapt(arrays: list[Any], a: dict[str, Any]) -> Call:
        extra = {k: a[k] for k in more if k in a}
        return name, arrays, window(a) | extra | {"kernel": a["kernel_shape"], "ceil_mode": bool(a.get("ceil_mode", 0))}

    return adapt


def unpool(arrays: list[Any], a: dict[str, Any]) -> Call:
    shape = tuple(arrays[2].tolist()) if len(arrays) > 2 else ()
    attrs = {"kernel": a["kernel_shape"], "strides": a.get("strides", ()), "padding": a.get("pads", ())}
    return "max_unpool", arrays[:2], attrs | {"output_shape": shape}


def resize(arrays: list[Any], a: dict[str, Any]) -> Call:
    x, roi, scales, sizes = (*arrays, None, None, None)[:4]
    axes = tuple(a.get("axes", range(x.ndim)))
    attrs = {k: v for k, v in a.items() if k not in ("axes", "exclude_outside", "antialias")}
    attrs |= {
        "axes": axes,
        "exclude_outside": bool(a.get("exclude_outside", 0)),
        "antialias": bool(a.get("antialias", 0)),
    }
    if roi is not None and roi.size:
        attrs["roi"] = tuple(roi.tolist())
    attrs |= (
        {"scales": tuple(scales.tolist())} if scales is not None and scales.size else {"sizes": tuple(sizes.tolist())}
    )
    return "resize", [x], attrs


def attention(arrays: list[Any], a: dict[str, Any]) -> Call:
    q, k, v, mask = (*arrays, None)[:4]
    attrs = {"scale": a.get("scale", 0.0), "causal": bool(a.get("is_causal", 0)), "softcap": a.get("softcap", 0.0)}
    operands = [q, k, v]
    if mask is not None:
        beyond = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        operands.append(np.pad(mask, beyond, constant_values=False if mask.dtype == bool else -np.inf))
    return "attention", operands, attrs | {"empty_rows": "zero"}


def affine_grid(arrays: list[Any], a: dict[str, Any]) -> Call:
    return (
        "affine_grid",
        arrays[:1],
        {"size": tuple(arrays[1].tolist()[2:]), "align_corners": bool(a.get("align_corners", 0))},
    )


def grid_sample(arrays: list[Any], a: dict[str, Any]) -> Call:
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    mode = a.get("mode", "linear")
    attrs = {"mode": modes.get(mode, mode), "align_corners": bool(a.get("align_corners", 0))}
    return "grid_sample", arrays, attrs | {"padding_mode": a.get("padding_mode", "zeros")}


def col2im(arrays: list[Any], a: dict[str, Any]) -> Call:
    shape, kernel = (tuple(x.tolist()) for x in arrays[1:3])
    return "col2im", arrays[:1], window(a) | {"kernel": kernel, "image_shape": shape}


def dft(arrays: list[Any], a: dict[str, Any]) -> Call:
    x, length, axis = (*arrays, None, None)[:3]
    attrs = {"inverse": bool(a.get("inverse", 0)), "onesided": bool(a.get("onesided", 0))}
    # opset 17 has the axis as an attribute, 1 by default
    where = int(axis) if axis is not None else a.get("axis", -2)
    return "dft", [x], attrs | {"axis": where, "length": 0 if length is None else int(length)}


def stft(arrays: list[Any], a: dict[str, Any]) -> Call:
    x, step, window_, length = (*arrays, None, None)[:4]
    attrs = {"frame_step": int(step), "frame_length": 0 if length is None else int(length)}
    return "stft", [x] if window_ is None else [x, window_], attrs | {"onesided": bool(a.get("onesided", 1))}


def roi_align(arrays: list[Any], a: dict[str, Any]) -> Call:
    attrs = {k: v for k, v in a.items() if k != "coordinate_transformation_mode"}
    half = a.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    return "roi_align", arrays, attrs | {"half_pixel": half}


def suits(case: Any) -> bool:
    """Whether one operator stands for the node: what the importer composes of several is not tested here."""
    node = case.model.graph.node[0]
    if len(case.model.graph.node) > 1 or node.op_type not in ADAPTERS or "bf16" in case.name or "bfloat16" in case.name:
        return False
    if node.op_type != "Attention":
        return True
    plain = len(node.input) <= 4 and len(node.output) == 1 and case.data_sets[0][0][0].ndim == 4
    return plain and not {a.name for a in node.attribute} & {"left_window_size", "right_window_size"}


ADAPTERS: Mapping[str, Callable[[list[Any], dict[str, Any]], Call]] = MappingProxyType(
    {
        "AffineGrid": affine_grid,
        "Attention": attention,
        "Col2Im": col2im,
        "DFT": dft,
        "Det": lambda arrays, a: ("det", arrays, a),
        "GridSample": grid_sample,
        "RoiAlign": roi_align,
        "STFT": stft,
        "Einsum": lambda arrays, a: ("einsum", arrays, a),
        "Conv": conv,
        "ConvTranspose": conv_transpose,
        "MaxPool": pool("max_pool", "storage_order"),
        "AveragePool": pool("average_pool", "count_include_pad"),
        "LpPool": pool("lp_pool", "p"),
        "GlobalAveragePool": lambda arrays, a: ("global_average_pool", arrays, {}),
        "GlobalMaxPool": lambda arrays, a: ("global_max_pool", arrays, {}),
        "MaxUnpool": unpool,
        "Resize": resize,
    }
)
CASES = [pytest.param(c, id=c.name.removeprefix("test_")) for c in onnx_cases()]


def value_of(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES)
def test_onnx_node(case: Any) -> None:
    """The reference gives what ONNX expects; so do the loops where they are few."""
    node = case.model.graph.node[0]
    inputs, outputs = case.data_sets[0]
    feed = dict(zip((i.name for i in case.model.graph.input), inputs, strict=True))
    arrays = [feed[n] if n else None for n in node.input]
    attributes = {a.name: value_of(a) for a in node.attribute}
    if "storage_order" in attributes or len(outputs) > 1:
        attributes["return_indices"] = True
    name, operands, attrs = ADAPTERS[node.op_type](arrays, attributes)
    if len(outputs) > 1:
        attrs = dict(attrs, return_indices=True)
    check(name, tuple(np.asarray(x) for x in operands), attrs, outputs, max(case.rtol, 1e-5), max(case.atol, 1e-5))


def attributes(op: Op[Any], **values: Any) -> Attrs:
    make: Callable[..., Attrs] = op.Attrs
    return make(**values)


def check(
    name: str, arrays: tuple[np.ndarray, ...], attrs: Mapping[str, Any], wants: Sequence[Any], rtol: float, atol: float
) -> None:
    op = ops.TABLE[name]
    record = attributes(op, **attrs)
    types = tuple(TensorType(a.shape, canonical(a.dtype.name)) for a in arrays)
    ctx = InferCtx(name, Facts([]))
    out = op.infer(types, record, ctx)
    assert not ctx.checks
    outs = cases.outputs(out)
    got = op.evaluate(arrays, types, record, out)
    results = [got if isinstance(got, tuple) else (got,)]
    if sum(int(np.prod(t.shape)) for t in outs) <= LOOPED and name != "global_average_pool":
        results.append(run_blocks(op.lower(types, record, outs), arrays, {}))
    for result in results:
        for g, w, t in zip(result, wants, outs, strict=True):
            assert g.shape == np.shape(w) == t.shape
            np.testing.assert_allclose(g.astype(np.float64), np.asarray(w, np.float64), rtol, atol)


def test_transposed_conv_auto_pad() -> None:
    """The odd surplus is cropped at the end for SAME_UPPER, at the begin for SAME_LOWER."""
    op: Op[Any] = ops.TABLE["conv_transpose"]
    ones = np.ones((1, 1, 3, 3), np.float32)
    rows = {"SAME_UPPER": [1, 1, 2, 1, 2, 1], "SAME_LOWER": [1, 2, 1, 2, 1, 1]}
    for auto_pad, row in rows.items():
        attrs = attributes(op, strides=(2, 2), auto_pad=auto_pad)
        y = op.reference((ones, ones), attrs)
        assert isinstance(y, np.ndarray)
        assert y.shape == (1, 1, 6, 6)
        np.testing.assert_array_equal(y[0, 0, 0], row)


def test_same_pads_at_run_time() -> None:
    """Pads of SAME_* follow extents that are known only when the program runs."""
    op: Op[Any] = ops.TABLE["conv"]
    attrs = attributes(op, strides=(2,), auto_pad="SAME_UPPER")
    n = dim("n")
    types = (TensorType((1, 1, n), "float32"), TensorType((1, 1, 3), "float32"))
    ctx = InferCtx("conv", Facts([n]))
    (out,) = cases.outputs(op.infer(types, attrs, ctx))
    func = op.lower(types, attrs, (out,))
    for size in range(1, 9):
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
        w = np.array([[[1, 10, 100]]], np.float32)
        (y,) = run_blocks(func, (x, w), {"n": size})
        np.testing.assert_array_equal(y, op.reference((x, w), attrs))
        assert y.shape[-1] == -(-size // 2)
