"""Complex numbers inside torch programs: spectra, rotations, and what is done with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import UnsupportedError
from tests.frontends.torch_cases import Wrapped, agree, array, export, torch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself
AUTO = torch.export.Dim.AUTO
LAST = {0: AUTO, 1: AUTO}


def matched(function: Any, bindings: list[tuple[Any, ...]], shapes: Any, core: bool = False, **parts: Any) -> None:
    """Both results alike at every binding, from one import."""
    module = Wrapped(function, **parts)
    imported = rx.from_torch(export(module, bindings[0], (shapes,), core))
    for args in bindings:
        agree(rx.evaluate(imported, "main", *map(array, args)), module(*args), 1e-4)


def real(*sizes: int) -> Any:
    """Numbers between -1 and 1, the same ones each time."""
    return torch.linspace(-1, 1, int(np.prod(sizes))).mul(7).sin().reshape(sizes)


def as_pairs(z: Any) -> Any:
    """Parts of complex results."""
    return torch.view_as_real(z)


ARITHMETIC: dict[str, Any] = {
    "sum": lambda a, b, x: as_pairs(a + b - x + 2 - 1j),
    "sum times alpha": lambda a, b, x: as_pairs(torch.add(a, b, alpha=3)),
    "products": lambda a, b, x: as_pairs(a * b * x * 2 * 1j),
    "quotients": lambda a, b, x: as_pairs(a / b + a / x + x / b + 1 / b + b.reciprocal()),
    "conjugate": lambda a, b, x: as_pairs((a.conj() * b).conj().resolve_conj()),
    "polar form": lambda a, b, x: (
        a.abs(),
        a.angle(),
        as_pairs(torch.polar(x, x)),
        as_pairs(a.exp()),
        as_pairs(b.log()),
    ),
    "parts": lambda a, b, x: (a.real, b.imag, as_pairs(torch.complex(a.imag, x))),
    "powers": lambda a, b, x: (as_pairs(a**3), a.abs() ** 2, as_pairs(torch.square(a))),
    "equality": lambda a, b, x: (
        a == b,
        a != a * 1,
        as_pairs(torch.where(x > 0, a, b)),
        as_pairs(torch.where(x > 0, a, 0)),
    ),
    "views": lambda a, b, x: as_pairs(torch.cat([a, b], 1).mT.flip(0).roll(1, 0)[1:].unsqueeze(1).expand(-1, 2, -1)),
    "real beside": lambda a, b, x: as_pairs(
        torch.stack([a, x.to(a.dtype)]) - torch.nn.functional.pad(a, (0, 0), value=1.0)
    ),
    "matrices": lambda a, b, x: as_pairs(a @ b.mT + x.to(a.dtype) @ b.mT).sum(0),
    "products of vectors": lambda a, b, x: as_pairs(torch.outer(a[0], b[0]) @ b[0]),
    "reductions": lambda a, b, x: as_pairs(a.sum(1) + b.mean(1)),
    "einsum": lambda a, b, x: (
        as_pairs(torch.einsum("nk,mk->nm", a, b.conj())),
        as_pairs(torch.einsum("nk,mk,nk->nm", a, b, a)),
    ),
    "products and sums": lambda a, b, x: (
        as_pairs(torch.nn.functional.linear(a, b, b[:, 0])),
        as_pairs(torch.addmm(b[:, :1], a, b.mT, beta=0.5, alpha=2)),
        as_pairs(torch.addmm(b[:, :1], a, b.mT, beta=0)),
        as_pairs(torch.nn.functional.conv1d(a[:, None], b[:, None, :2], b[:, 0])),
        as_pairs(torch.addcmul(a, b, b, value=0.5) + torch.vdot(a[0], b[0])),
        as_pairs(torch.add(a, b, alpha=1 - 2j)),
    ),
    "functions": lambda a, b, x: [
        as_pairs(getattr(torch, f)(a)) for f in "sqrt rsqrt sin cos tan sinh cosh tanh sigmoid sgn log10".split()
    ],
    "all powers": lambda a, b, x: [as_pairs(z) for z in (a**0, a**-2, a**2.0, a**0.5, a**1.5, a**17, a**b, 2.0**a)],
    "tests": lambda a, b, x: (
        *(f(a * (x > 0)) for f in (torch.isnan, torch.isinf, torch.isfinite, torch.logical_not, torch.any)),
        torch.count_nonzero(a * (x > 0), 1),
        a.imag.to(a.dtype).mul(1j).bool(),
    ),
    "norms": lambda a, b, x: (torch.linalg.vector_norm(a, 1, dim=1), a.norm(), a.var(1), b.std(0)),
    "selected": lambda a, b, x: (
        as_pairs(torch.take_along_dim(a, a.abs().argsort(1), 1)),
        as_pairs(a.repeat_interleave(2, 0).diff(dim=0)),
        as_pairs(torch.masked_select(a, x > 0)),
        as_pairs(a.index_fill(0, torch.tensor([0]), 1j) * torch.ones_like(a) + torch.eye(1, dtype=a.dtype)),
        as_pairs(torch.nn.functional.dropout(a, 0.5, False)),
    ),
    "dtypes": lambda a, b, x: (
        as_pairs(a.to(torch.complex128) / b + a * b.to(torch.complex128)),
        as_pairs(torch.arange(2) / (1 + 2j) + 1j * torch.arange(2)),
        as_pairs(torch.complex(x[:1], x[:, :1])),
        torch.arange(2) == 1 + 0j,
        as_pairs(torch.linspace(0, 1 + 1j, 3) * torch.linspace(0, 1, 3, dtype=a.dtype)),
        torch.ones_like(a, dtype=torch.int64) + a.new_zeros(1, dtype=torch.float64),
    ),
    "bits": lambda a, b, x: (a.view(torch.float32), as_pairs(torch.cat([x, x], 1).view(torch.complex64))),
    "fill": lambda a, b, x: as_pairs(a.masked_fill(x > 0, 2.0) + torch.zeros_like(b)),
}


FIXED = ("reductions", "products and sums", "norms", "bits")
"""Where torch fixes the last extent."""
WHOLE = ("selected",)
"""Where it fixes all."""


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str) -> None:
    """As torch computes it."""

    def run(m: Any, u: Any, v: Any, x: Any) -> Any:
        return ARITHMETIC[name](torch.view_as_complex(u), torch.view_as_complex(v), x)

    sizes = ((3, 4), (3 if name in WHOLE else 1, 4 if name in FIXED + WHOLE else 5))
    bindings = [(real(n, k, 2), real(n, k, 2).cos(), real(n, k) + 0.01) for n, k in sizes]
    matched(run, bindings, (LAST,) * 3, core=name in ("sum", "quotients", "views"), keep=torch.nn.Identity())


def test_zeros_infinities_and_nan() -> None:
    """As torch has them: a real factor has an imaginary part of 0, and what is infinite is far away, NaN beside or not."""
    inf, nan = float("inf"), float("nan")
    numbers = [(inf, nan), (nan, -inf), (-inf, nan), (inf, 0.0), (inf, 1.0), (-0.0, -0.0), (-4.0, -0.0), (0.0, 2.0)]

    def run(m: Any, u: Any) -> Any:
        z = torch.view_as_complex(u)
        scaled = [as_pairs(v) for v in (z * 2.0, z * u[:, 0], z / 2.0, z[4:] / 0.0)]
        return z.abs(), z[2:].exp().real, as_pairs(z[3:4].exp()), as_pairs(z[5:].sqrt()), (z * 0).angle(), *scaled

    matched(run, [(torch.tensor(numbers),)], ({},), keep=torch.nn.Identity())


NORMS = ("backward", "ortho", "forward")
SPECTRA: dict[str, Any] = {
    **{f"rfft {k}": lambda x, k=k: as_pairs(torch.fft.rfft(x, norm=k)) for k in NORMS},
    **{f"fft and back {k}": lambda x, k=k: torch.fft.ifft(torch.fft.fft(x, norm=k) * 1j, norm=k).imag for k in NORMS},
    **{
        f"irfft2 {k}": lambda x, k=k: torch.fft.irfft2(torch.fft.rfft2(x, norm=k) * 2, s=x.shape[1:], norm=k)
        for k in NORMS
    },
    "shifted": lambda x: torch.fft.fftshift(torch.fft.fft2(x), dim=(1, 2)).abs(),
    "frequencies": lambda x: x * torch.fft.fftfreq(6) + torch.fft.rfftfreq(7, 0.5)[1],
    "cut": lambda x: as_pairs(torch.fft.rfft(x, n=7, dim=1)),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(name: str) -> None:
    """As torch scales them, of even and odd lengths."""
    bindings = [(real(2, 8, 6),), (real(1, 9, 6),), (real(3, 10, 6),)]
    matched(lambda m, x: SPECTRA[name](x), bindings, ({0: AUTO, 1: AUTO},), keep=torch.nn.Identity())


def test_spectrogram_and_back() -> None:
    """A filter in the spectrum of windows, as audio models have it."""

    class Filter(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
        """Windows weighted by complex numbers that the model stores."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(16))
            self.register_buffer("gain", torch.polar(torch.linspace(0.5, 1.5, 9), torch.linspace(0, 1, 9)))

        def forward(self, x: Any) -> Any:
            """The signal filtered, and the size of its spectrum."""
            spectrum = torch.stft(x, 16, 4, window=self.window, return_complex=True) * self.gain[:, None]
            return torch.istft(spectrum, 16, 4, window=self.window, length=64), spectrum.abs()

    module = Filter()
    program = export(module, (real(2, 64),), ({0: AUTO},))
    run = rx.compile(rx.from_torch(program), threads=1)["main"]
    for rows in (1, 3):
        agree(run(array(real(rows, 64))), module(real(rows, 64)), 1e-4)


def test_what_is_not_imported_is_named() -> None:
    """Complex inputs and results, and operators without a converter for complex numbers, all of them."""
    z = torch.view_as_complex(real(3, 4, 2)).clone()
    with pytest.raises(UnsupportedError, match=r"input `.*` is complex"):
        rx.from_torch(export(Wrapped(lambda z: z.real), (z,), None))
    with pytest.raises(UnsupportedError, match="view_as_real"):
        rx.from_torch(export(Wrapped(torch.view_as_complex), (real(3, 4, 2),), None))
    with pytest.raises(UnsupportedError) as caught:
        rx.from_torch(export(Wrapped(lambda x: (torch.view_as_complex(x).asin() + torch.view_as_complex(x).cumprod(0)).real),
                             (real(3, 4, 2),), None))  # fmt: skip
    assert "aten.asin" in str(caught.value)
    assert "aten.cumprod" in str(caught.value)
    assert "complex numbers" in str(caught.value)
