"""What a signature says of its symbols, in the C header and in the metadata of a library."""

from __future__ import annotations

from pathlib import Path

import relaxir as rx


def exported(shape: tuple[object, ...], where: str, folder: Path) -> str:
    """The header of a function of one tensor."""
    x = rx.Var("x", rx.TensorType(shape, "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x], where=where):
        bb.emit_func_output(bb.emit(rx.op.exp(x)))
    rx.compile(bb.get(), threads=1).export(folder / "m.so")
    return (folder / "m.h").read_text()


def test_headers_have_the_ranges_of_all_symbols(tmp_path: Path) -> None:
    n, m, k = rx.dim("n", min=1, max=64), rx.dim("m"), rx.dim("k", min=8, multiple_of=4)
    text = exported((n, m, k), "m <= n", tmp_path)
    conditions = [line.split("where")[1].strip() for line in text.splitlines() if "*   where" in line]
    assert conditions == ["k >= 8", "k % 4 == 0", "m >= 0", "1 <= n <= 64", "m <= n"]
    assert rx.load(tmp_path / "m.so").signatures["main"].conditions == tuple(conditions)
