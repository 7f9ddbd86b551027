"""Models with complex numbers inside: rotary embeddings, spectrograms, much arithmetic at several sizes."""

from __future__ import annotations

from typing import Any

import pytest

import relaxir as rx
from relaxir.support.errors import UnsupportedError
from tests.frontends.torch_cases import Wrapped, check, export, torch

DYNAMIC = torch.export.Dim.DYNAMIC
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


def rows(*shape: int) -> Any:
    """Floats that are the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Rotary(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
    """Rotary embedding as a product with stored complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(16, 4), rows(16, 4)))

    def forward(self, x: Any) -> Any:
        """Turn pairs of features by the angles of their position."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]].unsqueeze(0)).flatten(-2).type_as(x)


def computed_rotary(x: Any) -> Any:
    """The same with angles computed in the program."""
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), torch.tensor([1.0, 0.5, 0.1, 0.2]))
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def arithmetic(x: Any) -> Any:
    """Sums, products, quotients, conjugates, lengths and directions."""
    a = torch.complex(x, x.flip(1) + 0.5)
    b = torch.cat([a.flip(1), x], -1)[..., 4:12].transpose(-1, -2).contiguous().mT * (1 + 2j)
    c = (a + b - 3 * a / (b + 0.1) + x * b.conj() - 2j).clone()
    d = torch.where(x > 0, c, a).masked_fill(x > 1, 0)
    e = torch.stack([d.sum(1), c.sum(-2), (d + 3).reciprocal()[:, 0], torch.exp(1j * a[:, 0]), a[:, 0] ** 2], 1)
    return c.abs(), c.angle(), e.real, e.imag, torch.view_as_real((a.mT @ b).resolve_conj()), (-a).to(torch.float32)


def written(x: Any) -> Any:
    """Complex numbers written in place."""
    a = torch.zeros(x.shape, dtype=torch.complex64)
    a += x
    a *= 2j
    return torch.view_as_real(a)


def spectra(x: Any) -> Any:
    """Transforms of every kind, length and norm."""
    half = torch.fft.rfft(x, dim=1, norm="ortho")
    back = torch.fft.irfft(half * torch.conj(half), n=x.shape[1], dim=1, norm="ortho")
    full = torch.fft.ifft(torch.fft.fft(x, dim=1, norm="forward") * 2, dim=1)
    image = torch.fft.irfft2(torch.fft.rfft2(x, norm="forward"), s=x.shape[1:], norm="forward")
    mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
    return back, full.real, full.imag, image, mixed, torch.fft.fftn(x, dim=(1, 2)).abs()


@pytest.mark.parametrize(
    "model",
    [Rotary(), computed_rotary, arithmetic, written, spectra],
    ids=["rotary", "computed", "arithmetic", "written", "spectra"],
)
def test_complex_inside(model: Any) -> None:
    """Real inputs and results, complex numbers between them, at several sizes."""
    sizes = ({0: DYNAMIC, 1: DYNAMIC},)
    shapes = sizes if isinstance(model, torch.nn.Module) else (sizes,)
    check(model, [(rows(2, 6, 8),), (rows(1, 1, 8),), (rows(3, 7, 8),)], shapes)


def test_frames_and_back() -> None:
    """A spectrogram, and a signal from one."""

    def both(x: Any) -> Any:
        window = torch.hann_window(8)
        y = torch.stft(x, 8, 4, window=window, return_complex=True)
        return y.abs() ** 2, torch.istft(y, 8, 4, window=window, length=24)

    check(both, [(rows(2, 24),), (rows(1, 24),), (rows(5, 24),)], (({0: DYNAMIC},),))


def test_complex_at_the_border() -> None:
    """Complex inputs and results are refused with what to do."""
    x = rows(2, 2)
    program = export(Wrapped(lambda x: torch.complex(x, x)), (x,), None)
    with pytest.raises(UnsupportedError, match=r"(?s)a result is complex.*view_as_real inside"):
        rx.from_torch(program)
    program = export(Wrapped(lambda z: z.abs()), (torch.complex(x, x),), None)
    with pytest.raises(UnsupportedError, match=r"(?s)input `args_0` is complex.*view_as_complex inside"):
        rx.from_torch(program)


def test_operators_of_real_numbers_alone_are_named() -> None:
    """Every operator without a form for complex numbers is in one error."""

    def model(x: Any) -> Any:
        z = torch.complex(x, x)
        return torch.asin(z).real, torch.acos(z).imag

    with pytest.raises(UnsupportedError) as caught:
        rx.from_torch(export(Wrapped(model), (rows(2, 2),), None))
    text = str(caught.value)
    assert all(f"aten.{name}.default" in text for name in ("asin", "acos"))
    assert text.count("not supported for complex numbers") == 2
