"""A small static linker: relocatable ELF64 objects to one shared library, for x86-64 and aarch64 Linux.

Invariants:

1. The same objects and options give the same bytes.
2. Only ``exports`` are visible; everything else binds inside the library, so two loaded libraries never mix.
3. Segments: R (headers, dynamic tables, constants), RX (code, stubs), RW (relocation read-only part, data, zeroed
   data), and optionally R (weights). File offset equals address for the first three; weights lie last in file and
   memory, on a page boundary.
4. All symbols bind at load (no lazy binding), after which the table of addresses is write-protected (``PT_GNU_RELRO``).
5. References to libc and libm carry no symbol version, so the library runs on older and newer systems than the one it
   was built on.

Unwind tables (``.eh_frame``) are left out: no exception crosses generated code.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import IO, Final

from relaxir.backends.llvm.elf_format import EHDR, PHDR, align_up
from relaxir.backends.llvm.elf_layout import Image
from relaxir.backends.llvm.elf_read import read_object
from relaxir.backends.llvm.elf_resolve import Resolution
from relaxir.backends.llvm.errors import LinkError

DEFAULT_NEEDED: Final = ("libm.so.6", "libc.so.6")
"""Libraries a generated library asks for."""


@dataclass(frozen=True)
class WeightsSegment:
    """Constant data placed behind everything else, reachable as ``symbol``.

    The chunks are written one after another without gaps; whoever cuts them keeps each 64-byte aligned. They are
    never copied here.
    """

    chunks: Sequence[bytes | memoryview]
    """C-contiguous buffers."""
    symbol: str = "rx_weights"
    """The external symbol that code uses for the first byte."""

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(memoryview(chunk).nbytes for chunk in self.chunks)


def link(
    objects: Sequence[bytes],
    *,
    soname: str | None = None,
    exports: Sequence[str],
    needed: Sequence[str] = DEFAULT_NEEDED,
    weights: WeightsSegment | None = None,
) -> bytes:
    """Link ``objects`` into a shared library and return its bytes.

    Args:
        objects: relocatable objects of one architecture.
        soname: the library's own name, or None.
        exports: global symbols to make visible; each must be defined.
        needed: libraries that define what is undefined here.
        weights: constant data to include. An undefined weak reference to its symbol is null where there is none.

    Raises:
        LinkError: a symbol is defined twice or an export is missing, or an object uses what generated code never has.
    """
    image = _link_image(objects, soname, exports, needed, weights)
    if weights is None:
        return image
    padding = align_up(len(image), _page(image)) - len(image)
    return b"".join([image, bytes(padding), *weights.chunks])


def link_to_file(
    path: Path,
    objects: Sequence[bytes],
    *,
    soname: str | None = None,
    exports: Sequence[str],
    needed: Sequence[str] = DEFAULT_NEEDED,
    weights: WeightsSegment | None = None,
) -> int:
    """Link as :func:`link` does, straight into ``path``, and return the size in bytes.

    The weights are streamed, and the file appears whole: it is written beside and renamed, so a process that has the
    old one mapped keeps it.
    """
    image = _link_image(objects, soname, exports, needed, weights)
    temporary = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            size = _write(file, image, weights)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return size


def _write(file: IO[bytes], image: bytes, weights: WeightsSegment | None) -> int:
    file.write(image)
    if weights is None:
        return len(image)
    start = align_up(len(image), _page(image))
    file.write(bytes(start - len(image)))
    for chunk in weights.chunks:
        file.write(chunk)
    return start + weights.size


def _link_image(
    objects: Sequence[bytes],
    soname: str | None,
    exports: Sequence[str],
    needed: Sequence[str],
    weights: WeightsSegment | None,
) -> bytes:
    if not objects:
        raise LinkError("nothing to link")
    parsed = [read_object(data, f"object {index}") for index, data in enumerate(objects)]
    if len({item.machine for item in parsed}) > 1:
        raise LinkError("the objects are for different architectures")
    symbol, size = (None, None) if weights is None else (weights.symbol, weights.size)
    return Image(Resolution(parsed, exports, symbol), parsed[0].ident, size).build(soname, needed)


def _page(image: bytes) -> int:
    """Return the alignment of the first loadable segment of a linked image."""
    alignment: int = struct.unpack_from("<Q", image, EHDR.size + PHDR.size - 8)[0]
    return alignment
