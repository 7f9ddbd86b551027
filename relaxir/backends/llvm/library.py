"""From LLVM texts to a library: compile, link, load or export."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from relaxir.backends.llvm.call_ir import HostFunction, Site
from relaxir.backends.llvm.compile import Compiler, Unit, compile_objects
from relaxir.backends.llvm.elf import WeightsSegment, link, link_to_file
from relaxir.backends.llvm.header import header_text
from relaxir.backends.llvm.loader import load_memory, unload
from relaxir.backends.llvm.memory import HugeMemory
from relaxir.backends.llvm.runtime_ir import PUBLIC_SYMBOLS, runtime_text
from relaxir.backends.llvm.target import Target
from relaxir.runtime.signature import Signature
from relaxir.support.files import replacing


class RxOptions(ctypes.Structure):
    """``rx_options`` of the C header."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("weights", ctypes.c_void_p),
        ("alloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    )


class LoadedLibrary:
    """A library in this process.

    ``cdll`` has the argument types of the C interface set. The code stays until :meth:`close`.
    """

    def __init__(self, cdll: ctypes.CDLL, weights: HugeMemory | None) -> None:
        """Wrap a loaded library; ``weights`` are passed to each context and kept alive."""
        self.cdll = cdll
        self.weights = weights
        set_prototypes(cdll)

    def create(self) -> int:
        """Return a new context's address; end it with ``cdll.rx_destroy``.

        Raises:
            RuntimeError: the processor lacks a feature, or weights or memory are missing; the message is the library's.
        """
        options = RxOptions(
            ctypes.sizeof(RxOptions), None if self.weights is None else self.weights.address, None, None, None
        )
        context: int | None = self.cdll.rx_create(ctypes.byref(options))
        if not context:
            raise RuntimeError(self.cdll.rx_create_error().decode())
        return context

    def last_error(self, context: int) -> str:
        """Return the text of the calling thread's latest error in this library."""
        text: bytes = self.cdll.rx_last_error(context)
        return text.decode(errors="replace")

    def close(self) -> None:
        """Unload the code (its threads are joined).

        Every context must be destroyed, and nothing of the library be used afterwards.
        """
        unload(self.cdll)


def set_prototypes(cdll: ctypes.CDLL) -> None:
    """Set argument and result types of the C interface on a loaded library."""
    pointer, integer, status, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p
    prototypes: dict[str, tuple[object, tuple[object, ...]]] = {
        "rx_abi_version": (status, ()),
        "rx_create": (pointer, (pointer,)),
        "rx_create_error": (text, ()),
        "rx_destroy": (None, (pointer,)),
        "rx_invoke": (status, (pointer,)),
        "rx_python_init": (None, (text,)),
        "rx_call": (status, (pointer, integer, pointer, integer, pointer, integer)),
        "rx_query": (status, (pointer, integer, pointer, integer, pointer, integer, pointer)),
        "rx_last_error": (text, (pointer,)),
        "rx_alloc": (pointer, (pointer, integer)),
        "rx_free": (None, (pointer, pointer)),
        "rx_trim": (None, (pointer,)),
        "rx_set_threads": (None, (integer,)),
        "rx_threads": (status, ()),
        "rx_metadata": (text, ()),
        "rx_check_cpu": (status, ()),
        "rx_stats": (None, (pointer, pointer)),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(cdll, name)
        function.restype = result
        function.argtypes = arguments


@dataclass(frozen=True)
class Library:
    """Compiled objects with everything needed to load or export them."""

    target: Target
    objects: tuple[bytes, ...]
    """The runtime's object first."""
    functions: tuple[HostFunction, ...]
    weights: HugeMemory | None = field(default=None, repr=False)
    """Packed weights; loaded contexts use this very memory, an exported library carries a copy."""
    extra_exports: tuple[str, ...] = ()
    """Symbols to export beside the C interface."""

    @staticmethod
    def from_texts(
        texts: Sequence[str | Unit],
        target: Target,
        *,
        functions: Sequence[HostFunction],
        sites: Sequence[Site] = (),
        metadata_json: str = "{}",
        weights: HugeMemory | bytes | memoryview | None = None,
        extra_exports: Sequence[str] = (),
        compiler: Compiler = compile_objects,
    ) -> "Library":
        """Compile kernels and host entries (``texts``) with the runtime.

        Args:
            texts: LLVM modules that define ``@host_<name>`` for every function, in any number of modules.
            target: what to compile for.
            functions: what ``rx_call`` reaches, by number.
            sites: run-time messages.
            metadata_json: what ``rx_metadata`` returns.
            weights: constant data behind ``@rx_weights`` and the context's first word; best packed into a
                :class:`HugeMemory` at once.
            extra_exports: symbols to export beside the C interface.
            compiler: makes objects of the texts; `compile_objects`, with arguments of the caller's.

        Raises:
            InternalCompilerError: LLVM refused a text.
        """
        memory = weights if weights is None or isinstance(weights, HugeMemory) else HugeMemory.holding(weights)
        size = 0 if memory is None else memory.size
        runtime = runtime_text(
            target, sites=sites, functions=functions, metadata_json=metadata_json, weights_bytes=size
        )
        objects = compiler([runtime, *texts], target)
        return Library(target, tuple(objects), tuple(functions), memory, tuple(extra_exports))

    @property
    def exports(self) -> tuple[str, ...]:
        """All exported symbols."""
        return (*PUBLIC_SYMBOLS, *self.extra_exports)

    @cached_property
    def code(self) -> bytes:
        """The linked library without weights: what is loaded in this process."""
        return link(self.objects, exports=self.exports)

    def bytes(self) -> bytes:
        """Return the whole library, weights included (:meth:`export` does not need that much memory)."""
        return link(self.objects, exports=self.exports, weights=self._segment())

    def load(self) -> LoadedLibrary:
        """Load the code into this process; weights are used where they are.

        Raises:
            OSError: the dynamic linker refused it, e.g. because of another architecture or an undefined symbol.
        """
        return LoadedLibrary(load_memory(self.code), self.weights)

    def export(self, path: Path, header: Sequence[Signature] | None = None) -> int:
        """Write the self-contained library to ``path`` and return its size in bytes.

        With ``header``, the C header goes beside it, with the suffix ``.h``.
        """
        size = link_to_file(path, self.objects, soname=path.name, exports=self.exports, weights=self._segment())
        if header is not None:
            with replacing(path.with_suffix(".h")) as stream:
                stream.write(header_text(path.stem, header).encode())
        return size

    def _segment(self) -> WeightsSegment | None:
        return None if self.weights is None else WeightsSegment([self.weights.view])
