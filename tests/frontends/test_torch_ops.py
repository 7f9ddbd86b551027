"""Operators of torch, in groups: each module returns many results, all compared with torch at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import RelaxirError
from tests.frontends.torch_cases import Wrapped, check, export, torch

F = torch.nn.functional
SIZES = (4, 1, 7)
AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


def rows(*shape: int, seed: int = 0) -> Any:
    """Floats that are the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_unary() -> None:
    """Operators of one float tensor."""
    names = (
        "abs neg exp log1p sqrt rsqrt sin cos tanh sigmoid erf floor ceil round trunc sign reciprocal square isnan relu"
    )
    acts = (
        F.gelu, F.silu, F.relu6, F.hardswish, F.hardsigmoid, F.leaky_relu, F.elu, F.selu, F.softplus, F.mish, F.logsigmoid,
        F.hardtanh, F.softsign, F.celu, F.tanhshrink, F.softshrink, F.hardshrink,
    )  # fmt: skip

    def run(x: Any) -> Any:
        y = x.abs() + 0.5
        values = [getattr(torch, n)(y if n in ("sqrt", "rsqrt", "log1p", "reciprocal") else x) for n in names.split()]
        return (*values, *(a(x) for a in acts), F.gelu(x, approximate="tanh"), torch.clamp(x, -0.5), x.clamp(max=0.3))

    check(run, [(rows(n, 5),) for n in SIZES], {"args": ({0: AUTO},)})


def test_binary_promotion() -> None:
    """Mixed tensors and numbers follow torch's promotion."""

    def run(x: Any, i: Any, b: Any, s: Any) -> Any:
        small = i.to(torch.int8)
        return (
            x + i, i + 2.5, i * b, b + b, b * b, i / 2, i // 3, -i // 3, i % 3, torch.fmod(-i, 3), x - 2, 3 - x, x**2, x**0.5,
            2**x, i**2, x * s, i * s, torch.add(x, i, alpha=3), torch.sub(i, i, alpha=2), small + 1, small + i, x > i, i == 2.5,
            b & (x > 0), b | ~b, b ^ b, i & 3, i << 1, i >> 1, torch.maximum(x, s), torch.minimum(i, i // 2), x.half() + 1,
            torch.div(i, 3, rounding_mode="floor"), torch.div(x, 0.3, rounding_mode="trunc"), x.to(torch.float64) + x,
            torch.where(b, x, 0), torch.where(b, i, x), x.masked_fill(b, -1), torch.atan2(x, x + 1), b.logical_not(),
            torch.logical_and(i, b), torch.lerp(x, x + 1, 0.3), torch.addcmul(x, x, x, value=0.5), i.float() / i.double(),
        )  # fmt: skip

    def binding(n: int) -> Any:
        return rows(n, 3).abs(), torch.arange(n * 3).reshape(n, 3) + 1, rows(n, 3) > 0, torch.tensor(2.5)

    check(run, [binding(n) for n in SIZES], {"args": ({0: AUTO}, {0: AUTO}, {0: AUTO}, None)})


def test_reductions() -> None:
    """Reductions over some, all and no given axes; positions; variances; running sums."""

    def run(x: Any, i: Any) -> Any:
        return (
            x.sum(), x.sum(0), x.sum((0, -1), keepdim=True), x.mean(-1), i.sum(-1), (x > 0).sum(0), x.amax(1), x.amin((1, 2)),
            x.max(), x.max(1).values, x.max(1).indices, x.min(-1, keepdim=True), x.argmax(1), x.argmax(), x.argmin(-1, True),
            x.var(-1), x.std(1, correction=0), torch.var_mean(x, 1), x.prod(1), (x > 0).any(1), (x > 0).all(), x.any(),
            x.logsumexp(1), x.norm(dim=1), torch.linalg.vector_norm(x, 1, -1), x.cumsum(1), i.cumsum(0), x.cumprod(-1),
            x.softmax(1), x.log_softmax(-1), torch.count_nonzero(i, 1), x.sort(1), x.argsort(-1, descending=True), x.topk(2, 1),
            torch.diff(x, dim=1), F.normalize(x, dim=1), F.cosine_similarity(x, x + 1, 1),
        )  # fmt: skip

    def binding(n: int) -> Any:
        return rows(n, 4, 3), torch.arange(n * 5).reshape(n, 5)

    check(run, [binding(n) for n in SIZES], {"args": ({0: AUTO}, {0: AUTO})})


def test_views() -> None:
    """Shapes changed, axes moved, parts taken and joined."""

    def run(x: Any, y: Any) -> Any:
        n, c, m = x.shape
        return (
            x.view(n, c * m), x.reshape(-1, m), x.flatten(), x.flatten(1), x.unflatten(1, (2, -1)), x.permute(2, 0, 1),
            x.transpose(0, 1), x[0].t(), x.mT, x.movedim(0, -1), x.unsqueeze(1).squeeze(1), x[None].expand(3, -1, -1, -1),
            x[:, :1].expand(n, c, m), x.repeat(2, 1, 1, 2), x.repeat_interleave(2, 1), torch.cat([x, x + 1], 0),
            torch.cat([x, y], 2), torch.stack([x, x], 1), x.split(3, 1), x.split([1, 3], 1), x.chunk(2, -1), x.unbind(1),
            x[:, 1:3], x[:, -2:], x[:, ::2], x[:, 1], x[-1], x[..., -1], x.narrow(1, 1, 2), x.flip(1), x.flip((0, 2)),
            x.roll(1, 1), x.roll((1, -1), (0, 1)), x.tril(), x.triu(1), F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0),
            F.pad(x, (1, 1), mode="reflect"), F.pad(x, (2, 1), mode="replicate"), F.pad(x, (1, 1), mode="circular"),
            x.unfold(1, 2, 1), x.diagonal(0, 1, 2), x.contiguous().view_as(x), n * 2, torch.tensor(n), x.tile(2),
        )  # fmt: skip

    check(run, [(rows(n, 4, 3), rows(n, 4, 2)) for n in SIZES], {"args": ({0: AUTO}, {0: AUTO})})


def test_creation() -> None:
    """Tensors made from sizes and numbers."""

    def run(x: Any) -> Any:
        n = x.shape[0]
        return (
            torch.arange(n), torch.arange(1, n + 3, 2), torch.arange(0.0, 1.0, 0.25), torch.arange(n, dtype=torch.float32) * 0.5,
            torch.zeros(n, 2), torch.ones_like(x), torch.full((n,), 3), torch.full_like(x, 2.5), x.new_zeros(2, n),
            torch.eye(3), torch.linspace(0, 1, 5), torch.zeros(n, 2, dtype=torch.bool), torch.ones(n, n).tril(),
            x.new_full((1, n), True, dtype=torch.bool), torch.tensor([1, 2]) + n, torch.zeros_like(x, dtype=torch.int64),
        )  # fmt: skip

    check(run, [(rows(n, 3),) for n in SIZES], {"args": ({0: AUTO},)})


def test_indexing() -> None:
    """Gathers, scatters, masks."""

    table = rows(6, 2)

    def run(x: Any, i: Any, mask: Any) -> Any:
        n = x.shape[0]
        zero = torch.zeros_like(x)
        row = torch.arange(n)
        put = x.clone()
        put[:, 1] = 0.5
        put[mask] = -1.0
        added = zero.index_put((row[:, None], i), x, accumulate=True)
        return (
            x[i[:, 0] % n], x[:, i[0]], x[row[:, None], i], x[row, :, i[:, 0]] if x.dim() == 3 else x[row, i[:, 0]],
            x.gather(1, i), zero.scatter(1, i, x), zero.scatter(1, i, 2.0), zero.scatter_add(1, i, x), put, added,
            zero.scatter_reduce(1, i, x, "amax"), x.index_select(1, i[0]), x[mask], x.masked_select(mask), torch.nonzero(mask),
            zero.index_add(1, i[0], x), F.one_hot(i, 4), x.take(i),
            torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), F.embedding(i, table), torch.where(mask)[0],
        )  # fmt: skip

    def binding(n: int) -> Any:
        generator = torch.Generator().manual_seed(n)
        order = torch.stack([torch.randperm(4, generator=generator) for _ in range(n)])
        return rows(n, 4), order, rows(n, 4, seed=1) > 0

    check(run, [binding(n) for n in (5, 1, 7)], {"args": ({0: AUTO}, {0: AUTO}, {0: AUTO})}, cores=(False,))


@pytest.mark.parametrize("n", SIZES)
def test_take_along(n: int) -> None:
    """Torch makes the sizes of this operator constant."""
    check(lambda x, i: torch.take_along_dim(x, i, 1), [(rows(n, 4), torch.arange(n * 2).reshape(n, 2) % 4)], None)


def test_products() -> None:
    """Matrix products of every form."""

    def run(x: Any, w: Any, b: Any) -> Any:
        return (
            x @ w, F.linear(x, w.t(), b), torch.addmm(b, x[0], w, alpha=0.5, beta=2), torch.bmm(x, x.mT),
            torch.baddbmm(x @ x.mT, x, x.mT), torch.einsum("bij,jk->bki", x, w), torch.outer(b, b), x[0] @ w[:, 0], torch.dot(b, b),
            torch.mv(x[0], w[:, 1]), torch.matmul(x[None], w),
        )  # fmt: skip

    check(run, [(rows(n, 3, 4), rows(4, 5), rows(5)) for n in SIZES], {"args": ({0: AUTO}, None, None)})


def test_attention() -> None:
    """Masks of both kinds, causality, grouped heads, rows without keys."""

    def run(q: Any, k: Any, mask: Any) -> Any:
        attend = F.scaled_dot_product_attention
        floats = torch.where(mask, 0.0, float("-inf"))
        return (
            attend(q, k, k), attend(q, k, k, mask), attend(q, k, k, floats), attend(q, q, q, is_causal=True),
            attend(q, k[:, :1], k[:, :1], enable_gqa=True), attend(q[:, 0], k[:, 0], k[:, 0], scale=0.3),
        )  # fmt: skip

    def binding(n: int) -> Any:
        mask = rows(n, n + 2) > 0
        mask[0] = False
        return rows(2, 2, n, 4), rows(2, 2, n + 2, 4), mask

    check(run, [binding(n) for n in SIZES], {"args": ({2: AUTO}, {2: AUTO}, {0: AUTO, 1: AUTO})}, cores=(False,))


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "conv1d": (lambda: torch.nn.Conv1d(2, 4, 3, padding=1, stride=2), (2, 8), 0),
    "conv2d": (lambda: torch.nn.Conv2d(4, 4, 3, padding="same", groups=2), (4, 6, 5), 0),
    "conv3d": (lambda: torch.nn.Conv3d(1, 2, 2), (1, 3, 4, 3), 0),
    "transpose": (lambda: torch.nn.ConvTranspose2d(2, 3, 3, 2, 1, output_padding=1), (2, 4, 3), 0),
    "batch_norm": (lambda: torch.nn.BatchNorm2d(3), (3, 4, 4), 0),
    "group_norm": (lambda: torch.nn.GroupNorm(2, 4), (4, 3, 3), 0),
    "instance_norm": (lambda: torch.nn.InstanceNorm1d(3, affine=True), (3, 6), 0),
    "layer_norm": (lambda: torch.nn.LayerNorm((3, 4), bias=False), (3, 4), 0),
    "rms_norm": (lambda: torch.nn.RMSNorm(5), (3, 5), 0),
    "max_pool": (lambda: torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 6, 7), 0),
    "max_pool_indices": (lambda: torch.nn.MaxPool2d(2, return_indices=True), (2, 6, 4), 0),
    "avg_pool": (lambda: torch.nn.AvgPool2d(3, 2, 1), (2, 6, 7), 0),
    "adaptive": (lambda: torch.nn.AdaptiveAvgPool2d((3, 2)), (2, 7, 5), 0),
    "adaptive_max": (lambda: torch.nn.AdaptiveMaxPool2d(2), (2, 6, 4), 0),
    "adaptive_max_uneven": (lambda: torch.nn.AdaptiveMaxPool3d((2, 1, 3)), (2, 3, 4, 5), 0),
    "adaptive_max_places": (lambda: torch.nn.AdaptiveMaxPool2d((3, 2), return_indices=True), (2, 7, 5), 0),
    "batch_statistics": (lambda: torch.nn.BatchNorm2d(3, track_running_stats=False), (3, 4, 4), 0),
    "stored_instance": (lambda: torch.nn.InstanceNorm1d(3, track_running_stats=True), (3, 5), 0),
    "unfold": (lambda: torch.nn.Unfold((2, 3), dilation=2, padding=1, stride=2), (3, 8, 9), 0),
    "fold": (lambda: torch.nn.Fold((4, 5), 2), (12, 12), 0),
    "nearest": (lambda: torch.nn.Upsample(scale_factor=2), (2, 3, 4), 0),
    "bilinear": (lambda: torch.nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4), 0),
    "aligned": (lambda: torch.nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), (2, 3, 4), 0),
    "bicubic": (lambda: torch.nn.Upsample(size=(5, 7), mode="bicubic"), (2, 3, 4), 0),
    "pixel_shuffle": (lambda: torch.nn.PixelShuffle(2), (8, 3, 2), 0),
    "prelu": (lambda: torch.nn.PReLU(3), (3, 4), 0),
    "glu": (lambda: torch.nn.GLU(1), (4, 3), 0),
    "encoder": (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 8), 1),
    "lstm_cell": (lambda: torch.nn.LSTMCell(3, 4), (3,), 0),
    "gru_cell": (lambda: torch.nn.GRUCell(3, 4), (3,), 0),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    """Layers over a dynamic batch."""
    make, shape, _ = LAYERS[name]
    torch.manual_seed(0)
    check(make(), [(rows(n, *shape),) for n in SIZES], ({0: AUTO},))


def test_antialias() -> None:
    """Elements beyond the border take no part in an antialiased mean."""

    def run(x: Any) -> Any:
        return [F.interpolate(x, size=(3, 12), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")]

    check(run, [(rows(n, 2, 7, 9),) for n in SIZES], {"args": ({0: AUTO},)}, cores=(False,))


def test_sums_by_a_divisor() -> None:
    """Windows that ceil mode lets reach beyond the padding."""
    pool = torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=5)
    check(pool, [(rows(n, 2, h, 7),) for n, h in ((4, 8), (1, 7), (2, 4))], ({0: AUTO, 2: AUTO},), cores=(False,))


@pytest.mark.parametrize("align", [False, True])
def test_cubic_border(align: bool) -> None:
    """Taps, not places, are brought inside the border."""

    def run(x: Any, grid: Any) -> Any:
        return F.grid_sample(x, grid, "bicubic", "border", align)

    bindings = [(rows(n, 2, 5, n + 3), 1.4 * rows(n, n + 2, 3, 2)) for n in SIZES]
    check(run, bindings, {"args": ({0: AUTO, 3: AUTO}, {0: AUTO, 1: AUTO})}, cores=(False,))


def test_bilinear() -> None:
    """Whole, and as the product that torch makes of it."""
    torch.manual_seed(0)
    check(torch.nn.Bilinear(3, 4, 5), [(rows(n, 3), rows(n, 4)) for n in SIZES], ({0: AUTO}, {0: AUTO}))


def test_distances() -> None:
    """Between the rows of two matrices, and between those of one."""

    def run(x: Any, y: Any) -> Any:
        return torch.cdist(x, y), torch.cdist(x, y, p=1.0), torch.cdist(x[None], y, p=float("inf")), F.pdist(x)

    bindings = [(rows(n, 3), rows(n + 1, 3)) for n in (4, 2, 7)]
    check(run, bindings, {"args": ({0: AUTO}, {0: AUTO})}, cores=(False,))


def test_masked_scatter() -> None:
    """Elements of the source in order; too few are refused."""

    def run(x: Any, y: Any) -> Any:
        return x.masked_scatter(x > 0, y), x.masked_scatter(torch.tensor([True, False, True]), y)

    bindings = [(rows(n, 3), rows(n, 3, seed=5)) for n in SIZES]
    check(run, bindings, {"args": ({0: AUTO}, {0: AUTO})}, cores=(False,))
    program = export(Wrapped(lambda x, y: x.masked_scatter(x > 0, y)), bindings[0], {"args": ({0: AUTO}, {0: AUTO})})
    with pytest.raises(RelaxirError):
        rx.evaluate(rx.from_torch(program), "main", np.ones((2, 3), np.float32), np.ones((1, 3), np.float32))


def test_as_strided() -> None:
    """Windows over a compact tensor."""

    def run(x: Any) -> Any:
        return x.as_strided((x.shape[0], 2), (3, 1), 1), torch.as_strided(x, (2, 2), (1, 1))

    check(run, [(rows(n, 3),) for n in SIZES], {"args": ({0: AUTO},)}, cores=(False,))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    """Bags of different sizes, one of them empty."""
    bag = torch.nn.EmbeddingBag(10, 3, mode=mode)
    ids = [torch.arange(n) % 10 for n in (6, 1, 9)]
    starts = [torch.tensor(s) for s in ([0, 2, 2], [0], [0, 3, 5, 5])]
    check(bag, list(zip(ids, starts, strict=True)), ({0: AUTO}, {0: AUTO}), cores=(False,))
