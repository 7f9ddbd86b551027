"""Layers of torch.nn with unusual arguments, many in one program: raw and decomposed, over batches and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.frontends.torch_cases import check, torch

nn = torch.nn
AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


def rows(*shape: int, seed: int = 0) -> Any:
    """Floats that are the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


class Together(nn.Module):  # type: ignore[misc]  # torch may be missing
    """The results of several layers of the same inputs."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *args: Any) -> Any:
        """Call each."""
        return tuple(layer(*args) for layer in self.layers)


def images() -> tuple[Any, ...]:
    """Layers of (batch, 4, height, width)."""
    return (
        nn.Conv2d(4, 8, 3, padding=2, padding_mode="circular"), nn.Conv2d(4, 4, (4, 2), padding="same", bias=False),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect", dilation=2), nn.Conv2d(4, 8, 3, stride=2, groups=4),
        nn.ConvTranspose2d(4, 6, 3, stride=3, dilation=2, groups=2), nn.MaxPool2d(3, dilation=2, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.LPPool2d(1.5, (3, 2)),
        nn.AdaptiveAvgPool2d((3, None)), nn.AdaptiveMaxPool2d(1), nn.ReplicationPad2d((2, 1, 0, 3)), nn.ZeroPad2d((2, 1, -1, 3)),
        nn.CircularPad2d(1), nn.Softmax2d(), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False, track_running_stats=False),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.GroupNorm(2, 4), nn.LocalResponseNorm(3),
        nn.PReLU(4), nn.GLU(1), nn.RReLU(), nn.Threshold(0.1, 20.0), nn.Hardshrink(0.3), nn.Tanhshrink(), nn.Softmin(1),
        nn.ChannelShuffle(2), nn.PixelShuffle(2), nn.Unfold((2, 3), dilation=2, padding=1, stride=2), nn.FeatureAlphaDropout(),
        nn.Upsample(scale_factor=(1.5, 2), mode="bilinear"), nn.UpsamplingNearest2d(size=(5, 3)), nn.Flatten(2),
    )  # fmt: skip


def sequences() -> tuple[Any, ...]:
    """Layers of (batch, length, 8)."""
    attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, bias=False, activation="gelu")
    return (
        nn.Linear(8, 3, bias=False), nn.LayerNorm(8, elementwise_affine=False), nn.RMSNorm(8), attend,
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)),
        nn.Unflatten(-1, (2, 4)), nn.AlphaDropout(), nn.LogSoftmax(-1),
    )  # fmt: skip


def losses() -> tuple[Any, ...]:
    """Losses of two like tensors."""
    return (
        nn.L1Loss(), nn.MSELoss(reduction="sum"), nn.HuberLoss("none", 0.4), nn.SmoothL1Loss(beta=0.4), nn.SoftMarginLoss(),
        nn.BCEWithLogitsLoss(pos_weight=torch.full((5,), 0.7)), nn.KLDivLoss(reduction="batchmean", log_target=True),
        nn.PoissonNLLLoss(), nn.HingeEmbeddingLoss(0.5), nn.MultiLabelSoftMarginLoss(), nn.CosineSimilarity(1),
        nn.PairwiseDistance(3.0, keepdim=True), nn.CrossEntropyLoss(label_smoothing=0.2),
    )  # fmt: skip


def test_images() -> None:
    """Batch and height are dynamic."""
    torch.manual_seed(0)
    bindings = [(rows(n, 4, h, 7),) for n, h in ((2, 9), (1, 8), (3, 12))]
    check(Together(images()), bindings, {"args": ({0: AUTO, 2: AUTO},)})


def test_sequences() -> None:
    """Batch and length are dynamic."""
    torch.manual_seed(0)
    bindings = [(rows(n, t, 8),) for n, t in ((2, 9), (1, 1), (3, 4))]
    check(Together(sequences()), bindings, {"args": ({0: AUTO, 1: AUTO},)})


def test_losses() -> None:
    """The batch is dynamic."""
    bindings = [(rows(n, 5), rows(n, 5, seed=7)) for n in (4, 1, 7)]
    check(Together(losses()), bindings, {"args": ({0: AUTO}, {0: AUTO})})


def test_recurrent() -> None:
    """Layers, directions, projections and states, with a dynamic batch."""
    torch.manual_seed(0)
    layers = (
        nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), nn.GRU(3, 4, bias=False), nn.RNN(3, 4, 2, nonlinearity="relu", dropout=0.5),
    )  # fmt: skip
    check(Together(layers), [(rows(5, n, 3),) for n in (4, 1, 7)], {"args": ({1: AUTO},)}, cores=(False,))


def test_classes_by_frequency() -> None:
    """Log-probabilities of an adaptive softmax (torch cannot export its loss)."""
    torch.manual_seed(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12])
    check(layer.log_prob, [(rows(n, 8),) for n in (4, 1, 7)], {"args": ({0: AUTO},)}, cores=(False,))
