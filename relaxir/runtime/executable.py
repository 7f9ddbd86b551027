"""Compiled modules in this process: contexts, calls, results that return their memory when dropped."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.types import FuncType
from relaxir.runtime.arguments import as_array, as_outputs, check_apart, match_names, reused
from relaxir.runtime.callbacks import Imports
from relaxir.runtime.events import Recorder
from relaxir.runtime.facts import Facts
from relaxir.runtime.quick import INTERFACE, quick_call
from relaxir.runtime.records import CallRecord, Marshal
from relaxir.runtime.signature import Signature
from relaxir.support.checks import check_count, check_function, check_kind
from relaxir.support.dtypes import info
from relaxir.support.elements import shown
from relaxir.support.errors import (
    ERRORS,
    ArgumentError,
    LoadError,
    RelaxirError,
    RuntimeFailure,
)


class NativeLibrary(Protocol):
    """What the runtime needs of loaded code; the LLVM backend's `LoadedLibrary` is one."""

    cdll: ctypes.CDLL

    def create(self) -> int:
        """Address of a new context."""

    def last_error(self, context: int) -> str:
        """Text of the context's latest error."""


class _Context:
    """One native context; destroyed when the last function and result that use it are gone."""

    def __init__(self, library: NativeLibrary) -> None:
        self.library = library
        try:
            self.address = library.create()
        except RuntimeError as error:
            raise LoadError(str(error), code="load-features") from error
        self.free: Callable[[int, int], None] = library.cdll.rx_free
        self.call: Callable[[int], int] = library.cdll.rx_invoke
        self.quick = 0
        """Address of the entry for quick calls, 0 where there are none."""
        if INTERFACE is not None:
            library.cdll.rx_python_init(INTERFACE)
            self.quick = ctypes.cast(library.cdll.rx_python, ctypes.c_void_p).value or 0

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.library.cdll.rx_destroy(self.address)


class _Block:
    """Memory of one result: NumPy arrays keep it as their base, the library gets it back after the last of them."""

    __slots__ = ("__array_interface__", "_address", "_context")

    def __init__(self, context: _Context, address: int, shape: tuple[int, ...], kind: str) -> None:
        self._context = context
        self._address = address
        self.__array_interface__ = {"shape": shape, "typestr": kind, "data": (address, False), "version": 3}

    def __del__(self) -> None:
        self._context.free(self._context.address, self._address)


class CompiledFunction:
    """A function of an `Executable`: call it with arrays, by position or by name.

    A call gives one array for one result, else a tuple. Results are the caller's own. It may raise:

    - `ArgumentError`: wrong names, count, dtype or rank;
    - `RuntimeShapeError`: extents that contradict the signature or each other;
    - `RuntimeIndexError`: an index out of range;
    - `RuntimeFailure`: memory, division by zero.

    ``__call__`` is each object's own: after the first call it is native code, since Python code around it would take
    as long as a small kernel.
    """

    __slots__ = (
        "__call__",
        "__weakref__",
        "_elements",
        "_index",
        "_kinds",
        "_marshal",
        "_owner",
        "_signature",
    )

    __call__: Callable[..., Any]

    def __init__(self, signature: Signature, index: int, owner: Executable) -> None:
        self._signature = signature
        self._index = index
        self._owner = owner
        self._marshal = Marshal(signature)
        self._elements = tuple((i, o.element) for i, o in enumerate(signature.outputs) if o.element)
        self._kinds = tuple(info(o.type.dtype).numpy.str for o in signature.outputs)
        self.__call__ = self._general

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(i.name for i in self._signature.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the results, in order."""
        return tuple(o.name for o in self._signature.outputs)

    @property
    def signature(self) -> FuncType:
        """Types of inputs and results."""
        return self._signature.type

    def __repr__(self) -> str:
        return f"<compiled {self._signature}>"

    def _general(self, /, *args: object, **feeds: object) -> Array | tuple[Array, ...]:
        """Run any call: the first, and those with arguments to convert or to refuse."""
        context, owner = self._owner.context, self._owner
        if self.__call__ == self._general and context.quick and not self._elements:
            native = (context.quick, self._signature, self._index, context.address, context)
            self.__call__ = quick_call(*native, self._general, owner.raise_status)
        return self._results(args, feeds, frozenset())

    def into(self, outputs: Sequence[Array], *args: object, **feeds: object) -> None:
        """Run with the results written to the caller's arrays, which must have the right dtype and shape.

        Raises:
            ArgumentError: an output of the wrong dtype or rank, not compact, read-only, or in the memory of an input
                or of another output.
        """
        self._run(args, feeds, tuple(as_outputs(outputs, self._signature)))

    def donating(self, *names: str) -> Callable[..., Array | tuple[Array, ...]]:
        """A caller that allows the named inputs' memory to be overwritten.

        A result whose elements depend on the donated input's elements at the same places (an update of a cache) is then
        written there: the array given is the result. Other results have memory of their own, as always, and so have
        all results where the donated array is read-only or shares memory with another input. After a failed call the
        contents of donated inputs are undefined.

        Raises:
            ArgumentError: no input of that name.
        """
        for name in names:
            if name not in self.input_names:
                raise ArgumentError(f"{self._signature.name}: no argument `{name}` to donate")
        donated = frozenset(map(self.input_names.index, names))

        def call(*args: object, **feeds: object) -> Array | tuple[Array, ...]:
            return self._results(args, feeds, donated)

        return call

    def _results(
        self, args: Sequence[object], feeds: Mapping[str, object], donated: frozenset[int]
    ) -> Array | tuple[Array, ...]:
        results = self._run(args, feeds, (), donated)
        return results[0] if self._signature.single else results

    def _run(
        self,
        args: Sequence[object],
        feeds: Mapping[str, object],
        given: Sequence[Array],
        donated: frozenset[int] = frozenset(),
    ) -> tuple[Array, ...]:
        marshal, context = self._marshal, self._owner.context
        count = len(marshal.ranks)
        arrays: Sequence[Any] = args
        if feeds or len(args) != count or not marshal.ready(args):
            values = match_names(self._signature, args, feeds)
            arrays = [as_array(v, self._signature.name, s) for v, s in zip(values, self._signature.inputs, strict=True)]
        if given:
            check_apart(self._signature, arrays, given)
        record = marshal.take(context.address, self._index)
        for i, a in enumerate(arrays):
            record.set(i, a)
        if given:
            for i, a in enumerate(given, count):
                record.set(i, a)
        else:
            record.clear(count)
        held = reused(self._signature, arrays, donated) if donated else {}
        for j, a in held.items():
            record.set(count + j, a)
        status = context.call(record.address)
        if status:
            self._fail(record, status, [j for j in range(len(self._kinds)) if not given and j not in held])
        if given:
            marshal.give(record)
            return ()
        results = tuple(
            held[i] if i in held else np.asarray(_Block(context, record.data(count + i), record.shape(count + i), kind))
            for i, kind in enumerate(self._kinds)
        )
        marshal.give(record)
        if self._elements:
            formats = dict(self._elements)
            return tuple(shown(r, formats.get(i, "")) for i, r in enumerate(results))
        return results

    def _fail(self, record: CallRecord, status: int, owned: Sequence[int]) -> NoReturn:
        """Give back the memory of results that the library made before the failure, then raise."""
        context, count = self._owner.context, len(self._marshal.ranks)
        for i in owned:
            if record.data(count + i):
                context.free(context.address, record.data(count + i))
        self._marshal.give(record)
        self._owner.raise_status(status)


class Executable:
    """A compiled module: ``exe["main"](x)``.

    Attributes:
        signatures: interface of each function, by name.
        facts: what is known of calls beforehand.
        details: what the compilation reported: ``seconds`` by step, ``cache`` (objects found, of how many).
    """

    def __init__(
        self,
        load: Callable[[], NativeLibrary],
        signatures: Sequence[Signature],
        codes: Mapping[int, str],
        exporter: Callable[[Path], int] | None = None,
        facts: Facts | None = None,
        details: Mapping[str, Any] | None = None,
        imports: Imports | None = None,
    ) -> None:
        self.signatures = {s.name: s for s in signatures}
        self._codes = codes
        self._load = load
        self._loaded: _Context | None = None
        self._threads: int | None = None
        self._exporter = exporter
        self.facts = facts or Facts()
        self.details = dict(details or {})
        self._imports = imports
        self._recorders: list[Recorder] = []
        self._functions = {s.name: CompiledFunction(s, i, self) for i, s in enumerate(signatures)}

    @property
    def context(self) -> _Context:
        """The native context; code for another machine is loaded, and refused, at its first use only.

        Raises:
            LoadError: code that this machine cannot run.
        """
        if self._loaded is None:
            try:
                self._loaded = _Context(self._load())
            except OSError as error:
                raise LoadError(f"the code cannot run here: {error}", code="load-features") from error
            if self._threads is not None:
                self._loaded.library.cdll.rx_set_threads(self._threads)
        return self._loaded

    def __getitem__(self, name: object) -> CompiledFunction:
        check_function(name, self._functions)
        return self._functions[str(name)]

    def __iter__(self) -> Any:
        return iter(self._functions)

    def export(self, path: str | Path) -> Path:
        """Write the self-contained library to ``path`` and its C header beside it; returns the path.

        Raises:
            LoadError: the place cannot be written, or something that is no file stands there; nothing is left
                half-written.
        """
        if self._exporter is None:
            raise ArgumentError("a loaded library is exported already", help="copy the file")
        target = export_path(path)
        try:
            self._exporter(target)
        except OSError as error:
            raise LoadError(f"cannot write `{target}`: {error.strerror or error}", code="load-path") from error
        return target

    def trim(self) -> None:
        """Give all memory kept between calls back to the system."""
        context = self.context
        context.library.cdll.rx_trim(context.address)

    def set_threads(self, count: int) -> None:
        """How many threads later calls may use.

        Raises:
            ArgumentError: not a whole number of at least 1.
        """
        self._threads = check_count("threads", count)
        if self._loaded is not None:
            self._loaded.library.cdll.rx_set_threads(self._threads)

    def recorder(self, words: int) -> Recorder:
        """Room for so many words of events of a profiling build; one at a time may be in use.

        Raises:
            ArgumentError: a build without time stamps.
        """
        if not self.facts.places:
            raise ArgumentError("this build notes no times", help="compile with profile=True")
        if not self._recorders or self._recorders[-1].words < words:
            self._recorders.append(Recorder(self.context.library.cdll, self.facts.places, words))
        return self._recorders[-1]

    def raise_status(self, status: int) -> NoReturn:
        """Raise the error class of a native status code with the library's own words about this thread's last call."""
        text = self.context.library.last_error(self.context.address)
        raised = None if self._imports is None else self._imports.take_raised()
        if raised is not None:
            raise raised
        code = self._codes.get(status, "")
        owner = next((e for e in ERRORS if code in e.CODES), None)
        if owner is not None:
            raise owner(text, code=code)
        failure: type[RelaxirError] = RuntimeFailure
        raise failure(text)


def export_path(path: str | Path) -> Path:
    """Where a library goes, with its header beside it.

    Raises:
        LoadError: no name of a file, the header's name, or a place where something stands that is no file.
        ArgumentError: not a path.
    """
    check_kind("path", path, (str, os.PathLike))
    target = Path(path)
    if not target.name or "\0" in str(target):
        raise LoadError(f"cannot write `{path!s}`: no file name", code="load-path", help="name a file, e.g. model.so")
    if target.suffix == ".h":
        raise LoadError(
            f"cannot write `{target}`: the C header has this name", code="load-path", help="let the name end in .so"
        )
    for place in (target, target.with_suffix(".h")):
        try:
            free = place.is_file() or not place.exists()
        except OSError as error:
            raise LoadError(f"cannot write `{place}`: {error.strerror or error}", code="load-path") from error
        if not free:
            raise LoadError(
                f"cannot write `{place}`: something that is no file stands there",
                code="load-path",
                help="choose another name",
            )
    return target
