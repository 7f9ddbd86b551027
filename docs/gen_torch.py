"""Write docs/reference/torch.md: the targets of torch.export programs that can be imported, from the importer's table.

``python docs/gen_torch.py`` writes the page, ``--check`` fails if it is not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from relaxir.frontends.torch.creation import FREQUENCIES, WINDOWS
from relaxir.frontends.torch.table import ATEN, COMPLEX, OTHER
from relaxir.frontends.torch.tensors import DTYPES
from relaxir.frontends.torch.vision import VISION

OUT = Path(__file__).resolve().parent / "reference" / "torch.md"
HEAD = """# Operators of torch.export

<!-- made by docs/gen_torch.py: do not edit -->

`relaxir.from_torch` imports programs as torch.export gives them, and decomposed to core ATen. Composite operators with
a converter stay whole; an operator without one is decomposed by torch where torch can; what is left is reported, all of
it in one error with the lines it comes from. A converter serves every overload, the operator that writes in place, and
the copying form of a view.

Data types, promoted as torch promotes them: {dtypes}.

Sizes are dimensions: arithmetic on them is evaluated, guards between inputs become relations that a call checks,
torch's own lower bounds of 2, for inputs and for sizes computed from them, are dropped. Floats that sizes are scaled by
count as the simplest fraction that rounds to them, so `floor(10 * 2.3)` is 23, and `floor(100 * 2.3)` is 230, where
torch's product of two floats is below 230 and gives 229. By the same fraction `interpolate` with `scale_factor` finds
the elements to read, where torch rounds in 32 bits, and copies where the size does not change. Sizes read from data
(`item`, `nonzero`) are new symbols with checked bounds.

Where the program's own code branched on sizes when it was traced, a call with sizes that go the other way is refused;
`!=` only as long as the program was not saved and loaded, which loses the places of comparisons.

Complex numbers exist inside a program only, as two parts; inputs and results are real (`torch.view_as_real`). The
operators that take them are listed below. Every number that goes through such an operator is complex, as in torch: a
product with a real number is one with an imaginary part of 0.

Not imported: sparse and quantized tensors, random numbers, training mode.

## {count} ATen operators with a converter

| operator | note |
|---|---|
"""
TORCHVISION = """
## Operators of torchvision

Without what only gradients need, such as the places of largest elements:

"""
COMPLEX_NUMBERS = """
## Operators of complex numbers

"""
MIDDLE = """
## Other targets

"""
NOTES = {
    "as_strided": "of a tensor that is no view of another",
    **dict.fromkeys((*WINDOWS, *FREQUENCIES), "of a known length"),
    "batch_norm": "inference, or without running statistics",
    "chunk": "as many parts as when the program was exported",
    "cummax": "a loop over the axis",
    "cummin": "a loop over the axis",
    "dropout": "inference only",
    "fill_diagonal_": "not wrapped in tall matrices",
    "gru": "the sequence length is constant: torch.export fixes it",
    "logcumsumexp": "a loop over the axis",
    "lstm": "the sequence length is constant: torch.export fixes it; with projections a loop",
    "one_hot": "the number of classes must be given",
    "rnn_relu": "the sequence length is constant: torch.export fixes it",
    "rnn_tanh": "the sequence length is constant: torch.export fixes it",
    "rrelu": "inference only",
    "rrelu_with_noise": "inference only",
    "rrelu_with_noise_functional": "inference only",
    "split": "as many parts as when the program was exported",
    "view": "bits as a dtype of the same width",
    "to": "the device means nothing",
    "tril_indices": "of known extents",
    "triu_indices": "of known extents",
}


def page() -> str:
    """The whole page."""
    rows = [f"| {name} | {NOTES.get(name, '')} |".replace("|  |", "| |") for name in sorted(ATEN)]
    vision = ", ".join(f"`{name}`" for name in VISION)
    others = ", ".join(f"`{name}`" for name in sorted(OTHER))
    names = [f"`{name}`" for name in DTYPES.values()]
    return (
        HEAD.format(count=len(rows), dtypes=", ".join(names))
        + "\n".join(rows)
        + "\n"
        + TORCHVISION
        + vision
        + "\n"
        + COMPLEX_NUMBERS
        + ", ".join(f"`{name}`" for name in sorted(COMPLEX))
        + "\n"
        + MIDDLE
        + others
        + "\n"
    )


def main() -> None:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        if not OUT.is_file() or OUT.read_text() != page():
            sys.exit("docs/reference/torch.md is not current: run python docs/gen_torch.py")
        return
    OUT.write_text(page())


if __name__ == "__main__":
    main()
