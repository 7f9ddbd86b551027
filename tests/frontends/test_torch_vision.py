"""torchvision's operators, where torchvision itself is not needed: their schemas are declared here if it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import UnsupportedError
from tests.frontends.torch_cases import Wrapped, export, torch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself
AUTO = torch.export.Dim.AUTO
SHAPES = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)


def fake_pooled(x: Any, rois: Any, scale: float, height: int, width: int, *_: Any) -> Any:
    """Shape of pooled regions."""
    return x.new_empty((rois.shape[0], x.shape[1], height, width))


def fake_own(x: Any, rois: Any, scale: float, height: int, width: int, *_: Any) -> Any:
    """Shape of regions pooled from channels of each bin."""
    y = x.new_empty((rois.shape[0], x.shape[1] // (height * width), height, width))
    return y, torch.empty_like(y, dtype=torch.int32)


def fake_nms(boxes: Any, scores: Any, threshold: float) -> Any:
    """A number of boxes that the data decides."""
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)


def fake_deform(x: Any, w: Any, offset: Any, *_: Any) -> Any:
    """Shape of a convolution with offsets."""
    return x.new_empty((x.shape[0], w.shape[0], *offset.shape[2:]))


def fake_pair(*args: Any) -> Any:
    """Shape of pooled regions, and places."""
    y = fake_pooled(*args)
    return y, torch.empty_like(y, dtype=torch.int32)


@pytest.fixture(scope="module", autouse=True)
def declared() -> Any:
    """torchvision's namespace."""
    if hasattr(torch.ops.torchvision, "nms"):
        yield
        return
    with torch.library._scoped_library("torchvision", "DEF") as library:
        for schema in SHAPES:
            library.define(schema)
        fakes = {"nms": fake_nms, "roi_align": fake_pooled, "ps_roi_align": fake_own, "roi_pool": fake_pair}
        for name, fake in (fakes | {"deform_conv2d": fake_deform}).items():
            torch.library.register_fake(f"torchvision::{name}", fake, lib=library)
        yield


def imported(function: Any, args: tuple[Any, ...], shapes: Any) -> Any:
    """The function `main` of an exported program in the reference interpreter."""
    module = rx.from_torch(export(Wrapped(function), args, (shapes,)))
    return lambda *values: np.asarray(rx.evaluate(module, "main", *(np.asarray(v) for v in values)))


def test_nms_keeps_the_best_of_what_overlaps() -> None:
    """Best first; an overlap equal to the threshold is kept, as torch compares it in float64."""
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 6], [20, 20, 30, 30], [0, 0, 10, 9]], np.float32)
    run = imported(
        lambda b, s: torch.ops.torchvision.nms(b, s, 0.6),
        (torch.from_numpy(boxes), torch.rand(4)),
        ({0: AUTO}, {0: AUTO}),
    )
    # 0.6 in float32 lies above the 0.6 of torch: an overlap of it is too much
    assert run(boxes, np.array([4, 3, 2, 1], np.float32)).tolist() == [0, 2]
    assert run(boxes, np.array([-np.inf, 3, 4, 1], np.float32)).tolist() == [2, 1]
    assert run(boxes[:1], np.array([-np.inf], np.float32)).tolist() == [0]
    assert run(boxes[:0], np.zeros(0, np.float32)).tolist() == []


def test_regions_are_pooled() -> None:
    """Of a ramp each bin's mean is the ramp at its middle, and its greatest element the last one in it."""
    ramp = np.arange(12, dtype=np.float32)
    x = np.broadcast_to(ramp[:, None] * 100 + ramp, (2, 4, 12, 12)).copy()
    x[1] += 5000
    rois = np.array([[1, 2, 2, 6, 6], [0, 4, 0, 8, 4]], np.float32)
    args, shapes = (torch.from_numpy(x), torch.from_numpy(rois)), ({0: AUTO, 2: AUTO, 3: AUTO}, {0: AUTO})
    ops = torch.ops.torchvision
    mean = imported(lambda a, r: ops.roi_align(a, r, 1.0, 2, 2, 2, True), args, shapes)(x, rois)
    middle = np.array([[2.5, 4.5], [0.5, 2.5]])[:, :, None] * 100 + np.array([[2.5, 4.5], [4.5, 6.5]])[:, None, :]
    middle[0] += 5000
    np.testing.assert_allclose(mean, np.broadcast_to(middle[:, None], (2, 4, 2, 2)), rtol=1e-6)
    own = imported(lambda a, r: ops.ps_roi_align(a, r, 1.0, 2, 2, 2)[0], args, shapes)
    shifted = x + np.arange(4, dtype=np.float32)[:, None, None] * 0.25
    np.testing.assert_allclose(own(shifted, rois), (middle + np.arange(4).reshape(2, 2) * 0.25)[:, None], rtol=1e-6)
    best = imported(lambda a, r: ops.roi_pool(a, r, 1.0, 2, 2)[0], args, shapes)
    far = np.array([[0, 40, 40, 50, 50], *rois], np.float32)
    rows, columns = np.array([[4, 6], [2, 4]]), np.array([[4, 6], [6, 8]])
    last = rows[:, :, None] * 100 + columns[:, None, :] + np.array([5000, 0])[:, None, None]
    want = np.concatenate([np.zeros((1, 2, 2)), last])[:, None]
    np.testing.assert_allclose(best(x, far), np.broadcast_to(want, (3, 4, 2, 2)))


def test_convolution_without_offsets_is_a_convolution() -> None:
    """Offsets of 0 and a mask of 2 double a convolution; whole offsets move the image."""
    w, b = torch.randn(6, 2, 3, 3), torch.randn(6)
    run = imported(
        lambda x, o, m: torch.ops.torchvision.deform_conv2d(x, w, o, m, b, 2, 2, 1, 1, 1, 1, 2, 1, True),
        (torch.randn(2, 4, 9, 7), torch.zeros(2, 18, 5, 4), torch.ones(2, 9, 5, 4)),
        ({0: AUTO, 2: AUTO, 3: AUTO},) * 3,
    )
    x = torch.randn(3, 4, 8, 5)
    got = run(x, torch.zeros(3, 18, 4, 3), torch.full((3, 9, 4, 3), 2.0))
    want = 2 * torch.conv2d(x, w, None, 2, 1, groups=2) + b[:, None, None]
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)
    down = torch.zeros(3, 9, 2, 4, 3)
    down[:, :, 0] = 1
    moved = torch.nn.functional.pad(x, (1, 1, 1, 2))[:, :, 1:]
    want = torch.conv2d(moved, w, b, 2, 0, groups=2)
    got = run(x, down.flatten(1, 2), torch.ones(3, 9, 4, 3))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)


def test_places_of_largest_elements_are_refused() -> None:
    """What only gradients need has no converter."""
    args = (torch.randn(1, 4, 9, 7), torch.rand(3, 5))
    with pytest.raises(UnsupportedError, match="the places of largest elements"):
        imported(lambda x, r: torch.ops.torchvision.roi_pool(x, r, 1.0, 2, 2)[1], args, ({2: AUTO}, {0: AUTO}))
